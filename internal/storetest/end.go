package storetest

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

// calls are calls by their names.
type calls map[string]func(context.Context) error

// refuse checks that calls return an error.
func (e *env) refuse(want error, all calls) {
	e.Helper()
	for name, call := range all {
		if err := call(ctx); !errors.Is(err, want) {
			e.Errorf("%s returns: %v; it should be: %v", name, err, want)
		}
	}
}

// work are all calls that put, take or wait.
func work(q *task.Queue[string]) calls {
	return calls{
		"Put": func(ctx context.Context) error {
			return errOf(q.Put(ctx, "a", "a1", task.PutOptions{}))
		},
		"PutWait": func(ctx context.Context) error {
			return errOf(q.PutWait(ctx, "a", "", task.PutOptions{}))
		},
		"PutBatch": func(ctx context.Context) error {
			return errOf(q.PutBatch(ctx, make([]task.Entry[string], 3)))
		},
		"Take": func(ctx context.Context) error { return errOf(q.Take(ctx)) },
		"TryTake": func(ctx context.Context) error {
			_, _, err := q.TryTake(ctx)
			return err
		},
		"TakeBatch": func(ctx context.Context) error { return errOf(q.TakeBatch(ctx, 2)) },
		"TakeID":    func(ctx context.Context) error { return errOf(q.TakeID(ctx, 1)) },
		"Take of a consumer": func(ctx context.Context) error {
			return errOf(q.NewConsumer(task.Filter{}).Take(ctx))
		},
		"Take of a Watch": func(ctx context.Context) error {
			_, _, err := q.NewConsumer(task.Filter{}).Watch(func() {}).Take(ctx, new(task.Task[string]))
			return err
		},
		"ResumeConsumer": func(ctx context.Context) error {
			_, _, err := q.ResumeConsumer(ctx, "c", task.Filter{})
			return err
		},
		"Wait": func(ctx context.Context) error { return q.Wait(ctx, "x") },
	}
}

// care are calls that look at a queue, or change it.
func care(q *task.Queue[string]) calls {
	var all task.ListOptions
	return calls{
		"Peek":       func(ctx context.Context) error { return errOf(q.Peek(ctx, 1)) },
		"Find":       func(ctx context.Context) error { return errOf(q.Find(ctx, "x")) },
		"List":       func(ctx context.Context) error { return errOf(q.List(ctx, all)) },
		"Count":      func(ctx context.Context) error { return errOf(q.Count(ctx, all)) },
		"Kick":       func(ctx context.Context) error { return errOf(q.Kick(ctx, all)) },
		"Truncate":   func(ctx context.Context) error { return errOf(q.Truncate(ctx)) },
		"DeleteSome": func(ctx context.Context) error { return errOf(q.DeleteSome(ctx, all)) },
		"Upcoming":   func(ctx context.Context) error { return errOf(q.Upcoming(ctx, 3)) },
		"Stats":      func(ctx context.Context) error { return errOf(q.Stats(ctx)) },
		"KeyStats": func(ctx context.Context) error {
			return errOf(q.KeyStats(ctx, 3, fairq.ByBacklog))
		},
		"KickID": func(ctx context.Context) error { return q.KickID(ctx, 1) },
		"Bury":   func(ctx context.Context) error { return q.Bury(ctx, 1, errOops) },
		"Delete": func(ctx context.Context) error { return q.Delete(ctx, 1) },
		"Change": func(ctx context.Context) error {
			return q.Change(ctx, 1, task.Change[string]{})
		},
		"Pause":       q.Pause,
		"Resume":      q.Resume,
		"PauseKey":    func(ctx context.Context) error { return q.PauseKey(ctx, "a") },
		"ResumeKey":   func(ctx context.Context) error { return q.ResumeKey(ctx, "a") },
		"HoldKey":     func(ctx context.Context) error { return q.HoldKey(ctx, "a", second) },
		"StartGroup":  func(ctx context.Context) error { return q.StartGroup(ctx, "g") },
		"CancelGroup": func(ctx context.Context) error { return q.CancelGroup(ctx, "g") },
	}
}

