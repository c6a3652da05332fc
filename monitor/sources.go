package monitor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/admit"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// FairQueue returns a source that shows a queue. The function describe returns the text for an
// item: a Monitor calls it once a second for up to 100 items, without a lock held; nil means no
// text. The name must print and have 100 bytes at most, and it must not be empty, "." or "..",
// or FairQueue panics.
func FairQueue[K comparable, V any](
	name string, q *fairq.FairQueue[K, V], describe func(V) string,
) *Source {
	return newSource(name, "queue", &fairQueue[K, V]{q, describe})
}

type fairQueue[K comparable, V any] struct {
	*fairq.FairQueue[K, V]
	describe func(V) string
}

func (q *fairQueue[K, V]) look(context.Context) (s sample, err error) {
	stats := q.Stats()
	s.Stats, s.Backlog, s.Oldest = stats, stats.Len, stats.OldestAge
	var orders [fairq.ByRefused + 1][]fairq.KeyStat[K]
	for by := range orders {
		orders[by] = q.KeyStats(maxKeys, fairq.KeyOrder(by))
	}
	keys := newKeyRows(orders[:]...)
	for i, u := range q.FairQueue.Upcoming(maxUpcoming) {
		up := upcomingRow{Key: keys.text(u.Key), Round: u.Round, Cost: u.Cost, Age: u.Age}
		if i < maxDescribed {
			up.Payload = shown(describe(q.describe, u.Item))
		}
		s.Upcoming = append(s.Upcoming, up)
	}
	s.More = len(s.Upcoming) == maxUpcoming
	s.Newcomer = newcomer(s.Upcoming, s.More)
	s.Keys, s.keys = keys.longest(), keys.unclear()
	return s, nil
}

func (q *fairQueue[K, V]) stats(context.Context) (any, error) { return q.Stats(), nil }

func (q *fairQueue[K, V]) keyStats(
	_ context.Context, n int, by fairq.KeyOrder,
) (all []fairq.KeyStat[string], err error) {
	for _, k := range q.KeyStats(n, by) {
		all = append(all, fairq.KeyStat[string]{
			Key: keyText(any(k.Key)), Backlog: k.Backlog, Rounds: k.Rounds, Weight: k.Weight, Cost: k.Cost,
			OldestAge: k.OldestAge, Wait: k.Wait,
			Total: k.Total, Recent: k.Recent, Missed: k.Missed,
		})
	}
	return all, nil
}

func (q *fairQueue[K, V]) keyLen(text string, last *sample) (n int, known bool) {
	key, known := resolve[K](text, last)
	if !known {
		return 0, false
	}
	return q.KeyLen(key), true
}

func (q *fairQueue[K, V]) actions() []string { return []string{dropKey} }

func (q *fairQueue[K, V]) do(
	_ context.Context, a Action, last *sample,
) (n int, more bool, err error) {
	key, ok := resolve[K](a.Key, last)
	if !ok {
		return 0, false, errNoKey
	}
	return len(q.RemoveKey(key)), false, nil
}

// TaskQueue returns a source that shows a queue of tasks. The function describe returns the
// text for a task that is buried, or requested by its id; nil means no text. The name is as for
// [FairQueue].
func TaskQueue[V any](name string, q *task.Queue[V], describe func(V) string) *Source {
	return newSource(name, "tasks", &taskQueue[V]{Queue: q, describe: describe})
}

type taskQueue[V any] struct {
	*task.Queue[V]
	describe func(V) string

	// The keys by age and by backlog: to count them can take as long as to read all tasks.
	counted [2][]fairq.KeyStat[string]
	at      time.Time // when they were counted
	next    time.Time // the earliest time of the next count, unless an action changes a key
	changed atomic.Bool
}

// Limits of counting the keys of tasks. In a database other calls may have to wait for it.
const (
	countPart    = 40 // counting takes at most one part in 40 of the time
	countEvery   = 5 * time.Second
	countTimeout = 200 * time.Millisecond
	countAgain   = time.Minute // after that
	maxCounted   = 500_000     // tasks
)

// count counts the keys, if it is time for that. If it takes too long, only the paused keys.
func (q *taskQueue[V]) count(ctx context.Context, now time.Time, tasks int) error {
	if !q.changed.Swap(false) && now.Before(q.next) {
		return nil
	}
	all, err := q.keyStatsOf(ctx, tasks, math.MaxInt32)
	q.at, q.next = now, now.Add(countPart*time.Since(now))
	if errors.Is(err, errSlow) {
		all, err = q.keyStatsOf(ctx, 0, 0)
		q.at, q.next = time.Time{}, now.Add(countAgain)
	}
	if err != nil && !errors.Is(err, errSlow) {
		return err
	}
	if !q.InMemory() && q.next.Before(now.Add(countEvery)) {
		q.next = now.Add(countEvery)
	}
	some := func() []fairq.KeyStat[string] { return slices.Clone(first(all, maxKeys)) }
	q.counted[0] = some()
	slices.SortStableFunc(all, func(a, b fairq.KeyStat[string]) int {
		return cmp.Compare(b.Backlog, a.Backlog)
	})
	q.counted[1] = some()
	for i := range all {
		if all[i].Paused && len(q.counted[1]) < 2*maxKeys {
			q.counted[1] = append(q.counted[1], all[i])
		}
	}
	return nil
}

