package task

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/keycount"
	"github.com/fairq/fairq/task/driver"
)

// KeyStats returns n keys, those first that an order names; if there are fewer, all.
//
// By backlog, the keys with the most tasks in all states are first, and by age those with the
// oldest that is ready or delayed; behind the n are the other keys that are paused, with tasks or
// without. (Keys that HoldKey has wait are not: of these there may be many.) In memory this is
// O(keys), with the queue locked, and then goes through tasks, while others go on, until it has
// found the oldest of each key. In databases it reads all tasks.
//
// By service and by refusals only counters of this Queue are read, and all else in a KeyStat is 0: it
// is O(Options.CountKeys · log Options.CountKeys) in every store, also when the queue is closed, and
// there are no keys without Options.CountKeys. A task is served each time it is taken. It is refused
// if Put or PutBatch returns an [ErrFull] for it. With Options.Quantum there is the cost of those
// served. Where several have the queue open, in this process or in others, each counts its own calls.
func (q *Queue[V]) KeyStats(ctx context.Context, n int, by fairq.KeyOrder) (stats []fairq.KeyStat[string], err error) {
	if n < 0 {
		return nil, invalid("KeyStats: the number", n, "0 or more")
	}
	now := time.Now()
	if by >= fairq.ByServed {
		for _, c := range q.counts.Top(n, keycount.By(by == fairq.ByRefused), now) {
			stats = append(stats, statOf(c.Key, c))
		}
		return stats, nil
	}
	if err := q.notifier.over(); err != nil {
		return nil, err
	}
	most := n
	if by == fairq.ByOldest {
		most = math.MaxInt32
	}
	all, err := q.backend.KeyStats(ctx, most)
	for _, k := range all {
		stat := statOf(k.Key, q.counts.Of(k.Key, now))
		stat.Backlog, stat.Taken, stat.Buried, stat.Paused = k.Ready+k.Delayed+k.Held, k.Taken, k.Buried, k.Paused
		stat.WaitsUntil = k.WaitsUntil
		if !k.Oldest.IsZero() {
			stat.OldestAge = max(0, now.Sub(k.Oldest))
		}
		stats = append(stats, stat)
	}
	if by == fairq.ByOldest {
		slices.SortFunc(stats, func(a, b fairq.KeyStat[string]) int { return cmp.Compare(b.OldestAge, a.OldestAge) })
		rest := slices.DeleteFunc(slices.Clone(stats[min(n, len(stats)):]), func(k fairq.KeyStat[string]) bool { return !k.Paused })
		stats = append(stats[:min(n, len(stats))], rest...)
	}
	return stats, err
}

// statOf returns a KeyStat with the counters of a key.
func statOf(key string, c keycount.Count[string]) fairq.KeyStat[string] {
	return fairq.KeyStat[string]{Key: key, Total: fairq.Counts(c.Total), Recent: fairq.Counts(c.Recent), Missed: c.Missed}
}

// TakesCosts reports whether there is an Options.PriorCost, so that ReportCost may be called.
func (q *Queue[V]) TakesCosts() bool { return q.options.PriorCost > 0 }

// KeepsOrder reports whether Options.MaxInFlightPerKey is 1 and KeepPlace is set, so that the ready
// tasks of a key are done one after the other in the order of their puts.
func (q *Queue[V]) KeepsOrder() bool {
	return q.options.MaxInFlightPerKey == 1 && q.options.KeepPlace
}

// ReportCost tells what a task of a key has cost, in units, for a queue that learns costs: see
// Options.PriorCost. Less than one unit counts as one, and what is beyond the limit of a cost as
// the limit. It returns [ErrCost] if the cost is negative, and an [ErrInvalid] without PriorCost.
// Each Queue learns what it is told itself, also where processes share a Store.
func (q *Queue[V]) ReportCost(key string, cost int64) error {
	prior := q.options.PriorCost
	switch {
	case prior == 0:
		return invalid("ReportCost: Options.PriorCost", 0, "set, for without it costs are not learned")
	case cost < 0:
		return fmt.Errorf("%w: it is %d for a task of key %q that is done; it must not be negative", ErrCost, cost, key)
	}
	q.notifier.learned.Learn(key, min(cost, q.options.costLimit()), prior)
	return nil
}

