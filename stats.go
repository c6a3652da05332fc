package fairq

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"time"
)

// Stats tells how a [FairQueue] is doing. Items are counted once in Pushed, and once, when they
// leave, in one of Popped, Removed, Evicted and Drained; so Pushed is always the sum of these four
// and Len.
type Stats struct {
	Len         int  `json:"len"`          // items queued
	Keys        int  `json:"keys"`         // keys that have items queued
	Capacity    int  `json:"capacity"`     // how many items there may be; MaxLen if unbounded
	WaitingPush int  `json:"waiting_push"` // goroutines in PushWait
	WaitingPop  int  `json:"waiting_pop"`  // goroutines in PopWait
	Closed      bool `json:"closed"`

	Pushed  uint64 `json:"pushed"`  // items accepted since the queue was made
	Popped  uint64 `json:"popped"`  // items delivered by Pop, PopWait and PopBatch
	Removed uint64 `json:"removed"` // items taken out by Remove and RemoveKey
	Evicted uint64 `json:"evicted"` // items handed to OnEvict
	Drained uint64 `json:"drained"` // items returned by Drain

	// Refused is how many pushes found the queue, or their key's share of it, full. PushWait is
	// never counted.
	Refused uint64 `json:"refused"`

	// CostQueued is what the items queued cost together, and CostServed the same of those in
	// Popped; of learned costs, as they were estimated. They are 0 without costs.
	CostQueued uint64 `json:"cost_queued"`
	CostServed uint64 `json:"cost_served"`

	// OldestAge is how long the oldest item has been queued, and Wait how long the items delivered
	// had been. They are 0 and empty unless TrackWait is on.
	OldestAge time.Duration `json:"oldest_age_ns"`
	Wait      Histogram     `json:"wait"`
}

// KeyStat tells how one key of a [FairQueue] is doing.
type KeyStat[K comparable] struct {
	Key    K   `json:"key"`
	Len    int `json:"len"`    // items queued
	Rounds int `json:"rounds"` // after the current one, until its last turn
	Weight int `json:"weight"` // as Options.Weight tells by now

	// Cost is what its items cost together, 0 without costs.
	Cost uint64 `json:"cost"`

	// OldestAge is how long its oldest item has been queued, and Wait how long its items delivered
	// had been, anew each time it had none. They are 0 and empty unless TrackWait is on.
	OldestAge time.Duration `json:"oldest_age_ns"`
	Wait      Histogram     `json:"wait"`
}

// Histogram counts durations by size. Bucket i holds those up to Bound(i) that are too long for
// bucket i-1.
type Histogram struct {
	Count   uint64     `json:"count"`
	Sum     float64    `json:"sum_seconds"`
	Buckets [37]uint64 `json:"buckets"`
}

// Mean returns the mean of the durations counted, 0 if there are none.
func (h Histogram) Mean() time.Duration {
	if h.Count == 0 {
		return 0
	}
	return time.Duration(h.Sum / float64(h.Count) * float64(time.Second))
}

// String tells how many durations were counted, their mean and what half and 99 of 100 of them do
// not exceed.
func (h Histogram) String() string {
	if h.Count == 0 {
		return "none"
	}
	return fmt.Sprintf("n=%d, mean %v, half up to %v, 99%% up to %v", h.Count, h.Mean(), h.Quantile(0.5), h.Quantile(0.99))
}

// Bound returns the longest duration that bucket i counts: a microsecond for bucket 0, and twice
// as much for each that follows. The last bucket has no bound: it counts all that is longer, and
// Bound gives the greatest Duration.
func (Histogram) Bound(i int) time.Duration {
	if i >= len(Histogram{}.Buckets)-1 {
		return 1<<63 - 1
	}
	return time.Microsecond << i
}

// Quantile returns a duration that the share q, 0 to 1, of those counted do not exceed. It is the
// bound of a bucket, so above a microsecond, and up to the last bucket, less than twice the exact
// value. It is 0 if nothing was counted.
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

func (h *Histogram) add(d time.Duration) {
	h.Count++
	h.Sum += d.Seconds()
	micros := uint64(max(0, d-1) / time.Microsecond) // rounded up, minus one
	h.Buckets[min(bits.Len64(micros), len(h.Buckets)-1)]++
}

// waitTimes measures how long the items of a queue wait. It is called when they come and go.
type waitTimes struct {
	now            time.Duration // the time of the call that holds the lock
	stamps         column[stamp]
	oldest, newest uint32 // ends of the list of all items by age
	total          Histogram
}

// stamp is when the item of a node was pushed.
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
	w.total.add(wait)
	return wait
}

// age returns how long the item of a node has been queued; 0 for node 0.
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
	s.Len, s.Keys, s.Capacity = q.queue.len, q.queue.active, q.options.Capacity
	s.WaitingPush, s.WaitingPop = q.producers.len+q.keyBlocked.len, q.consumers.len
	s.Closed = q.closed
	if c := q.queue.costs; c != nil {
		s.CostQueued = c.queued
	}
	s.CostServed = q.queue.servedCost()
	if w := q.queue.waitTimes; w != nil {
		s.OldestAge, s.Wait = w.age(w.oldest), w.total
	}
	return s
}

