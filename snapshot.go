package fairq

import (
	"fmt"
	"iter"
	"time"
)

// Snapshot is what a queue held at one moment. Each item is either in Round or in Queues. It is a
// copy, and the queue goes on without it.
type Snapshot[K comparable, V any] struct {
	// Round is what is left of the current round, in the order in which it will leave. A round
	// begins with the first Pop from it, so as long as there was none, Round is empty.
	Round []V `json:"round"`

	// Queues holds what is queued behind the current round by key, each in the order in which it
	// was pushed. (Keys that are not equal to themselves have one entry together, which only a
	// range loop finds.)
	Queues map[K][]V `json:"queues"`

	order []entry[K, V]
}

// Len returns the number of items.
func (s Snapshot[K, V]) Len() int { return len(s.order) }

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

// Snapshot returns what is queued now. It is O(items), but with the lock held it only copies the
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

// UpcomingItem is an item that is queued, as [FairQueue.Upcoming] and [Queue.Order] tell of it.
type UpcomingItem[K comparable, V any] struct {
	Key   K   `json:"key"`
	Item  V   `json:"item"`
	Round int `json:"round"` // in which it leaves, 0 is the current one

	// Cost is what it costs, as in [KeyStat], and Age how long it has been queued. They are 0
	// without costs, and unless [Options].TrackWait is on.
	Cost uint64        `json:"cost"`
	Age  time.Duration `json:"age_ns"`
}

// Upcoming returns the first n items in the order in which they will leave if nothing else is
// pushed or removed; if there are fewer, all. It is O(n), some 20 nanoseconds for each, with
// SettleCosts or PriorCost ten times as long, with the lock held.
func (q *FairQueue[K, V]) Upcoming(n int) []UpcomingItem[K, V] {
	if n <= 0 {
		return nil
	}
	items := make([]UpcomingItem[K, V], min(n, q.Len())) // here, for memory takes time
	clear(items)                                         // and the system gives it when it is written to
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

// snapshot makes a Snapshot of a copy, whose keys it takes the items from that are in the current
// round: these come first, so from then on the lengths are known of what Queues has.
func (q *Queue[K, V]) snapshot() Snapshot[K, V] {
	s := Snapshot[K, V]{Queues: make(map[K][]V, q.active), order: make([]entry[K, V], 0, q.len)}
	all := make([]V, q.len)
	var behind column[[]V] // by slot, because keys may not be equal to themselves
	for round, node := range q.order(nil) {
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
	c.keys.states, c.keys.costs, c.rounds = q.keys.states.outline(), q.keys.costs.outline(), q.rounds.outline()
	c.turnCosts = q.turnCosts.outline()
	return c
}

// blank returns a queue for copyTo.
func (q *Queue[K, V]) blank() (c Queue[K, V]) {
	c.links, c.values, c.tickets = q.links.blank(), q.values.blank(), q.tickets.blank()
	c.keys.states, c.keys.costs, c.rounds = q.keys.states.blank(), q.keys.costs.blank(), q.rounds.blank()
	c.turnCosts = q.turnCosts.blank()
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