var errSlow = errors.New("it takes too long")

// keyStatsOf returns the first n keys by age, and all paused ones. It returns errSlow if a
// database has too many tasks, or takes too long.
func (q *taskQueue[V]) keyStatsOf(
	ctx context.Context, tasks, n int,
) ([]fairq.KeyStat[string], error) {
	if q.InMemory() {
		return q.KeyStats(ctx, n, fairq.ByOldest)
	}
	if tasks > maxCounted {
		return nil, errSlow
	}
	ctx, cancel := context.WithTimeoutCause(ctx, countTimeout, errSlow)
	defer cancel()
	all, err := q.KeyStats(ctx, n, fairq.ByOldest)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return all, err
}

func (q *taskQueue[V]) look(ctx context.Context) (s sample, err error) {
	now := time.Now()
	stats, err := q.Stats(ctx)
	if err != nil {
		return s, err
	}
	s.Stats, s.Backlog, s.taken = stats, stats.Ready+stats.Delayed+stats.Held, q.Waits()
	n := maxUpcoming
	if !q.InMemory() {
		n = maxUpcomingRows
	}
	upcoming, err := q.Upcoming(ctx, n)
	if err != nil {
		return s, err
	}
	if err := q.count(ctx, now, stats.Len()); err != nil {
		return s, err
	}
	orders := append([][]fairq.KeyStat[string]{}, q.counted[:]...)
	for by := fairq.ByServed; by <= fairq.ByRefused; by++ {
		stats, err := q.KeyStats(ctx, maxKeys, by)
		if err != nil {
			return s, err
		}
		orders = append(orders, stats)
	}
	keys := newKeyRows(orders...)
	for i := range upcoming {
		u := &upcoming[i]
		up := upcomingRow{
			Key: keys.text(u.Key), Round: u.Round, Age: max(0, now.Sub(u.ReadyAt)), ID: uint64(u.ID),
			Priority: u.Priority,
		}
		if u.Cost != 1 {
			up.Cost = uint64(u.Cost)
		}
		if q.at.IsZero() { // the keys were never counted, so the next tasks are all that is known
			row := keys.of(u.Key)
			row.Len++
			row.OldestAge, row.first = max(row.OldestAge, up.Age), row.first || i < pageKeys
		}
		s.Upcoming = append(s.Upcoming, up)
	}
	s.More = len(upcoming) == n
	s.Newcomer = newcomer(s.Upcoming, s.More)
	if at := q.at; at != now {
		s.KeysAt = &at
	}
	switch {
	case q.AsIs():
		s.Counts = countsNothing
	case !q.InMemory():
		s.Counts = countsOwn
	}
	s.Keys, s.keys = keys.longest(), keys.unclear()
	return s, nil
}

func (q *taskQueue[V]) stats(ctx context.Context) (any, error) { return q.Stats(ctx) }

func (q *taskQueue[V]) keyStats(
	ctx context.Context, n int, by fairq.KeyOrder,
) ([]fairq.KeyStat[string], error) {
	all, err := q.KeyStats(ctx, n, by)
	for i := range all {
		all[i].Key = keyText(all[i].Key)
	}
	return all, err
}

// Workers is what a [pool.Pool] and a [pool.Workers] have in common.
type Workers interface {
	Stats() pool.Stats
	Failures() []pool.Failure
	Pause()
	Resume()
}

// Pool returns a source that shows workers, and the order and the backlog of the queue that they
// drain. queue is a source of it, made from [pool.Pool.Queue]; with nil only the workers are
// shown. Of a pool with several classes, it is the queue of one class. The page has no actions on
// that queue unless it is given to [New] too. The name is as for [FairQueue].
func Pool(name string, p Workers, queue *Source) *Source {
	return newSource(name, "pool", workers{p, queue})
}

type workers struct {
	Workers
	queue *Source
}