// KeyStats returns the n keys with the most items queued, longest first; those of the same length
// in no particular order. If there are fewer, it returns all. It is O(keys), some nanoseconds for
// each, with the lock held.
func (q *FairQueue[K, V]) KeyStats(n int) []KeyStat[K] {
	return q.keyStats(n, q.queue.longest)
}

// Heaviest returns up to n keys whose backlogs reach furthest, in rounds, the furthest first. It is
// O(n log rounds), with the lock held, however many keys there are. So it is not exact but for the
// first: another may be left out for one whose backlog reaches half as far, or if keys have many
// turns in a round, by weight or quantum, even less far. With TurnsAhead it may be any keys, for
// most items have no round yet. KeyStats is exact.
func (q *FairQueue[K, V]) Heaviest(n int) []KeyStat[K] {
	stats := q.keyStats(n, q.queue.furthest)
	slices.SortStableFunc(stats, func(a, b KeyStat[K]) int { return cmp.Compare(b.Rounds, a.Rounds) })
	return stats
}

// keyStats tells how the keys are doing that a function chooses, with the lock held.
func (q *FairQueue[K, V]) keyStats(n int, choose func(n int) (slots []uint32)) []KeyStat[K] {
	q.lock()
	slots := choose(n)
	stats := make([]KeyStat[K], len(slots))
	for i, slot := range slots {
		stats[i] = q.queue.keyStat(slot)
	}
	q.mu.Unlock()
	for i := range stats {
		stats[i].Weight = q.weight(stats[i].Key)
	}
	return stats
}

// KeyStat tells how one key is doing; all but the Key and its Weight is 0 if it has no items
// queued. It is O(1).
func (q *FairQueue[K, V]) KeyStat(key K) KeyStat[K] {
	stat, hash, weight := KeyStat[K]{Key: key}, hashOf(key), q.weight(key)
	q.lock()
	if slot, s := q.queue.keys.find(key, hash); s != nil && s.len > 0 {
		stat = q.queue.keyStat(slot)
	}
	q.mu.Unlock()
	stat.Weight = weight
	return stat
}

func (q *FairQueue[K, V]) weight(key K) int {
	if q.options.Weight == nil {
		return 1
	}
	return q.options.Weight(key)
}

func (q *Queue[K, V]) keyStat(slot uint32) KeyStat[K] {
	s := q.keys.at(slot)
	stat := KeyStat[K]{Key: s.key, Len: int(s.len), Rounds: int(q.lastRound(s) - q.rounds.current)}
	if q.costs != nil {
		stat.Cost = q.keys.costs.at(slot).queued
	}
	if w := q.waitTimes; w != nil {
		stat.OldestAge = w.age(s.oldest)
		if h := q.keys.histogram(slot); h != nil {
			stat.Wait = *h
		}
	}
	return stat
}

// KeyCounts returns the n keys that were served, refused and evicted most, heaviest first; if
// fewer are counted, all. It is O(Options.CountKeys * log Options.CountKeys), with the lock held.
// Without Options.CountKeys there are none.
func (q *FairQueue[K, V]) KeyCounts(n int) []KeyCount[K] {
	q.lock()
	defer q.mu.Unlock()
	if q.counter == nil {
		return nil
	}
	return q.counter.Top(n, q.now)
}

// longest returns the slots of the n keys with the most items, longest first. It looks at each
// key once, and whenever it has 2n candidates it drops the shorter half.
func (q *Queue[K, V]) longest(n int) []uint32 {
	n = min(n, q.active)
	if n <= 0 {
		return nil
	}
	type candidate struct{ slot, len uint32 }
	longer := func(a, b candidate) int { return int(b.len) - int(a.len) }
	best, floor := make([]candidate, 0, 2*n), uint32(0)
	for slot, s := range q.keys.states.all() {
		if s.len <= floor {
			continue
		}
		best = append(best, candidate{slot, s.len})
		if len(best) == cap(best) {
			slices.SortFunc(best, longer)
			best = best[:n]
			floor = best[n-1].len
		}
	}
	slices.SortFunc(best, longer)
	slots := make([]uint32, n)
	for i := range slots {
		slots[i] = best[i].slot
	}
	return slots
}

// furthest returns the slots of up to n keys whose backlogs reach furthest. Without costs a key has
// a turn in each round up to its last. So it looks at the first n turns of the furthest round, of
// the one half as far ahead, of that a quarter as far ahead, and so on; and where that is not
// enough, at those of the rounds before.
func (q *Queue[K, V]) furthest(n int) (slots []uint32) {
	n = min(n, q.active)
	seen := map[uint32]bool{}
	r := &q.rounds
	for ahead, start := r.last-r.current, r.last; len(slots) < n; ahead /= 2 {
		for round, left := start, n; left > 0; round = r.before(round) {
			for turn := range q.turns(round) {
				if slot := q.links.at(turn).key & keyMask; !seen[slot] {
					seen[slot], slots = true, append(slots, slot)
				}
				if left--; left == 0 {
					break
				}
			}
			if round == r.current {
				break
			}
		}
		if ahead == 0 {
			break
		}
		start = r.before(r.current + ahead/2 + 1)
	}
	return slots[:max(0, min(n, len(slots)))]
}
