package monitor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/admit"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// FairQueue returns a source that shows a queue. The function describe tells what is shown of an
// item: it is called once a second for up to 100 of them, without a lock held, and nil means
// nothing. The name must print and have 100 bytes at most, and it must not be empty, "." or "..",
// or FairQueue panics.
func FairQueue[K comparable, V any](name string, q *fairq.FairQueue[K, V], describe func(V) string) *Source {
	return newSource(name, "queue", &fairQueue[K, V]{q, describe})
}

type fairQueue[K comparable, V any] struct {
	*fairq.FairQueue[K, V]
	describe func(V) string
}

func (q *fairQueue[K, V]) look(context.Context) (s sample, err error) {
	stats := q.Stats()
	s.Stats, s.Wait = stats, quantilesOf(&stats.Wait)
	keys := newKeyRows(q.KeyStats(maxKeys, fairq.ByBacklog), q.KeyStats(maxKeys, fairq.ByServed), q.KeyStats(maxKeys, fairq.ByRefused))
	for i, u := range q.FairQueue.Upcoming(maxUpcoming) {
		row := keys.of(u.Key)
		if row.leaves(i) && row.Len == 0 {
			stat := q.KeyStat(u.Key)
			keys.add(&stat)
		}
		up := upcomingRow{Key: row.Key, Round: u.Round, Cost: u.Cost, Age: u.Age}
		if i < maxDescribed {
			up.Payload = describe(q.describe, u.Item)
		}
		s.Upcoming = append(s.Upcoming, up)
	}
	s.More = len(s.Upcoming) == maxUpcoming
	s.Keys, s.keys = keys.longest(), keys.unclear()
	return s, nil
}

func (q *fairQueue[K, V]) stats(context.Context) (any, error) { return q.Stats(), nil }

