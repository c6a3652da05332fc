// Package share has the rule of fairq.RejectOverShare; see "Fair when full" in docs/design.md.
package share

// Limit returns how many items a key of this weight may have, if this number of places is free:
// with as many or more it may not add one. It is at least 1, so a key without items is refused
// only if no place is free.
func Limit(weight, free int) int64 { return max(1, int64(weight)*int64(free-1)) }

// Matters returns the number of items from which on a key can be at its Limit, in a queue of this
// capacity.
func Matters(capacity int) int { return capacity / 2 }
