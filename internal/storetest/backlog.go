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
// calls, so it does nothing with -short. It is not in a bubble of testing/synctest, where no time
// passes while something is done. So open returns a Store with the time of the real clock.
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

// measure makes each call, and leaves as many tasks as there were.
func (m *measured) measure() {
	var id task.ID
	var t *task.Task[string]
	put := func(o task.PutOptions) func() error {
		return func() (err error) { id, err = m.Put(ctx, "k", "", o); return err }
	}
	take := func() (err error) { t, err = m.Take(ctx); return err }
	change := func(priority int) func() error {
		return func() error { return m.Change(ctx, id, task.Change[string]{Priority: priority}) }
	}
	ack := func() error { return t.Ack(ctx) }
	ofKind := task.PutOptions{UniqueKey: "u", Kind: "new"}
	replacing := ofKind
	replacing.Replace = true
	for _, c := range []struct {
		name string
		call func() error
	}{
		{"Put of a kind", put(ofKind)},
		{"Peek", func() error { return errOf(m.Peek(ctx, id)) }},
		{"Find", func() error { return errOf(m.Find(ctx, "u")) }},
		{"Put that replaces", put(replacing)},
		{"Change", change(1)},
		{"Change back", change(-1)},
		{"Bury by id", func() error { return m.Bury(ctx, id, errOops) }},
		{"Kick", func() error { return errOf(m.Kick(ctx, task.ListOptions{})) }},
		{"Take of a kind", func() (err error) { t, err = m.picky.Take(ctx); return err }},
		{"Ack", ack},
		{"Put", put(task.PutOptions{})},
		{"Delete", func() error { return m.Delete(ctx, id) }},
		{"Put", put(task.PutOptions{})},
		{"TakeID", func() (err error) { t, err = m.TakeID(ctx, id); return err }},
		{"Snooze", func() error { return t.Snooze(ctx, 0) }},
		{"Take", take},
		{"Touch", func() error { return t.Touch(ctx, 0) }},
		{"Release", func() error { return t.Release(ctx, 0) }},
		{"Take", take},
		{"Return", func() error { return t.Return(ctx) }},
		{"Take", take},
		{"Fail", func() error { return t.Fail(ctx, errOops, 0) }},
		{"Take", take},
		{"Bury", func() error { return t.Bury(ctx, errOops) }},
		{"KickID", func() error { return m.KickID(ctx, t.ID) }},
		{"Take", take},
		{"Ack", ack},
		{"PutBatch", func() error {
			return errOf(m.PutBatch(ctx, []task.Entry[string]{{Key: "k"}, {Key: "l"}, {Key: "m"}}))
		}},
		{"Take", take},
		{"Ack", ack},
		{"Take", take},
		{"Ack", ack},
		{"Take", take},
		{"Ack", ack},
		{"Stats", func() error { return errOf(m.Stats(ctx)) }}, // may count keys, now and then
		{"Stats", func() error { return errOf(m.Stats(ctx)) }},
		{"Upcoming", func() error { return errOf(m.Upcoming(ctx, smallQueue)) }},
		{"List", func() error { return errOf(m.List(ctx, task.ListOptions{Limit: 10})) }},
	} {
		begun := time.Now()
		err := c.call()
		took := time.Since(begun)
		m.ok(err)
		if best, ok := m.fastest[c.name]; !ok || took < best {
			m.fastest[c.name] = took
		}
	}
}
