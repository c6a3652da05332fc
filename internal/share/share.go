// Package share has the rule of fairq.RejectOverShare; docs/design.md tells about it under "Fair
// when full".
package share

// Limit returns how many items a key of that weight may have for one more to be accepted, if so
// many places are free: more than that, or as many, are too many. It is at least 1, so a key that
// has none is only refused if no place is free.
func Limit(weight, free int) int64 { return max(1, int64(weight)*int64(free-1)) }

// Matters returns from how many items on, in a queue of that capacity, a key can be at its Limit.
func Matters(capacity int) int { return capacity / 2 }
