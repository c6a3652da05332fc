package task

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/internal/keycount"
	"github.com/fairq/fairq/internal/life"
)

// KeyStats returns the first n keys in an order, or all if there are fewer.
//
// ByBacklog begins with the keys that have the most tasks in all states, ByOldest with the keys
// that have the oldest ready or delayed task. Behind the n keys both list all other paused keys,
// with tasks or without, but not the keys that wait after HoldKey, because there may be many.
// (Only ByBacklog with n = 0 adds up to 1,000, in databases without numbers of tasks.) Both cost
//
//   - in memory O(keys), with the queue locked, and then a scan of tasks without the lock;
//   - in databases a read of all tasks, but in SQLite and Postgres, if n is 0, only of the tasks
//     of paused keys.
//
// ByServed and ByRefused read only what this Queue has counted: without Options.CountKeys there
// are no keys, and the other fields of a KeyStat are zero. If a queue is open several times, each
// Queue counts its own calls. Both orders are O(Options.CountKeys · log Options.CountKeys) in
// every store, even when the queue is closed. A task is served each time it is taken. It is
// refused if Put or PutBatch returns an [ErrFull] for it. With Options.Quantum a KeyStat has the
// cost of the served tasks.
func (q *Queue[V]) KeyStats(
	ctx context.Context, n int, by fairq.KeyOrder,
) (stats []fairq.KeyStat[string], err error) {
	if n < 0 {
		return nil, invalid("KeyStats: the number", n, "0 or more")
	}
	now := time.Now()
	if by >= fairq.ByServed {
		for _, c := range q.counts.Top(n, keycount.By(by == fairq.ByRefused), now) {
			stats = append(stats, q.statOf(c.Key, c))
		}
		return stats, nil
	}
	if err := q.notifier.over(); err != nil {
		return nil, err
	}
	most := n
	if by == fairq.ByOldest && n > 0 {
		most = math.MaxInt32
	}
	all, err := q.backend.KeyStats(ctx, most)
	for _, k := range all {
		stat := q.statOf(k.Key, q.counts.Of(k.Key, now))
		stat.Backlog, stat.Taken, stat.Buried = k.Ready+k.Delayed+k.Held, k.Taken, k.Buried
		stat.Paused, stat.WaitsUntil = k.Paused, k.WaitsUntil
		if k.HeldUntil.After(now) { // a store may keep a hold that is over
			stat.HeldUntil = k.HeldUntil
		}
		if !k.Oldest.IsZero() {
			stat.OldestAge = max(0, now.Sub(k.Oldest))
		}
		stats = append(stats, stat)
	}
	if by == fairq.ByOldest {
		slices.SortFunc(stats, func(a, b fairq.KeyStat[string]) int {
			return cmp.Compare(b.OldestAge, a.OldestAge)
		})
		first, rest := stats[:min(n, len(stats))], stats[min(n, len(stats)):]
		isNotPaused := func(k fairq.KeyStat[string]) bool { return !k.Paused }
		stats = append(first, slices.DeleteFunc(rest, isNotPaused)...)
	}
	return stats, err
}

// statOf returns a KeyStat with the counters of a key.
func (q *Queue[V]) statOf(key string, c keycount.Count[string]) fairq.KeyStat[string] {
	return fairq.KeyStat[string]{
		Key: key, Wait: q.waits.of(key),
		Total: fairq.Counts(c.Total), Recent: fairq.Counts(c.Recent), Missed: c.Missed,
	}
}

// KeepsOrder reports whether Options.MaxInFlightPerKey is 1 and KeepPlace is set, so that the
// ready tasks of a key and priority are done one after the other in the order of their puts.
// SetKey can give up that for one key, by a MaxInFlight that is not 1.
func (q *Queue[V]) KeepsOrder() bool {
	return q.options.MaxInFlightPerKey == 1 && q.options.KeepPlace
}

