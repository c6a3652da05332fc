package fairq

import (
	"fmt"
	"iter"
	"time"
)

// Snapshot is a copy of a queue's items at one moment. Each item is either in Round or in Queues.
type Snapshot[K comparable, V any] struct {
	// Round has the items left in the current round, in the order in which they will leave. A round
	// begins with the first Pop from it; before that Round is empty.
	Round []V `json:"round"`

	// Queues has the items behind the current round by key, in the order in which they were pushed.
	// (Keys that are not equal to themselves have one entry together, which only a range loop
	// finds.)
	Queues map[K][]V `json:"queues"`

	order []entry[K, V]
}

// String shows Round and Queues.
func (s Snapshot[K, V]) String() string {
	return fmt.Sprintf("{Round:%v Queues:%v}", s.Round, s.Queues)
}

// Order iterates over all items in the order in which they will leave if nothing else is pushed or
// removed.
func (s Snapshot[K, V]) Order() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for _, d := range s.order {
			if !yield(d.key, d.item) {
				return
			}
		}
	}
}

// Snapshot returns the items queued now. It is O(items), but with the lock held it only copies the
// queue's memory, chunk by chunk, to memory that it has allocated before.
func (q *FairQueue[K, V]) Snapshot() Snapshot[K, V] {
	q.mu.Lock()
	outline := q.queue.outline()
	q.mu.Unlock()
	c := outline.blank()
	q.mu.Lock()
	q.queue.copyTo(&c)
	q.mu.Unlock()
	return c.snapshot()
}

// UpcomingItem is a queued item in the results of [FairQueue.Upcoming] and [Queue.Order].
type UpcomingItem[K comparable, V any] struct {
	Key   K   `json:"key"`
	Item  V   `json:"item"`
	Round int `json:"round"` // in which it leaves, 0 is the current one

	// Cost is as in [KeyStat], 0 without costs. Age is the time since the push, 0 without
	// [Options].TrackWait.
	Cost uint64        `json:"cost"`
	Age  time.Duration `json:"age_ns"`
}

// Upcoming returns the first n items, or all if there are fewer, in the order in which they will
// leave if nothing else is pushed or removed. It leaves out items that
// [Options].MaxInFlightPerKey keeps back until another item ends. It is O(n) with the lock held:
// some 20 nanoseconds for each item, and ten times that with SettleCosts.
func (q *FairQueue[K, V]) Upcoming(n int) []UpcomingItem[K, V] {
	if n <= 0 {
		return nil
	}
	// Allocating takes time, so it comes before the lock; and the system provides memory only when
	// it is written to.
	items := make([]UpcomingItem[K, V], min(n, q.Len()))
	clear(items)
	items = items[:0]
	q.lock()
	defer q.mu.Unlock()
	for item := range q.queue.Order() {
		if items = append(items, item); len(items) == n {
			break
		}
	}
	return items
}

// snapshot makes a Snapshot of a queue that is a copy. It begins with the items of the current
// round, and lowers the lengths of their keys. After that a key's length is the number of its
// items in Queues.
func (q *Queue[K, V]) snapshot() Snapshot[K, V] {
	s := Snapshot[K, V]{Queues: make(map[K][]V, q.active), order: make([]entry[K, V], 0, q.len)}
	all := make([]V, q.len)
	var behind column[[]V] // by slot, because keys may not be equal to themselves
	for round, node := range q.order(true) {
		slot := q.links.at(node).key & keyMask
		k, item := q.keys.at(slot), *q.values.at(node)
		s.order = append(s.order, entry[K, V]{k.key, item})
		if round == q.rounds.current {
			s.Round = append(s.Round, item)
			k.len--
			continue
		}
		behind.reach(slot)
		items := behind.at(slot)
		if *items == nil {
			*items, all = all[:0:k.len], all[k.len:]
		}
		*items = append(*items, item)
	}
	for slot, items := range behind.all() {
		if len(*items) > 0 {
			s.Queues[q.keys.at(slot).key] = *items
		}
	}
	return s
}

// outline returns a queue with the columns that order needs, see column.outline.
func (q *Queue[K, V]) outline() (c Queue[K, V]) {
	c.links, c.values, c.tickets = q.links.outline(), q.values.outline(), q.tickets.outline()
	c.keys.states, c.keys.costs = q.keys.states.outline(), q.keys.costs.outline()
	c.rounds, c.turnCosts = q.rounds.outline(), q.turnCosts.outline()
	return c
}

// blank returns a queue for copyTo.
func (q *Queue[K, V]) blank() (c Queue[K, V]) {
	c.links, c.values, c.tickets = q.links.blank(), q.values.blank(), q.tickets.blank()
	c.keys.states, c.keys.costs = q.keys.states.blank(), q.keys.costs.blank()
	c.rounds, c.turnCosts = q.rounds.blank(), q.turnCosts.blank()
	return c
}

// copyTo makes c a copy of q that can be walked.
func (q *Queue[K, V]) copyTo(c *Queue[K, V]) {
	q.links.copyTo(&c.links)
	q.values.copyTo(&c.values)
	q.tickets.copyTo(&c.tickets)
	q.keys.states.copyTo(&c.keys.states)
	q.rounds.copyTo(&c.rounds)
	q.keys.costs.copyTo(&c.keys.costs)
	q.turnCosts.copyTo(&c.turnCosts)
	c.len, c.active, c.costs = q.len, q.active, q.costs
	if q.shares != nil {
		c.shares = q.shares.copy()
	}
}
