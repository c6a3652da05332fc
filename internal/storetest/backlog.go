package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/fairq/fairq/task"
)

// backlog is what a queue is full of while calls are measured.
type backlog struct {
	name  string
	tasks int
	taken bool
	put   func(i int, t *task.Entry[string])
}

const (
	moreThan    = 50 // a search of all takes hundreds of times as long
	noise       = 20 * time.Microsecond
	smallQueue  = 10
	roundsEach  = 20
	tasksABatch = 100
)

var backlogs = []backlog{
	{"tasks", 32_000, false, func(int, *task.Entry[string]) {}},
	{"taken tasks", 32_000, true, func(int, *task.Entry[string]) {}},
	{
		"kinds", 20_000, false, func(i int, t *task.Entry[string]) { t.Options.Kind = fmt.Sprint(i) },
	},
	{"keys", 20_000, false, func(i int, t *task.Entry[string]) { t.Key = fmt.Sprint(i) }},
}

// Backlog shows that no call of a Store looks at all tasks, taken tasks or kinds of a key, or at
// all keys, with and without MaxInFlightPerKey and KeepPlace. It compares the least times of
// calls, so it does nothing with -short. It is not in a bubble, because in these no time passes
// while something is done; so open returns a Store whose time is that of the clock.
func Backlog(t *testing.T, open func(t *testing.T) task.Store) {
	if testing.Short() {
		t.Skip("it compares times")
	}
	for _, b := range backlogs {
		for name, limit := range map[string]int{"": 0, ", limited": 1} {
			if limit > 0 && b.taken {
				limit = 2 * b.tasks
			}
			t.Run(b.name+name, func(t *testing.T) { b.test(t, open(t), limit) })
		}
	}
}

func (b *backlog) test(t *testing.T, store task.Store, limit int) {
	small, large := b.fill(t, store, smallQueue, limit), b.fill(t, store, b.tasks, limit)
	for range roundsEach {
		small.measure()
		large.measure()
	}
	for call, cost := range large.fastest {
		if few := small.fastest[call]; cost > moreThan*few+noise {
			t.Errorf("%s takes %v with %d, and %v with %d", call, cost, b.tasks, few, smallQueue)
		}
	}
}

// measured is a queue, and the least time that each of its calls has taken.
type measured struct {
	*testing.T
	*task.Queue[string]
	picky   *task.Consumer[string]
	fastest map[string]time.Duration
}

func (b *backlog) fill(t *testing.T, store task.Store, n, limit int) *measured {
	q, err := task.Open(ctx, store, fmt.Sprint(n), &options{
		MaxInFlightPerKey: limit, KeepPlace: limit > 0,
	})
	m := &measured{t, q, nil, map[string]time.Duration{}}
	m.ok(err)
	t.Cleanup(func() { m.ok(q.Close(ctx)) })
	m.picky = q.NewConsumer(task.Filter{Kinds: []string{"new"}})
	for begin := 0; begin < n; begin += tasksABatch {
		tasks := make([]task.Entry[string], min(tasksABatch, n-begin))
		for i := range tasks {
			tasks[i].Key = "k"
			b.put(begin+i, &tasks[i])
		}
		_, err := m.PutBatch(ctx, tasks)
		m.ok(err)
		if b.taken {
			_, err = m.TakeBatch(ctx, len(tasks))
			m.ok(err)
		}
	}
	return m
}

func (m *measured) ok(err error) {
	m.Helper()
	if err != nil {
		m.Fatal(err)
	}
}

// time measures a call.
func (m *measured) time(call string, f func() error) {
	m.Helper()
	begun := time.Now()
	err := f()
	took := time.Since(begun)
	m.ok(err)
	if best, ok := m.fastest[call]; !ok || took < best {
		m.fastest[call] = took
	}
}

// measure makes each call, and leaves as many tasks as there were.
func (m *measured) measure() {
	var id task.ID
	var t *task.Task[string]
	put := func(call string, o task.PutOptions) {
		m.Helper()
		m.time(call, func() (err error) { id, err = m.Put(ctx, "k", "", o); return err })
	}
	take := func() {
		m.Helper()
		m.time("Take", func() (err error) { t, err = m.Take(ctx); return err })
	}
	put("Put of a kind", task.PutOptions{UniqueKey: "u", Kind: "new"})
	m.time("Peek", func() error { _, err := m.Peek(ctx, id); return err })
	m.time("Find", func() error { _, err := m.Find(ctx, "u"); return err })
	put("Put that replaces", task.PutOptions{UniqueKey: "u", Kind: "new", Replace: true})
	m.time("Change", func() error { return m.Change(ctx, id, task.Change[string]{Priority: new(1)}) })
	back := task.Change[string]{Priority: new(0)}
	m.time("Change back", func() error { return m.Change(ctx, id, back) })
	m.time("Bury by id", func() error { return m.Queue.Bury(ctx, id, errOops) })
	m.time("Kick", func() error { _, err := m.Kick(ctx, task.ListOptions{}); return err })
	m.time("Take of a kind", func() (err error) { t, err = m.picky.Take(ctx); return err })
	m.time("Ack", func() error { return t.Ack(ctx) })
	put("Put", task.PutOptions{})
	m.time("Delete", func() error { return m.Delete(ctx, id) })
	put("Put", task.PutOptions{})
	m.time("TakeID", func() (err error) { t, err = m.TakeID(ctx, id); return err })
	m.time("Snooze", func() error { return t.Snooze(ctx, 0) })
	take()
	m.time("Touch", func() error { return t.Touch(ctx, 0) })
	m.time("Release", func() error { return t.Release(ctx, 0) })
	take()
	m.time("Return", func() error { return t.Return(ctx) })
	take()
	m.time("Fail", func() error { return t.Fail(ctx, errOops, 0) })
	take()
	m.time("Bury", func() error { return t.Bury(ctx, errOops) })
	m.time("KickID", func() error { return m.KickID(ctx, t.ID) })
	take()
	m.time("Ack", func() error { return t.Ack(ctx) })
	m.time("PutBatch", func() error {
		_, err := m.PutBatch(ctx, []task.Entry[string]{{Key: "k"}, {Key: "l"}, {Key: "m"}})
		return err
	})
	for range 3 {
		take()
		m.ok(t.Ack(ctx))
	}
	for range 2 { // the first may count keys, which a store does now and then
		m.time("Stats", func() error { _, err := m.Stats(ctx); return err })
	}
	m.time("Upcoming", func() error { _, err := m.Upcoming(ctx, smallQueue); return err })
	m.time("List", func() error { _, err := m.List(ctx, task.ListOptions{Limit: 10}); return err })
}
