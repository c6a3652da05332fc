package storetest

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

// refuse checks that calls have returned an error.
func (e *env) refuse(want error, calls map[string]error) {
	e.Helper()
	for name, err := range calls {
		if !errors.Is(err, want) {
			e.Errorf("%s returns: %v; it should be: %v", name, err, want)
		}
	}
}

// work makes all calls that put, take or wait.
func work(q *task.Queue[string]) map[string]error {
	_, put := q.Put(ctx, "a", "a1", task.PutOptions{})
	_, putWait := q.PutWait(ctx, "a", "a1", task.PutOptions{})
	_, putBatch := q.PutBatch(ctx, []task.Entry[string]{{Key: "a"}})
	_, take := q.Take(ctx)
	_, _, tryTake := q.TryTake(ctx)
	_, takeBatch := q.TakeBatch(ctx, 1)
	_, takeID := q.TakeID(ctx, 1)
	_, consumerTake := q.NewConsumer(task.Filter{}).Take(ctx)
	_, _, watchTake := q.NewConsumer(task.Filter{}).Watch(func() {}).Take(ctx, new(task.Task[string]))
	_, _, resume := q.ResumeConsumer(ctx, "c", task.Filter{})
	return map[string]error{
		"Put": put, "PutWait": putWait, "PutBatch": putBatch, "Take": take, "TryTake": tryTake,
		"TakeBatch": takeBatch, "TakeID": takeID, "Take of a consumer": consumerTake,
		"Take of a Watch": watchTake, "ResumeConsumer": resume, "Wait": q.Wait(ctx, "x"),
	}
}

// refusesAll checks that no call does anything any more.
func (q *queue) refusesAll(want error) {
	q.e.Helper()
	_, peek := q.Peek(ctx, 1)
	_, list := q.List(ctx, task.ListOptions{})
	_, kick := q.Kick(ctx, task.ListOptions{})
	_, truncate := q.Truncate(ctx)
	_, some := q.DeleteSome(ctx, task.ListOptions{})
	_, stats := q.Stats(ctx)
	_, keyStats := q.KeyStats(ctx, 1, fairq.ByBacklog)
	q.e.refuse(want, work(q.Queue))
	q.e.refuse(want, map[string]error{
		"Peek": peek, "List": list, "Kick": kick, "Truncate": truncate, "DeleteSome": some,
		"Stats": stats, "KeyStats": keyStats,
		"KickID": q.KickID(ctx, 1), "Bury": q.Bury(ctx, 1, errOops), "Delete": q.Delete(ctx, 1),
		"Change": q.Change(ctx, 1, task.Change[string]{}),
		"Pause":  q.Pause(ctx), "Resume": q.Resume(ctx), "PauseKey": q.PauseKey(ctx, "a"),
		"ResumeKey": q.ResumeKey(ctx, "a"), "HoldKey": q.HoldKey(ctx, "a", second),
		"StartGroup": q.StartGroup(ctx, "g"), "CancelGroup": q.CancelGroup(ctx, "g"),
	})
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
				_, err := q.NewConsumer(task.Filter{}).Take(ctx)
				e.ok(err)
			}
			takes := []*call[*lease]{q.taking(), q.consumer(task.Filter{}).taking(), q.taking()}
			q.close()
			for _, take := range takes {
				take.returns(task.ErrClosed)
			}
			q = e.open()
			q.order(names)
			q.close()
		}
	}},
	{"CloseAndTime", "The tasks stay in the store.", func(e *env) {
		q := e.open()
		q.one("a1", task.PutOptions{Delay: second})
		id := q.one("b1", task.PutOptions{TTL: second})
		q.put("c1")
		q.first("b1").bury()
		c := q.consumer(task.Filter{})
		c.first("c1")
		c.disconnect()
		q.close()
		time.Sleep(time.Hour)
		q = e.open()
		q.gone(id)
		q.counts(2, 0, 0, 0, 0)
	}},
	{"CloseAndOthers", "Changes that are due at a time happen at that time, " +
		"and not at the next call.", func(e *env) {
		q, start := e.open(), time.Now()
		q.one("a1", task.PutOptions{Delay: 10 * second})
		q.one("b1", task.PutOptions{Delay: 20 * second})
		other := e.open()
		one, two := other.taking(), other.taking()
		time.Sleep(10 * second)
		got(one, "a1")
		e.at("taken", one.at, start, 10*second)
		q.close()
		time.Sleep(time.Hour)
		got(two, "b1")
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
		again := e.open()
		equal(e, "Stats of the new queue", again.stats().Puts, 0)
		again.one("b1", unique)
		again.order("b1")
		q.close()
		again.put("c1")
		again.order("c1")
	}},
	{"OtherOptions", "a later Open makes a new queue", func(e *env) {
		q := e.open(options{Capacity: 1})
		e.ok(q.Drop(ctx))
		e.open(serial).put("a1 a2 a3")
	}},
}
