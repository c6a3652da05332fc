package life

import (
	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/share"
	"github.com/fairq/fairq/task/driver"
)

// Room returns nil if a queue in which counted tasks count in the capacity, ofKey of them of a key
// of that weight, has room for one more task of the key.
func Room(s *driver.Settings, weight, counted, ofKey int) *fairq.FullError {
	limit := s.KeyCapacity
	if s.WhenFull == fairq.RejectOverShare {
		limit = int(min(int64(limit), share.Limit(weight, s.Capacity-counted)))
	}
	switch {
	case limit < s.Capacity && ofKey >= limit:
		return &fairq.FullError{Len: ofKey, Limit: limit, PerKey: true}
	case counted < s.Capacity:
		return nil
	}
	return &fairq.FullError{Len: counted, Limit: s.Capacity}
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