func (q *fairQueue[K, V]) keyStats(_ context.Context, n int, by fairq.KeyOrder) (all []fairq.KeyStat[string], err error) {
	for _, k := range q.KeyStats(n, by) {
		all = append(all, fairq.KeyStat[string]{
			Key: keyText(any(k.Key)), Backlog: k.Backlog, Rounds: k.Rounds, Weight: k.Weight, Cost: k.Cost, OldestAge: k.OldestAge, Wait: k.Wait,
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

func (q *fairQueue[K, V]) do(_ context.Context, a Action, last *sample) (int, error) {
	key, ok := resolve[K](a.Key, last)
	if !ok {
		return 0, errNoKey
	}
	return len(q.RemoveKey(key)), nil
}

// TaskQueue returns a source that shows a queue of tasks. The function describe tells what is shown
// of a task that is buried, up to 50 at a time; nil means nothing. The name is as for [FairQueue].
func TaskQueue[V any](name string, q *task.Queue[V], describe func(V) string) *Source {
	return newSource(name, "tasks", &taskQueue[V]{q, describe})
}

type taskQueue[V any] struct {
	*task.Queue[V]
	describe func(V) string
}

func (q *taskQueue[V]) look(ctx context.Context) (s sample, err error) {
	stats, err := q.Stats(ctx)
	if err != nil {
		return s, err
	}
	n := maxUpcoming
	if !q.InMemory() {
		n = maxUpcomingRows
	}
	upcoming, err := q.Upcoming(ctx, n)
	if err != nil {
		return s, err
	}
	if s.Buried, err = q.buried(ctx); err != nil {
		return s, err
	}
	now := time.Now()
	served, err := q.KeyStats(ctx, maxKeys, fairq.ByServed)
	if err != nil {
		return s, err
	}
	refused, err := q.KeyStats(ctx, maxKeys, fairq.ByRefused)
	if err != nil {
		return s, err
	}
	keys := newKeyRows(served, refused)
	for i := range upcoming {
		u := &upcoming[i]
		row, age := keys.of(u.Key), max(0, now.Sub(u.ReadyAt))
		if row.leaves(i) {
			row.OldestAge, row.Weight = age, u.Weight
		}
		up := upcomingRow{Key: row.Key, Round: u.Round, Age: age, ID: uint64(u.ID), Priority: u.Priority}
		if u.Cost != 1 {
			up.Cost = uint64(u.Cost)
		}
		s.Upcoming = append(s.Upcoming, up)
	}
	s.Stats, s.More = stats, len(upcoming) == n
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

func (q *taskQueue[V]) keyStats(ctx context.Context, n int, by fairq.KeyOrder) ([]fairq.KeyStat[string], error) {
	all, err := q.KeyStats(ctx, n, by)
	for i := range all {
		all[i].Key = keyText(all[i].Key)
	}
	return all, err
}

// buried returns the first of those that are buried.
func (q *taskQueue[V]) buried(ctx context.Context) (rows []buriedRow, err error) {
	tasks, err := q.List(ctx, task.ListOptions{State: task.Buried, NextFirst: true, Limit: maxBuried})
	for _, t := range tasks {
		info := t.Info()
		row := buriedRow{ID: uint64(t.ID), Key: keyText(t.Key), Attempts: t.Attempts, Created: info.Created}
		if t.Kind != "" {
			row.Kind = shown(t.Kind)
		}
		if info.Err != nil {
			row.Reason = shown(info.Err.Message)
		}
		row.Payload = describe(q.describe, t.Payload)
		rows = append(rows, row)
	}
	return rows, err
}

func (q *taskQueue[V]) actions() []string {
	return []string{kick, kickAll, bury, remove, dropKey, pause, resume, pauseKey, resumeKey}
}

var errByMonitor = errors.New("buried by hand")

func (q *taskQueue[V]) do(ctx context.Context, a Action, last *sample) (int, error) {
	var key string
	if a.Name == dropKey || a.Name == pauseKey || a.Name == resumeKey {
		var ok bool
		if key, ok = resolve[string](a.Key, last); !ok {
			return 0, errNoKey
		}
	}
	switch a.Name {
	case kick:
		return 1, q.KickID(ctx, a.ID)
	case kickAll:
		return q.Kick(ctx, task.ListOptions{Limit: maxKicked})
	case bury:
		return 1, q.BuryUnlessTaken(ctx, a.ID, errByMonitor)
	case remove:
		return 1, q.DeleteUnlessTaken(ctx, a.ID)
	case pause:
		return 1, q.Pause(ctx)
	case resume:
		return 1, q.Resume(ctx)
	case pauseKey:
		return 1, q.PauseKey(ctx, key)
	case resumeKey:
		return 1, q.ResumeKey(ctx, key)
	default:
		return q.dropKey(ctx, key)
	}
}

// dropKey deletes tasks of a key that nobody has taken.
func (q *taskQueue[V]) dropKey(ctx context.Context, key string) (n int, err error) {
	tasks, err := q.List(ctx, task.ListOptions{Key: &key, Limit: maxDropped})
	for _, t := range tasks {
		err := q.DeleteUnlessTaken(ctx, t.ID)
		if err != nil && !errors.Is(err, task.ErrTaken) && !errors.Is(err, task.ErrNotFound) {
			return n, err
		}
		if err == nil {
			n++
		}
	}
	return n, err
}

// Workers is what a [pool.Pool] and a [pool.Workers] have in common.
type Workers interface {
	Stats() pool.Stats
	Pause()
	Resume()
}

// Pool returns a source that shows workers, and the rounds and the backlog of the queue that they
// drain: queue is a source of it, such as of [pool.Pool.Queue], or nil, which shows nothing of it.
// If a pool has several classes, it is the queue of one of them. That source has no paths and
// actions of its own, and its buried tasks are not shown, unless it is given to [New] too. The name
// is as for [FairQueue].
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
		s.Queue, s.Keys, s.Upcoming, s.More = w.queue.name, l.Keys, l.Upcoming, l.More
	}
	return s, nil
}

func (w workers) stats(context.Context) (any, error) { return w.Stats(), nil }

func (workers) keyStats(context.Context, int, fairq.KeyOrder) ([]fairq.KeyStat[string], error) {
	return nil, nil // those of its queue
}

func (w workers) actions() []string { return []string{pause, resume} }

func (w workers) do(_ context.Context, a Action, _ *sample) (int, error) {
	if a.Name == pause {
		w.Pause()
	} else {
		w.Resume()
	}
	return 1, nil
}

// Limiter returns a source that shows an [admit.Limiter]: the items of a key are the calls that wait.
// The name is as for [FairQueue].
func Limiter[K comparable](name string, l *admit.Limiter[K]) *Source {
	return newSource(name, "limiter", limiter[K]{l})
}

type limiter[K comparable] struct{ *admit.Limiter[K] }

func (l limiter[K]) look(ctx context.Context) (s sample, err error) {
	s.Stats = l.Stats()
	keys := newKeyRows[string]()
	for by := range fairq.ByRefused + 1 {
		stats, _ := l.keyStats(ctx, maxKeys, by)
		for i := range stats {
			keys.add(&stats[i])
		}
	}
	s.Keys = keys.longest()
	return s, nil
}

func (l limiter[K]) stats(context.Context) (any, error) { return l.Stats(), nil }

func (l limiter[K]) keyStats(_ context.Context, n int, by fairq.KeyOrder) (all []fairq.KeyStat[string], err error) {
	for _, k := range l.KeyStats(n, by) {
		all = append(all, fairq.KeyStat[string]{
			Key: keyText(any(k.Key)), Backlog: k.Waiting, Taken: k.Held, Weight: k.Weight, OldestAge: k.OldestWait,
			Total: fairq.Counts{Served: k.Admitted, Refused: k.Refused, Cost: uint64(k.Used)},
		})
	}
	return all, nil
}

func (limiter[K]) actions() []string { return nil }

func (limiter[K]) do(context.Context, Action, *sample) (int, error) { return 0, nil }

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
			text = shown(fmt.Sprintf("describe panicked: %v", p))
		}
	}()
	return shown(f(payload))
}
