package life

import (
	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/share"
	"github.com/fairq/fairq/task/driver"
)

// Room tells whether there is room for one more task of a key of that weight, where so many tasks
// count in the capacity, and so many of the key. If there is none, err is what the Put returns,
// unless evicts is true and there is a task that may be evicted instead: see [Evicts].
func Room(s *driver.Settings, weight, counted, ofKey int) (evicts bool, err error) {
	limit := s.KeyCapacity
	if s.WhenFull == fairq.RejectOverShare {
		limit = int(min(int64(limit), share.Limit(weight, s.Capacity-counted)))
	}
	switch {
	case limit < s.Capacity && ofKey >= limit:
		return false, &fairq.FullError{Len: ofKey, Limit: limit, Key: true}
	case counted < s.Capacity:
		return false, nil
	}
	return s.WhenFull >= fairq.EvictHeaviest, &fairq.FullError{Len: counted, Limit: s.Capacity}
}

// Free returns how many more tasks can be put, whatever their keys, before one may be refused, where
// so many count in the capacity. If it is 0 or less, Room tells about the next one.
func Free(s *driver.Settings, counted int) int {
	switch {
	case s.KeyCapacity < s.Capacity:
		return 0
	case s.WhenFull == fairq.RejectOverShare:
		return share.Matters(s.Capacity) - counted
	}
	return s.Capacity - counted
}

// Crowded tells whether a key may be over its share of the queue where so many tasks count.
func Crowded(s *driver.Settings, counted int) bool {
	return s.WhenFull == fairq.RejectOverShare && counted >= share.Matters(s.Capacity)
}

// Evicts returns the key of which a task is evicted to make room for one of another: its oldest
// one if the policy is EvictOldest, else the newest. If there is none, ok is false. A load is how
// many rounds it takes to serve what of a key can be evicted; most is that of the heaviest key.
func Evicts(
	policy fairq.WhenFull, key string, load int, heaviest string, most int,
) (of string, ok bool) {
	own := most <= load || heaviest == key
	switch {
	case own && policy == fairq.EvictOldest:
		return key, true
	case own:
		return "", false
	}
	return heaviest, true
}

// Rounds returns how many rounds it takes to serve n tasks of a key.
func Rounds(n, weight int) int { return (n + weight - 1) / weight }
