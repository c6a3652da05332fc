package monitor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/admit"
	"github.com/fairq/fairq/internal/each"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// FairQueue returns a source that shows a queue. The function describe returns the text for an
// item; nil means no text. A Monitor calls it once a second for up to 100 items, without a lock
// held. The name must print and have 1 to 100 bytes, and must not be "." or ".."; otherwise
// FairQueue panics.
func FairQueue[K comparable, V any](
	name string, q *fairq.FairQueue[K, V], describe func(V) string,
) *Source {
	return newSource(name, "queue", &fairQueue[K, V]{q, describe}, dropKey)
}

type fairQueue[K comparable, V any] struct {
	*fairq.FairQueue[K, V]
	describe func(V) string
}

func (q *fairQueue[K, V]) look(context.Context) (s sample, err error) {
	stats := q.Stats()
	s.Stats, s.Backlog, s.Oldest = stats, stats.Len, stats.OldestAge
	keys := firstRows(q.KeyStats)
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
) ([]fairq.KeyStat[string], error) {
	return shownStats(q.KeyStats(n, by), nil)
}

func (q *fairQueue[K, V]) find(
	_ context.Context, text string, last *sample,
) (n *int, _ *task.KeyLimits, err error) { //nolint:unparam // as the interface has it
	if key, ok := resolve[K](text, last); ok {
		n = new(q.KeyStat(key).Backlog)
	}
	return n, nil, nil
}

func (q *fairQueue[K, V]) do(
	_ context.Context, a Action, last *sample,
) (n int, more bool, err error) { //nolint:unparam // as the interface has it
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
	return newSource(name, "tasks", &taskQueue[V]{Queue: q, describe: describe},
		kick, kickAll, bury, remove, removeAll, dropKey, pause, resume, pauseKey, resumeKey, limitKey)
}

type taskQueue[V any] struct {
	*task.Queue[V]
	describe func(V) string
	running  running

	counted  *keyCount // the last count of all tasks, or else the first one
	counting *keyCount // that goes on; nil if none does
	next     time.Time // the earliest time of the next page, unless an action changes a key
	changed  atomic.Bool
	orders   [3][]fairq.KeyStat[string] // by backlog and age as counted; paused and waiting
	limits   map[string]task.KeyLimits
	limit    int // of tasks in flight of the other keys
}

// Counting the keys of tasks takes at most one part in 40 of the time, and a fifth of a second at
// once. It reads pages, because one read of all tasks would stop others.
const (
	countPart = 40
	countTime = 200 * time.Millisecond
)

// keyCount counts tasks by key.
type keyCount struct {
	began, at time.Time // when the first and the last page were read
	read      int
	keys      map[string]*keyTotal
	after     task.ID // of the last page
}

type keyTotal struct {
	fairq.KeyStat[string]
	readyAt time.Time // of the oldest ready task
}

func (c *keyCount) add(i *task.Info) {
	k := c.keys[i.Key]
	if k == nil {
		k = new(keyTotal)
		k.Key, c.keys[i.Key] = i.Key, k
	}
	switch c.read++; i.State {
	case task.Taken:
		k.Taken++
	case task.Buried:
		k.Buried++
	case task.Ready:
		if k.readyAt.IsZero() || i.ReadyAt.Before(k.readyAt) {
			k.readyAt = i.ReadyAt
		}
		fallthrough
	default:
		k.Backlog++
	}
}

// first returns the keys with the greatest of some numbers.
func (c *keyCount) first(of func(k *keyTotal) int) (found []fairq.KeyStat[string]) {
	order := func(a, b *keyTotal) int { return cmp.Compare(of(b), of(a)) }
	for _, k := range first(slices.SortedFunc(maps.Values(c.keys), order), maxKeys) {
		found = append(found, k.KeyStat)
	}
	return found
}

