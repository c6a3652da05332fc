package fairq

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/fairq/fairq/internal/keycount"
	"github.com/fairq/fairq/internal/printable"
)

// Stats has the counters and gauges of a [FairQueue]. An item counts once in Pushed, and once,
// when it leaves, in one of Popped, Removed and Evicted; so Pushed is always the sum of these
// three and Len.
type Stats struct {
	Len         int  `json:"len"`             // items queued
	Keys        int  `json:"keys"`            // keys that have items queued
	Taken       int  `json:"taken,omitempty"` // items in hand, with ShareTime
	Capacity    int  `json:"capacity"`        // the greatest Len; MaxLen if unbounded
	WaitingPush int  `json:"waiting_push"`    // goroutines in PushWait
	WaitingPop  int  `json:"waiting_pop"`     // goroutines in PopWait
	Closed      bool `json:"closed"`

	Pushed  uint64 `json:"pushed"`  // items accepted since the queue was made
	Popped  uint64 `json:"popped"`  // items delivered by Pop, PopWait and PopBatch
	Removed uint64 `json:"removed"` // items taken out by Remove, RemoveKey and Drain
	Evicted uint64 `json:"evicted"` // items handed to OnEvict

	// Refused is the number of pushes that found the queue, or their key's share of it, full.
	// PushWait does not count.
	Refused uint64 `json:"refused"`

	// CostQueued is the cost of all queued items, and CostServed that of all items in Popped. They
	// are 0 without costs.
	CostQueued uint64 `json:"cost_queued"`
	CostServed uint64 `json:"cost_served"`

	// OldestAge is the age of the oldest item, and Wait counts the waits of the popped ones. They are
	// 0 and empty unless TrackWait is on.
	OldestAge time.Duration `json:"oldest_age_ns"`
	Wait      Histogram     `json:"wait"`
}

// String shows the fields that are not zero, a Capacity without a limit as "unlimited".
func (s Stats) String() string { return printable.Fields(s) }

// KeyStat has the numbers of one key of a [FairQueue], a queue of tasks or an admit.Limiter.
type KeyStat[K comparable] struct {
	Key     K    `json:"key"`
	Backlog int  `json:"backlog"`          // items queued; of tasks, those ready, delayed and held
	Taken   int  `json:"taken,omitempty"`  // tasks; with ShareTime items in hand; permits
	Buried  int  `json:"buried,omitempty"` // tasks
	Paused  bool `json:"paused,omitempty"` // by task.Queue.PauseKey

	// WaitsUntil is the time from which tasks of the key can be taken again; zero unless the key
	// waits. HeldUntil is the end of its task.Queue.HoldKey, zero without one. If WaitsUntil is later
	// than that, the key waits because its KeyRate is used up.
	WaitsUntil time.Time `json:"waits_until,omitzero"`
	HeldUntil  time.Time `json:"held_until,omitzero"`

	Rounds int `json:"rounds,omitempty"` // of a FairQueue: after the current one, until the last turn
	Weight int `json:"weight,omitempty"` // of a FairQueue: as Options.Weight returns now

	// Cost is the cost of all items queued, 0 without costs and of tasks.
	Cost uint64 `json:"cost"`

	// OldestAge is the age of the oldest item, and Wait counts the waits of the popped ones since the
	// key last had no items. They are 0 and empty unless TrackWait is on. For tasks, OldestAge is the
	// age of the oldest ready or delayed one, and Wait is known only of counted keys.
	OldestAge time.Duration `json:"oldest_age_ns"`
	Wait      Histogram     `json:"wait"`

	// Total counts the events since the queue began to count the key; up to Missed earlier events are
	// not in it. Recent is such a count that is halved at each full minute: at n events a minute it
	// varies between n and 2n. All three are 0 without CountKeys, and for keys that are not counted.
	Total  Counts `json:"total"`
	Recent Counts `json:"recent"`
	Missed uint64 `json:"missed,omitempty"`
}

// String shows the Key and the fields that are not zero.
func (s KeyStat[K]) String() string { return printable.Fields(s) }

// Counts has the numbers of events of a key, and the cost of its delivered items.
type Counts struct {
	Served  uint64 `json:"served"`  // delivered
	Refused uint64 `json:"refused"` // not accepted: the queue or the key's share of it was full
	Evicted uint64 `json:"evicted"` // dropped to make room
	Cost    uint64 `json:"cost"`    // of the delivered items, 0 without costs
}

// KeyOrder says which keys come first in KeyStats.
type KeyOrder uint8

