package task

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairq/fairq"
)

// KeyCounts returns the n keys that were served, refused and evicted most, heaviest first; if
// fewer are counted, all. A task is served each time it is taken; of those that are put, by Put or
// PutBatch, one is refused if that returns an [ErrFull]. With Options.Quantum it also tells what
// those served have cost. It counts what was done with this Queue:
// where several have the queue open, in this process or in others, each counts what it did itself.
// It is O(Options.CountKeys * log Options.CountKeys). Without Options.CountKeys there are none.
func (q *Queue[V]) KeyCounts(n int) []fairq.KeyCount[string] { return q.counts.Top(n) }

// LearnsCosts tells whether there is an Options.PriorCost, so that Done may be called.
func (q *Queue[V]) LearnsCosts() bool { return q.options.PriorCost > 0 }

// Done tells what a task of a key has cost, in units, for a queue that learns costs: see
// Options.PriorCost. Less than one unit counts as one, and what is beyond the limit of a cost as
// the limit. It returns [ErrCost] if the cost is negative, and an [ErrInvalid] without PriorCost.
// Each Queue learns what it is told itself, also where processes share a Store.
func (q *Queue[V]) Done(key string, cost int64) error {
	prior := q.options.PriorCost
	switch {
	case prior == 0:
		return invalid("Done: Options.PriorCost", 0, "set, for without it costs are not learned")
	case cost < 0:
		return fmt.Errorf("%w: it is %d for a task of key %q that is done; it must not be negative", ErrCost, cost, key)
	}
	q.learned.Learn(key, min(cost, q.options.costLimit()), prior)
	return nil
}

// countServed counts a task that was taken.
func (q *Queue[V]) countServed(t *Task[V]) {
	counts := fairq.Counts{Served: 1}
	if q.options.Quantum > 0 {
		counts.Cost = uint64(t.details().Cost)
	}
	q.counts.Add(t.Key, counts)
}

// countRefusal counts a Put that does not wait.
func (q *Queue[V]) countRefusal(key string, err error) {
	if errors.Is(err, fairq.ErrFull) {
		q.counts.Add(key, fairq.Counts{Refused: 1})
		if !errors.Is(err, fairq.ErrKeyFull) {
			q.notifier.tellCounts()
		}
	}
}

// Upcoming tells of the first n tasks, [MaxBatch] at most, that would be taken now, in the order in
// which they would be: what n calls of TryTake return, by a consumer that takes all and settles
// nothing, if nothing else happens meanwhile. So what cannot be taken is not among them: the queue
// or the key is paused, or the key has as many tasks taken as it may, with those before. It takes
// nothing, and holds up nobody who does.
//
// The order is the one that the package promises, no more. So in memory, keys that were passed over
// (because they were paused or busy, or had no task for the filter of a consumer) may come later
// here than they will; and with a Quantum and MaxInFlightPerKey, of each key only the next task is
// where it will be. What comes first because it was handed back, or passed over, is of round 0. With
// a Quantum, KeepPlace or MaxInFlightPerKey rounds may have other numbers in one kind of store than in another.
// It is O(n), with the queue locked in memory, plus the keys that come first because they were
// passed over or have been handed a task back.
func (q *Queue[V]) Upcoming(ctx context.Context, n int) ([]UpcomingTask, error) {
	if err := q.notifier.over(); err != nil {
		return nil, err
	}
	if n < 0 || n > MaxBatch {
		return nil, invalid("Upcoming: the number", n, fmt.Sprintf("0 to %d", MaxBatch))
	}
	return q.backend.Upcoming(ctx, n)
}
