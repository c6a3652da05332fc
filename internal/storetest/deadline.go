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
		o.Delay, o.UniqueKey = 20*second, "x"
		id := q.one("a1", o)
		put, take, wait := q.putting("b1"), q.taking(), q.waiting()
		time.Sleep(10*second - time.Millisecond)
		q.state(task.Delayed, id)
		time.Sleep(time.Millisecond)
		put.returns(nil)
		wait.returns(task.ErrExpired)
		got(take, "b1").ack()
		id = q.one("a2", by(5*second))
		q.first("a2").snooze(2 * second)
		time.Sleep(2 * second)
		q.first("a2").release(4 * second)
		time.Sleep(3*second - time.Millisecond)
		q.state(task.Delayed, id)
		time.Sleep(time.Millisecond)
		q.gone(id)
	}},
	{"Sooner", "If it has both, the earlier one counts.", func(e *env) {
		q := e.open(options{TTL: 20 * second})
		a, b := q.one("a1", by(30*second)), q.one("b1", by(10*second))
		check := func(ofA time.Duration) {
			e.Helper()
			e.at("end of life", q.peek(a).Info().Expires, q.peek(a).Info().Created, ofA)
			e.at("end of life", q.peek(b).Info().Expires, q.peek(b).Info().Created, 10*second)
		}
		check(20 * second)
		l := q.takes("a1 b1")
		l[0].release(15 * second)
		l[1].release(second)
		check(30 * second)
		time.Sleep(10 * second)
		q.gone(b)
		time.Sleep(20*second - time.Millisecond)
		q.state(task.Ready, a)
		time.Sleep(time.Millisecond)
		q.gone(a)
	}},
	{
		"Over", "A deadline in the past is no error: the task is put and expires. ... A task whose " +
			"deadline is over needs room like any other, and is gone before the next one is put.",
		func(e *env) {
			q, start := e.open(options{Capacity: 1}), time.Now()
			w := q.watch(ctx)
			for _, o := range []task.PutOptions{
				{}, {Delay: second}, in(task.Member), in(task.AtEnd), {TTL: second, Priority: 7, Kind: "k"},
			} {
				for _, o.Deadline = range []time.Time{start, start.Add(-time.Hour), time.Unix(0, 0)} {
					o.UniqueKey = "x"
					q.gone(q.one("a1", o))
					e.is(q.Wait(ctx, "x"), task.ErrExpired)
					evs := w.saw("put a, ttl a")
					e.at("end", evs[1].Time, start, 0)
					e.at("deadline", evs[0].Task.Deadline, o.Deadline, 0)
				}
			}
			equal(e, "expiries", q.stats().Expiries, 15)
			e.is(q.StartGroup(ctx, "g"), task.ErrNotFound)
			q.many(2, by(-second))
			q.put("b1")
			q.refuses("a1", by(-second), fairq.ErrFull)
		},
	},
	{"Far", "a deadline must be before the year 10,000", func(e *env) {
		q := e.open()
		far := time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC)
		for _, tooFar := range []time.Time{
			far.Add(time.Microsecond), far.AddDate(290_000, 0, 0), time.Unix(1<<60, 0), time.Unix(1<<62, 0),
		} {
			q.refuses("a1", task.PutOptions{Deadline: tooFar}, task.ErrInvalid)
		}
		id := q.one("a1", task.PutOptions{Deadline: far})
		q.gone(q.one("b1", task.PutOptions{Deadline: time.Time{}.AddDate(0, 0, 1)}))
		e.at("deadline", q.peek(id).Info().Deadline, far, 0)
		e.at("end of life", q.peek(id).Info().Expires, far, 0)
		time.Sleep(ages)
		q.first("a1").snooze(second)
		time.Sleep(second)
		q.order("a1")
	}},
}