func (w workers) look(ctx context.Context) (s sample, err error) {
	s.Stats = w.Stats()
	if w.queue != nil {
		l, _, err := w.queue.sample(ctx)
		if err != nil {
			return s, err
		}
		s.Queue, s.Keys, s.Upcoming, s.More, s.Newcomer = w.queue.name, l.Keys,
			l.Upcoming, l.More, l.Newcomer
		s.Backlog, s.Oldest, s.KeysAt = l.Backlog, l.Oldest, l.KeysAt
		if l.Minute != nil {
			s.waits = l.Minute.Wait
		}
	}
	return s, nil
}

// failures returns the buried tasks of the queue. If there are none, because failed tasks go to a
// sink or are forgotten, it returns the failures that the pool remembers.
func (w workers) failures(ctx context.Context) (*failures, error) {
	if found, err := w.tasks().failures(ctx); err != nil || found.Count > 0 {
		return found, err
	}
	found := &failures{At: time.Now(), Gone: true, all: map[group]int{}}
	for _, f := range w.Failures() {
		found.all[group{
			Reason: reasonOf(fmt.Sprint(f.Err)), Key: shownIfSet(f.Key), Kind: shownIfSet(f.Kind),
		}]++
		found.Read++
	}
	found.Count = int(w.Stats().Failed)
	return found, nil
}

func (w workers) buried(
	ctx context.Context, which buriedOnes, last *sample, n int,
) (*buriedPage, error) {
	return w.tasks().buried(ctx, which, last, n)
}

// peek also returns the stack of a task that has panicked lately. The queue does not keep it.
func (w workers) peek(ctx context.Context, id task.ID) (*taskRow, error) {
	row, err := w.tasks().peek(ctx, id)
	for _, f := range w.Failures() {
		if panicked, ok := errors.AsType[*task.PanicError](f.Err); ok && err == nil && f.Task == id {
			row.Stack = string(panicked.Stack[:min(len(panicked.Stack), maxPayload)])
		}
	}
	return row, err
}

// tasks returns what knows the tasks of the queue.
func (w workers) tasks() keeper {
	if w.queue == nil {
		return noTasks{}
	}
	return w.queue.keeper()
}

func (w workers) stats(context.Context) (any, error) { return w.Stats(), nil }

func (workers) keyStats(context.Context, int, fairq.KeyOrder) ([]fairq.KeyStat[string], error) {
	return nil, nil // those of its queue
}

func (w workers) actions() []string { return []string{pause, resume} }

func (w workers) do(_ context.Context, a Action, _ *sample) (n int, more bool, err error) {
	if a.Name == pause {
		w.Pause()
	} else {
		w.Resume()
	}
	return 1, false, nil
}

// Limiter returns a source that shows an [admit.Limiter]: the items of a key are the calls that
// wait. The name is as for [FairQueue].
func Limiter[K comparable](name string, l *admit.Limiter[K]) *Source {
	return newSource(name, "limiter", limiter[K]{l})
}

type limiter[K comparable] struct{ *admit.Limiter[K] }

func (l limiter[K]) look(ctx context.Context) (s sample, err error) {
	stats := l.Stats()
	s.Stats, s.Backlog, s.Oldest = stats, stats.Waiting, stats.OldestWait
	var orders [fairq.ByRefused + 1][]fairq.KeyStat[string]
	for by := range orders {
		orders[by], _ = l.keyStats(ctx, maxKeys, fairq.KeyOrder(by))
	}
	s.Keys = newKeyRows(orders[:]...).longest()
	return s, nil
}

func (l limiter[K]) stats(context.Context) (any, error) { return l.Stats(), nil }

func (l limiter[K]) keyStats(
	_ context.Context, n int, by fairq.KeyOrder,
) (all []fairq.KeyStat[string], err error) {
	for _, k := range l.KeyStats(n, by) {
		counts := fairq.Counts{Served: k.Admitted, Refused: k.Refused, Cost: uint64(k.Used)}
		all = append(all, fairq.KeyStat[string]{
			Key: keyText(any(k.Key)), Backlog: k.Waiting, Taken: k.Held, Weight: k.Weight,
			OldestAge: k.OldestWait, Total: counts, Recent: counts,
		})
	}
	return all, nil
}

func (limiter[K]) actions() []string { return nil }

func (limiter[K]) do(context.Context, Action, *sample) (n int, more bool, err error) {
	return 0, false, nil
}

// resolve returns the key that is shown like that.
func resolve[K comparable](text string, last *sample) (key K, ok bool) {
	if key, ok = keyOf[K](text); ok {
		return key, true
	}
	key, ok = last.keys[text].(K)
	return key, ok
}

// describe calls a function of the user's.
func describe[V any](f func(V) string, payload V) (text string) {
	if f == nil {
		return ""
	}
	defer func() {
		if p := recover(); p != nil {
			text = fmt.Sprintf("describe panicked: %v", p)
		}
	}()
	return f(payload)
}