// count counts an event of a key, if that is wanted.
func (q *Queue[V]) count(key string, c keycount.Counts) {
	if q.counts != nil {
		q.counts.Add(key, c, time.Now())
	}
}

// countServed counts a task that was taken, if that is wanted.
func (q *Queue[V]) countServed(t *Task[V]) {
	if q.counts == nil {
		return
	}
	d, now, counts := t.details(), time.Now(), keycount.Counts{Served: 1}
	if q.options.Quantum > 0 {
		counts.Cost = uint64(d.Cost)
	}
	q.counts.Add(t.Key, counts, now)
	q.waits.mu.Lock()
	defer q.waits.mu.Unlock()
	q.waits.total.Add(max(0, time.Duration(driver.Nanos(now)-d.ReadyAt)))
}

// waits counts for how long tasks were ready.
type waits struct {
	mu    sync.Mutex
	total fairq.Histogram
}

// Waits returns for how long the tasks had been ready that this Queue has taken. It is empty without
// Options.CountKeys.
func (q *Queue[V]) Waits() fairq.Histogram {
	q.waits.mu.Lock()
	defer q.waits.mu.Unlock()
	return q.waits.total
}

// countRefusal counts a Put that does not wait.
func (q *Queue[V]) countRefusal(ctx context.Context, key string, err error) {
	if errors.Is(err, fairq.ErrFull) {
		if q.counts != nil {
			q.lasting(ctx, func() { q.count(key, keycount.Counts{Refused: 1}) })
		}
		if !errors.Is(err, fairq.ErrKeyFull) {
			q.notifier.tellCounts()
		}
	}
}

// Position returns how many tasks would be taken before the task of that id, if that are fewer than
// limit, which is [MaxBatch] at most, and else that there are more, or that it would not be taken as
// things stand. It is as exact as [Queue.Upcoming], and costs what that does for limit tasks.
func (q *Queue[V]) Position(ctx context.Context, id ID, limit int) (before int, ok bool, err error) {
	if _, err := q.Peek(ctx, id); err != nil {
		return 0, false, err
	}
	if limit < 1 || limit > MaxBatch {
		return 0, false, invalid("Position: the limit", limit, fmt.Sprintf("1 to %d", MaxBatch))
	}
	next, err := q.Upcoming(ctx, limit)
	i := slices.IndexFunc(next, func(t UpcomingTask) bool { return t.ID == id })
	return max(i, 0), i >= 0, err
}

// Upcoming tells of the first n tasks, [MaxBatch] at most, that would be taken now, in the order in
// which they would be: what n calls of TryTake return, by a consumer that takes all and settles
// nothing, if nothing else happens meanwhile. So what cannot be taken is not among them: the queue
// or the key is paused or waits, or the key has as many tasks taken as it may, with those before.
// It takes nothing, and holds up nobody who does.
//
// The order is the one that the package promises, no more. So in memory, keys that were passed over
// (because they were paused, waited or were busy, or had no task for the filter of a consumer) may
// come later here than they will. What comes first because it was handed back, or passed over, is
// of round 0. With a Quantum, KeepPlace or MaxInFlightPerKey rounds may have other numbers in one
// kind of store than in another. It is O(n), with the queue locked in memory, plus the keys that
// come first because they were passed over or have been handed a task back.
func (q *Queue[V]) Upcoming(ctx context.Context, n int) ([]UpcomingTask, error) {
	if err := q.notifier.over(); err != nil {
		return nil, err
	}
	if n < 0 || n > MaxBatch {
		return nil, invalid("Upcoming: the number", n, fmt.Sprintf("0 to %d", MaxBatch))
	}
	found, err := q.backend.Upcoming(ctx, n)
	if err != nil {
		return nil, err
	}
	upcoming := make([]UpcomingTask, len(found))
	for i, u := range found {
		upcoming[i] = UpcomingTask{Info(u.Info), u.Round, u.Weight}
	}
	return upcoming, nil
}