// MaxInFlight returns how many tasks of a key can be taken at the same time: the limit of the key,
// see SetKey, or else Options.MaxInFlightPerKey, or else [fairq.MaxLen]. If keys may have limits
// of their own, it costs a call of LimitedKeys.
func (q *Queue[V]) MaxInFlight(ctx context.Context, key string) (int, error) {
	s := driver.Settings{MaxInFlightPerKey: q.options.MaxInFlightPerKey}
	if s.MaxInFlightPerKey == 0 && q.options.KeyRate == (Rate{}) {
		return fairq.MaxLen, nil
	}
	var own driver.KeyLimits
	found, err := q.LimitedKeys(ctx, key, 1)
	if len(found) > 0 && found[0].Key == key {
		own.MaxInFlight = found[0].MaxInFlight
	}
	return min(life.MaxInFlight(&s, &own), fairq.MaxLen), err
}

// count counts an event of a key, if the queue counts by key.
func (q *Queue[V]) count(key string, c keycount.Counts) {
	if q.counts != nil {
		q.counts.Add(key, c, time.Now())
	}
}

// countServed counts a task that was taken, if the queue counts by key.
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
	if q.waits.keys[t.Key] == nil {
		if len(q.waits.keys) >= 2*q.options.CountKeys {
			maps.DeleteFunc(q.waits.keys, func(key string, _ *fairq.Histogram) bool {
				return q.counts.Of(key, now).Key != key
			})
		}
		q.waits.keys[t.Key] = new(fairq.Histogram)
	}
	waited := max(0, time.Duration(driver.Nanos(now)-d.ReadyAt))
	q.waits.total.Add(waited)
	q.waits.keys[t.Key].Add(waited)
}

// waits counts how long tasks were ready before they were taken: of all tasks, and by key. There
// it has the keys that Options.CountKeys counts, and at most as many others.
type waits struct {
	mu    sync.Mutex
	total fairq.Histogram
	keys  map[string]*fairq.Histogram
}

// of returns the waits of a key, which are empty if it is not counted.
func (w *waits) of(key string) (h fairq.Histogram) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if known := w.keys[key]; known != nil {
		h = *known
	}
	return h
}

// Waits returns the times from ready to taken of all tasks that this Queue has taken. It is empty
// without Options.CountKeys.
func (q *Queue[V]) Waits() fairq.Histogram {
	q.waits.mu.Lock()
	defer q.waits.mu.Unlock()
	return q.waits.total
}

// countRefusal counts a Put that does not wait.
func (q *Queue[V]) countRefusal(ctx context.Context, key string, err error) {
	if q.counts != nil && errors.Is(err, fairq.ErrFull) {
		q.whenFinal(ctx, func() { q.count(key, keycount.Counts{Refused: 1}) })
	}
}

// Position returns how many tasks would be taken before the task of that id. If there are limit or
// more, ok is false. It returns [ErrTaken] if the task is taken, and [ErrBlocked] if it cannot be
// taken now. (If the task is ready, Position notices that only if fewer than limit others can be
// taken.) limit is at most [MaxBatch]. Position is as exact as [Queue.Upcoming], and costs as much
// as Upcoming for limit tasks.
func (q *Queue[V]) Position(
	ctx context.Context, id ID, limit int,
) (before int, ok bool, err error) {
	if limit < 1 || limit > MaxBatch {
		return 0, false, invalid("Position: the limit", limit, fmt.Sprintf("1 to %d", MaxBatch))
	}
	next, err := q.Upcoming(ctx, limit)
	if err != nil {
		return 0, false, err
	}
	i := slices.IndexFunc(next, func(t UpcomingTask) bool { return t.ID == id })
	if i >= 0 {
		return i, true, nil
	}
	t, err := q.Peek(ctx, id)
	switch {
	case err != nil:
	case t.state == Taken:
		err = ErrTaken
	case t.state != Ready || len(next) < limit:
		err = ErrBlocked
	}
	return 0, false, err
}

// Upcoming returns the next tasks, in order: what n calls of TryTake would take now, if nothing
// else happens and no task is settled. n is [MaxBatch] at most. Upcoming takes nothing, and holds
// up no other call. In a database it returns fewer tasks while there are 1,000 expired tasks that
// no process has removed yet.
//
// So it leaves out tasks that cannot be taken: because the queue or the key is paused or waits, or
// because the key would be at its limit after its tasks before.
//
// The order is as exact as the promise of the package. Tasks that come first because they were
// handed back, or because their key was passed over, have round 0. Upcoming is O(n), with the
// queue locked in memory, plus the number of keys that have several tasks that were handed back.
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