// count goes on counting the keys, if it is time for that.
func (q *taskQueue[V]) count(ctx context.Context, now time.Time) (err error) {
	if !q.changed.Swap(false) && now.Before(q.next) {
		return nil
	}
	began := time.Now() // now is the begin of a look, which reads other things too
	defer func() { q.next = began.Add(countPart * time.Since(began)) }()
	for more := true; more && time.Since(began) < countTime; {
		if q.counting == nil {
			q.counting = &keyCount{began: now, keys: map[string]*keyTotal{}}
		}
		c := q.counting
		page, err := q.List(ctx, task.ListOptions{After: c.after, Limit: readPage})
		if err != nil {
			return err
		}
		for _, t := range page {
			i := t.Info()
			c.add(&i)
			c.after = t.ID
		}
		if c.at, more = time.Now(), len(page) == readPage; !more {
			q.counting = nil
		}
		if q.counted == nil || !more {
			q.counted = c
		}
	}
	if q.orders[2], err = q.KeyStats(ctx, 0, fairq.ByBacklog); err != nil {
		return err
	}
	for _, k := range q.counted.keys {
		if !k.readyAt.IsZero() {
			k.OldestAge = max(0, now.Sub(k.readyAt))
		}
	}
	q.orders[0] = q.counted.first(func(k *keyTotal) int { return k.Backlog })
	q.orders[1] = q.counted.first(func(k *keyTotal) int { return int(k.OldestAge) })
	q.limits, q.limit, err = each.LimitsOf(ctx, q.Queue, maxKeys)
	return err
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
	if err := q.count(ctx, now); err != nil {
		return s, err
	}
	var running []*task.Task[V]
	if stats.Taken > 0 {
		running, err = q.List(ctx, task.ListOptions{State: task.Taken, Limit: maxRead})
		if err != nil {
			return s, err
		}
	}
	taken, infos := map[string]int{}, make([]*task.Info, len(running))
	for i, t := range running {
		taken[t.Key]++
		infos[i] = new(t.Info())
	}
	s.busy = q.running.see(infos, len(running) < maxRead, now)
	keys := newKeyRows(q.orders[:]...)
	for by := fairq.ByServed; by <= fairq.ByRefused; by++ {
		stats, err := q.KeyStats(ctx, math.MaxInt32, by)
		if err != nil {
			return s, err
		}
		for i := range stats {
			if i < maxKeys || keys.rows[keys.text(stats[i].Key)] != nil {
				keys.add(&stats[i], i < pageKeys)
			}
		}
	}
	for key := range q.limits {
		keys.of(key)
	}
	for text, row := range keys.rows {
		key := keys.keys[text]
		row.Taken = taken[key]
		row.Explain(q.limits[key], q.limit)
	}
	for i := range upcoming {
		u := &upcoming[i]
		up := upcomingRow{
			Key: keys.text(u.Key), Round: u.Round, Age: max(0, now.Sub(u.ReadyAt)), ID: uint64(u.ID),
			Priority: u.Priority,
		}
		if u.Cost != 1 {
			up.Cost = uint64(u.Cost)
		}
		s.Upcoming = append(s.Upcoming, up)
	}
	s.More = len(upcoming) == n
	s.Newcomer = newcomer(s.Upcoming, s.More)
	if c := q.counted; c.began != now || c == q.counting {
		s.KeysAt, s.KeysTook = &c.at, c.at.Sub(c.began)
		if c == q.counting {
			s.KeysOf, s.KeysAll = c.read, stats.Len()
		}
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

func (q *taskQueue[V]) find(
	ctx context.Context, text string, last *sample,
) (_ *int, own *task.KeyLimits, err error) { //nolint:unparam // as the interface has it
	key, _ := resolve[string](text, last)
	found, err := q.LimitedKeys(ctx, key, 1)
	if len(found) > 0 && keyText(found[0].Key) == text {
		own = &found[0].KeyLimits
	}
	return nil, own, err
}

func (q *taskQueue[V]) stats(ctx context.Context) (any, error) { return q.Stats(ctx) }

func (q *taskQueue[V]) keyStats(
	ctx context.Context, n int, by fairq.KeyOrder,
) ([]fairq.KeyStat[string], error) {
	return shownStats(q.KeyStats(ctx, n, by))
}

// Workers is what a [pool.Pool] and a [pool.Workers] have in common.
type Workers interface {
	Stats() pool.Stats
	Failures() []pool.Failure
	Pause()
	Resume()
}

// Pool returns a source that shows workers, and the order and the backlog of the queue that they
// drain. The parameter queue is a source of that queue, made from [pool.Pool.Queue]. With nil the
// page shows only the workers. A pool with several classes has a queue for each; give one of them.
// The page has actions on the queue only if [New] gets its source too. The name is as for
// [FairQueue].
func Pool(name string, p Workers, queue *Source) *Source {
	return newSource(name, "pool", workers{p, queue, queue.keeper()}, pause, resume)
}

type workers struct {
	Workers
	queue  *Source
	keeper // of the tasks of the queue
}

// Queue returns the source of the queue that a pool drains, as given to [Pool]; nil if there is
// none.
func (s *Source) Queue() *Source {
	w, _ := s.of.(workers)
	return w.queue
}

func (w workers) look(ctx context.Context) (s sample, err error) {
	if w.queue != nil {
		l, _, err := w.queue.sample(ctx)
		if err != nil {
			return s, err
		}
		s = *l
		s.Queue, s.QueueStats, s.Counts, s.Error = w.queue.name, l.Stats, "", ""
		if l.Minute != nil {
			s.waits = l.Minute.Wait
		}
	}
	s.Stats, s.reasons = w.Stats(), w.reasons(ctx)
	return s, nil
}

// tasks returns those of the queue, or the failures that the pool remembers.
func (w workers) tasks(
	ctx context.Context, which selection, last *sample, n int,
) (*taskList, error) {
	l, err := w.keeper.tasks(ctx, which, last, n)
	if err != nil || which.state != failed {
		return l, err
	}
	for _, f := range slices.Backward(w.Failures()) {
		row := w.row(&f)
		g := group{reasonOf(row.Reason), row.Key, shown(f.Kind), 1, uint64(f.Task), uint64(f.Task)}
		if (which.key == "" || which.key == g.Key) && (which.kind == "" || which.kind == g.Kind) {
			l.found = append(l.found, found{group: g, row: func() *taskRow { return row }})
		}
	}
	return l, nil
}

func (workers) row(f *pool.Failure) *taskRow {
	row := &taskRow{Reason: shown(fmt.Sprint(f.Err)), Since: f.At}
	row.Row = each.RowOf(&task.Info{ID: f.Task, Kind: f.Kind}, shown)
	row.State, row.Key = failed, keyText(f.Key)
	if panicked, ok := errors.AsType[*task.PanicError](f.Err); ok {
		row.Stack = string(panicked.Stack[:min(len(panicked.Stack), maxPayload)])
	}
	return row
}

// reasons returns the most frequent reason among the tasks that are tried again next, and among
// the failures for good of the last minute.
func (w workers) reasons(ctx context.Context) [2]string {
	retried, err := w.keeper.tasks(ctx, selection{state: retrying}, nil, maxReasons)
	if err != nil { // it is only for the words of an alert
		retried = new(taskList)
	}
	var buried taskList
	for _, f := range w.Failures() {
		if time.Since(f.At) < time.Minute {
			buried.found = append(buried.found, found{group: group{Reason: reasonOf(fmt.Sprint(f.Err))}})
		}
	}
	return [...]string{retried.reason(), buried.reason()}
}

func (w workers) stats(context.Context) (any, error) { return w.Stats(), nil }

func (workers) keyStats(context.Context, int, fairq.KeyOrder) ([]fairq.KeyStat[string], error) {
	return nil, nil // those of its queue
}

func (w workers) do(
	_ context.Context, a Action, _ *sample,
) (n int, more bool, err error) { //nolint:unparam // as the interface has it
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

func (l limiter[K]) look(context.Context) (s sample, err error) {
	stats := l.Stats()
	s.Stats, s.Backlog, s.Oldest = stats, stats.Waiting, stats.OldestWait
	s.Keys = firstRows(l.KeyStats).longest()
	return s, nil
}

func (l limiter[K]) stats(context.Context) (any, error) { return l.Stats(), nil }

func (l limiter[K]) keyStats(
	_ context.Context, n int, by fairq.KeyOrder,
) ([]fairq.KeyStat[string], error) {
	return shownStats(l.KeyStats(n, by), nil)
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
