package storetest

import (
	"context"
	"slices"
	"testing/synctest"
	"time"

	"github.com/fairq/fairq/task"
)

var takeCases = []testCase{
	{
		"FirstComeFirstServed", "Waiting calls are served first come, first served. ... Calls that " +
			"wait for tasks are served first come, first served ... one new task wakes one of them",
		func(e *env) {
			q := e.open()
			c := q.consumer(kinds("x"))
			takes := []*call[*lease]{
				q.taking(), c.taking(), q.taking(), q.consumer(task.Filter{}).taking(), c.taking(),
			}
			for i, name := range []string{"a1", "b1", "c1", "d1", "e1"} {
				q.one(name, kind("x"))
				got(takes[i], name)
				for _, later := range takes[i+1:] {
					later.waits()
				}
				equal(e, "WaitingTake", q.stats().WaitingTake, len(takes)-1-i)
			}
		},
	},
	{"CancelledMeanwhile", "A context that ends loses nothing.", func(e *env) {
		q := e.open()
		for range 100 {
			gone, cancel := context.WithCancel(ctx)
			one, two := q.takingUntil(gone), q.taking()
			go cancel()
			q.put("a1")
			if one.over(); one.err == nil {
				got(one, "a1").ack()
				two.waits()
				q.put("a2")
				got(two, "a2").ack()
				continue
			}
			one.returns(context.Canceled)
			got(two, "a1").ack()
			q.none()
		}
	}},
	{"DoneBefore", "If ctx is done first, Take returns its error.", func(e *env) {
		q := e.open()
		q.put("a1")
		gone, cancel := context.WithCancelCause(ctx)
		cancel(errOops)
		for name, call := range work(q.Queue) {
			if slices.Contains([]string{"Take", "TryTake", "TakeBatch", "PutWait"}, name) {
				e.is(call(gone), context.Canceled)
			}
		}
		q.order("a1")
	}},
	{"Batch", "takes up to n tasks, in order. If there is none, it waits for one.", func(e *env) {
		q := e.open()
		batch := func(n int) *call[[]*task.Task[string]] {
			return begin(e, func() ([]*task.Task[string], error) { return q.TakeBatch(ctx, n) })
		}
		q.put("a1 a2 a3 b1 c1")
		q.one("d1", task.PutOptions{Delay: second})
		equal(e, "the first", payloads(batch(4).returns(nil)), "a1 b1 c1 a2")
		equal(e, "the rest", payloads(batch(4).returns(nil)), "a3")
		waiting := batch(4)
		waiting.waits()
		time.Sleep(second)
		equal(e, "the delayed one", payloads(waiting.returns(nil)), "d1")
	}},
}

var putWaitCases = []testCase{
	{"SeveralRooms", "it waits for it", func(e *env) {
		all := []options{{Capacity: 3}, {KeyCapacity: 3}, {Capacity: 5, KeyCapacity: 3}}
		e.each(all, func(q *queue) {
			q.put("a1 a2 a3")
			puts := []*call[task.ID]{q.putting("a4"), q.putting("a5"), q.putting("a6"), q.putting("a7")}
			q.truncate()
			for _, put := range puts[:3] {
				put.returns(nil)
			}
			puts[3].waits()
		})
	}},
	{"RoomForOthers", "it waits for it", func(e *env) {
		q := e.open(options{Capacity: 4, KeyCapacity: 2})
		id := q.put("a1")[0]
		q.put("x1 y1 z1", in(task.Member))
		one, two := q.putting("a2"), q.putting("b1")
		blocked, other := q.putting("a3"), q.putting("b2")
		q.cancel()
		one.returns(nil)
		two.returns(nil)
		blocked.waits()
		other.returns(nil)
		q.remove(id)
		blocked.returns(nil)
	}},
	{"InRounds", "Waiting calls are admitted in rounds by key", func(e *env) {
		q := e.open(options{Capacity: 1})
		q.put("z1")
		l := q.first("z1")
		for _, name := range []string{"a1", "a2", "a3", "a4", "b1"} {
			q.putting(name).waits()
		}
		l.ack()
		var order []string
		for i := range 5 {
			synctest.Wait()
			equal(e, "WaitingPut", q.stats().WaitingPut, 4-i)
			t, err := q.Take(ctx)
			e.ok(err)
			e.ok(t.Ack(ctx))
			order = append(order, t.Payload)
		}
		if !slices.Contains(order[:3], "b1") {
			e.Fatalf("admitted in the order %v; b1 should not be behind a3", order)
		}
	}},
	{"BlockedIsRefused", "it waits for it", func(e *env) {
		q := e.open(options{KeyCapacity: 1})
		id := q.put("a1")[0]
		one := begin(e, func() (task.ID, error) { return q.PutWait(ctx, "a", "a2", unique) })
		two := q.putting("a3")
		q.one("b1", unique)
		q.remove(id)
		one.returns(task.ErrDuplicate)
		q.state(task.Ready, two.returns(nil))
	}},
	{"CancelledMeanwhile", "A context that ends loses nothing.", func(e *env) {
		e.each([]options{{Capacity: 1}, {KeyCapacity: 1}}, func(q *queue) {
			for range 100 {
				id := q.put("a1")[0]
				gone, cancel := context.WithCancel(ctx)
				one := begin(e, func() (task.ID, error) {
					return q.PutWait(gone, "a", "a2", task.PutOptions{})
				})
				two := q.putting("a3")
				go cancel()
				q.remove(id)
				if one.over(); one.err == nil {
					two.waits()
					q.first("a2").ack()
				} else {
					e.is(one.err, context.Canceled)
					equal(e, "id", one.value, 0)
				}
				two.returns(nil)
				q.order("a3")
			}
		})
	}},
	{"Refused", "see also [ErrInvalid], [ErrDuplicate], [ErrGroupCancelled]", func(e *env) {
		q := e.open(options{Capacity: 1})
		begin(e, func() (task.ID, error) {
			return q.PutWait(ctx, "a", "a1", task.PutOptions{Priority: task.MaxPriority + 1})
		}).returns(task.ErrInvalid)
	}},
}