// The orders. ByServed and ByRefused go by the last minutes, as KeyStat.Recent counts them, and
// find only counted keys: see Options.CountKeys.
const (
	ByBacklog KeyOrder = iota // the most items queued first
	ByOldest                  // the oldest item first; it needs Options.TrackWait
	ByServed                  // the most items delivered first
	ByRefused                 // the most items refused first
)

// Histogram counts durations by size. Bucket i counts the durations up to Bound(i) that are too
// long for bucket i-1.
type Histogram struct {
	Count   uint64     `json:"count"`
	Sum     float64    `json:"sum_seconds"`
	Buckets [37]uint64 `json:"buckets"`
}

// Mean returns the mean of the counted durations, 0 if there are none.
func (h Histogram) Mean() time.Duration {
	if h.Count == 0 {
		return 0
	}
	return time.Duration(h.Sum / float64(h.Count) * float64(time.Second))
}

// String returns the count, the mean, and upper bounds of the median and the 99th percentile.
func (h Histogram) String() string {
	if h.Count == 0 {
		return "none"
	}
	return fmt.Sprintf("n=%d, mean %v, half up to %v, 99%% up to %v",
		h.Count, h.Mean(), h.Quantile(0.5), h.Quantile(0.99))
}

// Bound returns the longest duration that bucket i counts: a microsecond for bucket 0, and twice
// as much for each that follows. The last bucket has no bound: it counts all longer durations, and
// Bound returns the greatest Duration.
func (Histogram) Bound(i int) time.Duration {
	if i >= len(Histogram{}.Buckets)-1 {
		return 1<<63 - 1
	}
	return time.Microsecond << i
}

// Quantile returns a duration that a share q, 0 to 1, of the counted durations does not exceed. It
// is the bound of a bucket. If it is more than a microsecond, and not that of the last bucket, it
// is less than twice the exact value. It is 0 if nothing was counted.
func (h Histogram) Quantile(q float64) time.Duration {
	sum := uint64(0)
	for i, n := range h.Buckets {
		sum += n
		if n > 0 && float64(sum) >= min(q, 1)*float64(h.Count) {
			return h.Bound(i)
		}
	}
	return 0
}

// Add counts a duration.
func (h *Histogram) Add(d time.Duration) {
	h.Count++
	h.Sum += d.Seconds()
	micros := uint64(max(0, d-1) / time.Microsecond) // rounded up, minus one
	h.Buckets[min(bits.Len64(micros), len(h.Buckets)-1)]++
}

// setTime sets the time of the call.
func (q *Queue[K, V]) setTime(now time.Duration) {
	if q.waitTimes != nil {
		q.waitTimes.now = now
	}
}

// waitTimes measures the waits of the items of a queue.
type waitTimes struct {
	now            time.Duration // the time of the call that holds the lock
	stamps         column[stamp]
	oldest, newest uint32 // ends of the list of all items by age
	total          Histogram
}

// stamp is the time at which the item of a node was pushed.
type stamp struct {
	at           time.Duration
	older, newer uint32 // neighbours in the list of all items by age
}

// enter is called with the node of an item that was queued.
func (w *waitTimes) enter(node uint32) {
	*w.stamps.at(node) = stamp{at: w.now, older: w.newest}
	if w.newest == 0 {
		w.oldest = node
	} else {
		w.stamps.at(w.newest).newer = node
	}
	w.newest = node
}

// leave is called with the node of an item that is about to leave.
func (w *waitTimes) leave(node uint32) {
	s := w.stamps.at(node)
	if s.older == 0 {
		w.oldest = s.newer
	} else {
		w.stamps.at(s.older).newer = s.newer
	}
	if s.newer == 0 {
		w.newest = s.older
	} else {
		w.stamps.at(s.newer).older = s.older
	}
}

// deliver is leave for an item that is popped. It returns how long the item has waited.
func (w *waitTimes) deliver(node uint32) time.Duration {
	wait := w.age(node)
	w.leave(node)
	w.total.Add(wait)
	return wait
}

// age returns the time since the item of a node was pushed; 0 for node 0.
func (w *waitTimes) age(node uint32) time.Duration {
	if node == 0 {
		return 0
	}
	return w.now - w.stamps.at(node).at
}

// Stats returns counters and gauges as of one moment. It is O(1).
func (q *FairQueue[K, V]) Stats() Stats {
	q.lock()
	defer q.mu.Unlock()
	s := q.counts
	s.Capacity, s.Closed = q.options.Capacity, q.closed
	s.WaitingPush, s.WaitingPop = q.producers.Len()+q.keyBlocked.Len(), q.consumers.Len()
	q.queue.stats(&s)
	return s
}

