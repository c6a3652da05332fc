// Package share has the rule of fairq.RejectOverShare; see "Fair when full" in docs/design.md.
package share

// Limit returns the number of items from which on a key of this weight may not add one, if this
// many places are free. It is at least 1, so a key without items is refused only if no place is
// free.
func Limit(weight, free int) int64 { return max(1, int64(weight)*int64(free-1)) }

// Matters returns the number of items from which on a key can be at its Limit, in a queue of this
// capacity.
func Matters(capacity int) int { return capacity / 2 }
