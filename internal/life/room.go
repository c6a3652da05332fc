package life

import (
	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/internal/share"
)

// Room returns nil if a queue has room for one more task of a key of this weight. counted is the
// number of tasks that count in the capacity, ofKey the number of those of the key.
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

// Free returns how many more tasks of any keys can be put before one may be refused. counted is
// the number of tasks that count in the capacity. At 0 or less, Room decides about the next task.
func Free(s *driver.Settings, counted int) int {
	switch {
	case s.KeyCapacity < s.Capacity:
		return 0
	case s.WhenFull == fairq.RejectOverShare:
		return share.Matters(s.Capacity) - counted
	}
	return s.Capacity - counted
}

// Crowded reports whether a key may be over its share of the queue when counted tasks count.
func Crowded(s *driver.Settings, counted int) bool {
	return s.WhenFull == fairq.RejectOverShare && counted >= share.Matters(s.Capacity)
}