// stats fills in the numbers of the queue.
func (q *Queue[K, V]) stats(s *Stats) {
	s.Len, s.Keys = q.len, q.active
	if q.shares != nil {
		s.Taken = q.shares.taken
	}
	s.CostQueued, s.CostServed = q.costs.queued, q.costs.served
	if w := q.waitTimes; w != nil {
		s.OldestAge, s.Wait = w.age(w.oldest), w.total
	}
}

// KeyStats returns the first n keys in an order, or all if there are fewer.
//
// ByBacklog and ByOldest are orders of the keys that have items. They are O(keys), some
// nanoseconds for each, and hold the lock for a few thousand keys at a time: a key whose backlog
// changes during the call may be out of place. ByServed and ByRefused are orders of the counted
// keys. They are O(Options.CountKeys · log Options.CountKeys).
func (q *FairQueue[K, V]) KeyStats(n int, by KeyOrder) []KeyStat[K] {
	var keys []K
	if by >= ByServed {
		for _, c := range q.counter.Top(n, keycount.By(by == ByRefused), time.Now()) {
			keys = append(keys, c.Key)
		}
	} else {
		q.lock()
		keys = q.queue.first(n, by, func() {
			q.mu.Unlock()
			q.lock()
		})
		q.mu.Unlock()
	}
	stats := make([]KeyStat[K], 0, len(keys))
	for _, key := range keys {
		if s := q.KeyStat(key); by >= ByServed || s.Backlog > 0 {
			stats = append(stats, s)
		}
	}
	return stats
}

// first returns the n keys with the most items, or with the oldest item. Whenever it has 2n
// candidates it drops the worse half. After every few thousand keys it calls pause, which may
// change the queue.
func (q *Queue[K, V]) first(n int, by KeyOrder, pause func()) []K {
	type candidate struct {
		key     K
		measure int64 // the greatest is first
	}
	if n = min(n, q.active); n <= 0 || by == ByOldest && q.waitTimes == nil {
		return nil
	}
	best, floor := make([]candidate, 0, 2*n), int64(math.MinInt64)
	cut := func() {
		slices.SortFunc(best, func(a, b candidate) int { return cmp.Compare(b.measure, a.measure) })
		best = best[:min(n, len(best))]
	}
	for slot, s := range q.keys.states.all() {
		measure := int64(s.len)
		if by == ByOldest && s.len > 0 {
			measure = -int64(q.waitTimes.stamps.at(s.oldest).at)
		}
		if measure > floor && s.len > 0 {
			if best = append(best, candidate{s.key, measure}); len(best) == cap(best) {
				cut()
				floor = best[n-1].measure
			}
		}
		if slot&chunkMask == chunkMask {
			pause()
		}
	}
	cut()
	keys := make([]K, len(best))
	for i := range keys {
		keys[i] = best[i].key
	}
	return keys
}

// KeyStat returns the numbers of one key. It is O(1).
func (q *FairQueue[K, V]) KeyStat(key K) KeyStat[K] {
	k, weight := hashed(key), 1
	if q.options.Weight != nil {
		weight = q.options.Weight(key)
	}
	q.lock()
	stat := q.queue.keyStat(&k)
	q.mu.Unlock()
	c := q.counter.Of(key, time.Now())
	stat.Weight, stat.Missed = weight, c.Missed
	stat.Total, stat.Recent = Counts(c.Total), Counts(c.Recent)
	return stat
}

// keyStat returns the numbers of a key in the queue.
func (q *Queue[K, V]) keyStat(k *itemKey[K]) KeyStat[K] {
	at := q.find(k)
	stat := KeyStat[K]{Key: k.key, Backlog: at.len()}
	if q.shares != nil {
		if share := q.share(at.slot, k.key); share != nil {
			stat.Taken = share.Held()
		}
	}
	if at.len() == 0 {
		return stat
	}
	s := at.state
	if q.shares != nil {
		stat.Rounds = int(q.level(at.slot, s.len))
	} else {
		stat.Rounds = int(q.lastRound(s) - q.rounds.current)
	}
	if q.costs.areOn() {
		stat.Cost = q.keys.costs.at(at.slot).queued
	}
	if w := q.waitTimes; w != nil {
		stat.OldestAge = w.age(s.oldest)
		if h := q.keys.histogram(at.slot); h != nil {
			stat.Wait = *h
		}
	}
	return stat
}
