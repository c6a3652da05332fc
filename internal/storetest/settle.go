package storetest

import (
	"context"
	"time"

	"github.com/fairq/fairq/task"
)

// now checks the state of a task after it was settled, 0 if it is gone.
func (l *lease) now(q *queue, want task.State) {
	l.e.Helper()
	equal(l.e, "state, as it was told", l.Info().State, want)
	if want == 0 {
		q.gone(l.ID)
	} else {
		q.state(want, l.ID)
	}
}

// ackAndTakeNone acks a task, and checks that no other is taken by the same call.
func (c *consumer) ackAndTakeNone(done *lease) {
	c.e.Helper()
	ok, err := c.AckAndTake(ctx, done.Task, new(task.Task[string]))
	c.e.ok(err)
	equal(c.e, "whether a task was taken", ok, false)
	equal(c.e, "state, as it was told", done.Info().State, 0)
}

var settleCases = []testCase{
	{"AckAndTakeByALostLease", "If it returns an error, nothing has happened.", func(e *env) {
		q := e.open()
		c := q.consumer(task.Filter{})
		refused := func(c *consumer, ctx context.Context, t *task.Task[string], want error) {
			e.Helper()
			before := q.stats()
			ok, err := c.AckAndTake(ctx, t, new(task.Task[string]))
			e.is(err, want)
			equal(e, "ok", ok, false)
			equal(e, "Stats", q.stats(), before)
		}
		q.one("a1", withTTR)
		l := c.first("a1")
		time.Sleep(withTTR.TTR)
		q.put("b1")
		refused(c, ctx, l.Task, task.ErrLeaseLost)
		gone, cancel := context.WithCancel(ctx)
		cancel()
		l = c.first("a1")
		refused(c, gone, l.Task, context.Canceled)
		refused(e.openIn(e.store, "other").consumer(task.Filter{}), ctx, l.Task, task.ErrInvalid)
		refused(c, ctx, q.peek(l.ID), task.ErrLeaseLost)
		l.holds()
	}},
	{"AckAndTakeNone", "no task is ready, other callers wait for one ... or TryTake would return " +
		"an error", func(e *env) {
		q := e.open(serial)
		c := q.consumer(task.Filter{})
		q.put("a1 a2 a3 a4")
		l := c.first("a1")
		other := q.taking()
		other.waits()
		c.ackAndTakeNone(l)
		l = got(other, "a2")
		c.close()
		c.ackAndTakeNone(l)
		l = q.first("a3")
		e.ok(q.Pause(ctx))
		q.consumer(task.Filter{}).ackAndTakeNone(l)
		e.ok(q.Resume(ctx))
		q.order("a4")
	}},
	{"State", "it is 0 if the task is gone", func(e *env) {
		q := e.open()
		settles := func(
			name string, o task.PutOptions, between func(), d time.Duration, want task.State,
		) {
			e.Helper()
			e.Log(name)
			q.one("a1", o)
			if o.Group != "" {
				q.start(o.Group)
			}
			l := q.first("a1")
			between()
			e.ok(ends(l.Task, d)[name](ctx))
			l.now(q, want)
			q.truncate()
		}
		none := func() {}
		settles("Release", task.PutOptions{}, none, time.Hour, task.Delayed)
		for name, want := range settled {
			settles(name, task.PutOptions{}, none, 0, want)
			settles(name, task.PutOptions{TTL: second}, func() { time.Sleep(second) }, 0, 0)
			settles(name, in(task.Member), q.cancel, 0, 0)
			if name == "Release" || name == "Fail" {
				want = task.Buried
			}
			settles(name, task.PutOptions{MaxAttempts: 1}, none, 0, want)
		}
	}},
	{"Priority", "A consumer may change Priority before a Release, Snooze, Return, Fail, " +
		"HoldKey, Repeat or Bury ... is returned for an invalid argument or option", func(e *env) {
		q := e.open()
		q.put("a1 b1")
		l := q.first("a1")
		for _, l.Priority = range []int{-1, task.MaxPriority + 1} {
			for _, name := range []string{"Release", "Snooze", "Fail", "Bury"} {
				e.is(ends(l.Task, 0)[name](ctx), task.ErrInvalid)
			}
		}
		l.Priority = task.MaxPriority
		l.bury()
		equal(e, "priority", q.peek(l.ID).Priority, task.MaxPriority)
		q.kick(1, 1)
		q.order("b1 a1")
	}},
	{"Repeat", "like a new task, with all its attempts and without an " +
		"error, but with the same id", func(e *env) {
		q := e.open(options{MaxAttempts: 2})
		id := q.one("a1", unique)
		wait := q.waiting()
		q.first("a1").fail(errOops)
		l := q.first("a1")
		e.is(l.Repeat(ctx, -1), task.ErrInvalid)
		e.ok(l.Repeat(ctx, time.Hour))
		l.now(q, task.Delayed)
		equal(e, "attempts and error", [2]any{q.peek(id).Attempts, q.peek(id).Info().Err},
			[2]any{0, (*task.Error)(nil)})
		wait.waits()
		l = q.goesOn("a1", time.Hour)
		e.ok(l.Repeat(ctx, 0))
		q.order("a1")
	}},
	{"GroupCancelled", "When the group is cancelled, the cause is [ErrGroupCancelled]", func(e *env) {
		q := e.open()
		q.put("a1", in(task.Member))
		q.start("g")
		q.put("d1")
		l := q.takes("a1 d1")
		q.one("c1", in(task.Member))
		c, cancel := l[0].Context(ctx)
		defer cancel()
		other, cancel := l[1].Context(ctx)
		defer cancel()
		w := q.watch(ctx)
		q.cancel()
		w.saw("cancel a, delete c")
		late, cancel := l[0].Context(ctx)
		defer cancel()
		e.is(context.Cause(c), task.ErrGroupCancelled)
		e.is(context.Cause(late), task.ErrGroupCancelled)
		e.ok(context.Cause(other))
		l[0].holds()
		l[0].release(0)
		l[0].now(q, 0)
	}},
}