// refusesAll checks that no call does anything any more.
func (q *queue) refusesAll(want error) {
	q.e.Helper()
	q.e.refuse(want, work(q.Queue))
	q.e.refuse(want, care(q.Queue))
	for range q.Events(ctx) {
		q.e.Error("there are events")
	}
}

// busy makes a queue with room for one task, and calls that wait.
func (e *env) busy() (
	q *queue, take *call[*lease], put *call[task.ID], wait *call[struct{}], w *watch,
) {
	e.Helper()
	q = e.open(options{Capacity: 1})
	q.one("a1", unique)
	wait = q.waiting()
	put = q.putting("b1")
	take = q.consumer(kinds("none")).taking()
	w = q.watch(ctx)
	take.waits()
	put.waits()
	wait.waits()
	return q, take, put, wait, w
}

var endCases = []testCase{
	{"Close", "ends the use of the queue: all calls, waiting ones " +
		"too, return [ErrClosed]", func(e *env) {
		q, take, put, wait, w := e.busy()
		l := q.first("a1")
		c, cancel := l.Context(ctx)
		defer cancel()
		q.close()
		take.returns(task.ErrClosed)
		put.returns(task.ErrClosed)
		wait.returns(task.ErrClosed)
		w.seen()
		equal(e, "the events are over", w.over, true)
		e.is(context.Cause(c), task.ErrLeaseLost)
		e.is(l.Ack(ctx), task.ErrClosed)
		q.refusesAll(task.ErrClosed)
		q.close()
	}},
	{"CloseWhileOthersWait", "the tasks of its consumers are handed back", func(e *env) {
		const names = "a1 b1 c1 d1 e1 f1 g1 h1"
		for range 30 {
			q := e.open()
			q.put(names)
			for range strings.Fields(names) {
				e.ok(errOf(q.NewConsumer(task.Filter{}).Take(ctx)))
			}
			one, two := q.taking(), q.consumer(task.Filter{}).taking()
			q.close()
			one.returns(task.ErrClosed)
			two.returns(task.ErrClosed)
			q = e.open()
			q.order(names)
			q.close()
		}
	}},
	{"CloseAndOthers", "Changes that are due at a time happen at that time, " +
		"and not at the next call.", func(e *env) {
		q, start := e.open(), time.Now()
		q.one("b1", task.PutOptions{Delay: 20 * second})
		q.one("a1", task.PutOptions{Delay: 10 * second}) // sooner than the known time
		other := e.open()
		one, two := other.taking(), other.taking()
		time.Sleep(15 * second)
		q.close()
		time.Sleep(time.Hour)
		gotAll(e, "a1 b1", one, two)
		e.at("taken", one.at, start, 10*second)
		e.at("taken", two.at, start, 20*second)
	}},
	{"Drop", "All calls on it, waiting ones too, return [ErrDropped] from now on; a later " +
		"Open makes a new queue.", func(e *env) {
		q, take, put, wait, w := e.busy()
		l := q.first("a1")
		e.ok(q.Drop(ctx))
		take.returns(task.ErrDropped)
		put.returns(task.ErrDropped)
		if wait.over(); !errors.Is(wait.err, task.ErrDropped) && !errors.Is(wait.err, task.ErrDeleted) {
			e.Fatalf("Wait returns: %v", wait.err)
		}
		w.seen()
		equal(e, "the events are over", w.over, true)
		e.is(l.Ack(ctx), task.ErrDropped)
		e.is(q.Drop(ctx), task.ErrDropped)
		q.refusesAll(task.ErrDropped)
		again := e.open(serial) // with other options
		equal(e, "Stats of the new queue", again.stats().Puts, 0)
		again.one("b1", unique)
		again.order("b1")
		q.close()
		again.put("c1 c2")
		again.order("c1 c2")
	}},
}
