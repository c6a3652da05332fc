package storetest

import (
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

// by is for tasks that are of no use any more after some time.
func by(d time.Duration) task.PutOptions { return task.PutOptions{Deadline: time.Now().Add(d)} }

var deadlineCases = []testCase{
	{"Delayed", "whatever its delays", func(e *env) {
		q := e.open(options{Capacity: 1})
		o := by(10 * second)
		o.Delay = 20 * second
		o.UniqueKey = "x"
		id := q.one("a1", o)
		put, take, wait := q.putting("b1"), q.taking(), q.waiting()
		time.Sleep(10*second - time.Millisecond)
		q.state(task.Delayed, id)
		time.Sleep(time.Millisecond)
		put.returns(nil)
		wait.returns(task.ErrExpired)
		got(take, "b1").ack()
		o = by(10 * second)
		o.Delay = 5 * second
		id = q.one("a2", o)
		time.Sleep(5 * second)
		q.first("a2").snooze(2 * second)
		time.Sleep(2 * second)
		q.first("a2").release(4 * second)
		put = q.putting("b2")
		time.Sleep(3*second - time.Millisecond)
		q.state(task.Delayed, id)
		put.waits()
		time.Sleep(time.Millisecond)
		put.returns(nil)
		time.Sleep(ages)
		q.order("b2")
	}},
	{"Sooner", "If it has both, the earlier one counts.", func(e *env) {
		q, start := e.open(options{TTL: 20 * second}), time.Now()
		a, b := q.one("a1", by(30*second)), q.one("b1", by(10*second))
		e.at("end of life", q.peek(a).Info().Expires, start, 20*second)
		e.at("end of life", q.peek(b).Info().Expires, start, 10*second)
		l := q.takes("a1 b1")
		l[0].release(15 * second)
		l[1].release(second)
		e.at("end of life", q.peek(a).Info().Expires, start, 30*second)
		e.at("end of life", q.peek(b).Info().Expires, start, 10*second)
		time.Sleep(10 * second)
		q.gone(b)
		time.Sleep(10 * second)
		q.state(task.Ready, a)
		time.Sleep(10*second - time.Millisecond)
		q.state(task.Ready, a)
		time.Sleep(time.Millisecond)
		q.gone(a)
	}},
	{"Over", "A deadline in the past is no error: the task is put and expires.", func(e *env) {
		q, start := e.open(), time.Now()
		w := q.watch(ctx)
		take := q.taking()
		for n, o := range []task.PutOptions{
			{},
			{Delay: second},
			{Group: "g"},
			{Group: "g", Role: task.AtEnd},
			{TTL: second, Priority: 7, Kind: "k"},
		} {
			for _, o.Deadline = range []time.Time{
				start, start.Add(-1), start.Add(-time.Hour), time.Unix(0, 0),
			} {
				o.UniqueKey = "x"
				q.gone(q.one("a1", o))
				e.is(q.Wait(ctx, "x"), task.ErrExpired)
				evs := w.saw("put a, ttl a")
				e.at("end", evs[1].Time, start, 0)
				if !evs[0].Task.Deadline.Equal(o.Deadline) {
					e.Fatalf("deadline: %v; it should be %v", evs[0].Task.Deadline, o.Deadline)
				}
			}
			equal(e, "expiries", q.stats().Expiries, uint64(4*n+4))
		}
		e.is(q.StartGroup(ctx, "g"), task.ErrNotFound)
		time.Sleep(time.Minute - time.Millisecond)
		e.is(q.Wait(ctx, "x"), task.ErrExpired)
		take.waits()
		q.put("b1")
		got(take, "b1")
	}},
	{"OverInBatch", "A task whose deadline is over needs room like any other, and is gone " +
		"before the next one is put.", func(e *env) {
		q := e.open(options{Capacity: 1})
		over := task.Entry[string]{Key: "a", Payload: "a1", Options: by(-second)}
		ids, err := q.PutBatch(ctx, []task.Entry[string]{over, over, {Key: "b", Payload: "b1"}})
		e.ok(err)
		equal(e, "tasks put", len(ids), 3)
		q.gone(ids[:2]...)
		q.refuses("a1", over.Options, fairq.ErrFull)
		q.order("b1")
	}},
	{"Far", "a deadline must be before the year 10,000", func(e *env) {
		q := e.open()
		far := time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC)
		for _, tooFar := range []time.Time{
			far.Add(time.Microsecond), time.Date(64_273, 1, 1, 0, 0, 0, 0, time.UTC),
			time.Date(300_000, 1, 1, 0, 0, 0, 0, time.UTC),
			time.Unix(1<<60, 0), time.Unix(1<<62, 0),
		} {
			q.refuses("a1", task.PutOptions{Deadline: tooFar}, task.ErrInvalid)
		}
		id := q.one("a1", task.PutOptions{Deadline: far})
		q.gone(q.one("b1", task.PutOptions{Deadline: time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC)}))
		for _, got := range []time.Time{q.peek(id).Info().Deadline, q.peek(id).Info().Expires} {
			if !got.Equal(far) {
				e.Fatalf("deadline: %v; it should be %v", got, far)
			}
		}
		time.Sleep(ages)
		q.first("a1").snooze(second)
		time.Sleep(second)
		q.order("a1")
	}},
}
