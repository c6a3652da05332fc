package storetest

import (
	"context"
	"testing/synctest"
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
		q.one("a1", withTTR)
		l := c.first("a1")
		time.Sleep(withTTR.TTR)
		q.put("b1")
		before := q.stats()
		ok, err := c.AckAndTake(ctx, l.Task, new(task.Task[string]))
		e.is(err, task.ErrLeaseLost)
		equal(e, "ok", ok, false)
		equal(e, "Stats", q.stats(), before)
		gone, cancel := context.WithCancel(ctx)
		cancel()
		l = c.first("a1")
		_, err = c.AckAndTake(gone, l.Task, new(task.Task[string]))
		e.is(err, context.Canceled)
		l.holds()
		_, err = e.openIn(e.store, "other").consumer(task.Filter{}).AckAndTake(ctx, l.Task,
			new(task.Task[string]))
		e.is(err, task.ErrInvalid)
		l.holds()
		_, err = c.AckAndTake(ctx, q.peek(l.ID), new(task.Task[string]))
		e.is(err, task.ErrLeaseLost)
		q.order("b1")
	}},
	{"AckAndTakeBehindOthers", "no task is ready, other callers wait for one", func(e *env) {
		q := e.open(options{MaxInFlightPerKey: 1})
		c := q.consumer(task.Filter{})
		q.put("a1 a2 a3")
		l := c.first("a1")
		other := q.taking()
		other.waits()
		c.ackAndTakeNone(l)
		got(other, "a2").ack()
		q.order("a3")
	}},
	{"AckAndTakeIsClosed", "or TryTake would return an error", func(e *env) {
		q := e.open()
		c := q.consumer(task.Filter{})
		q.put("a1 a2 a3")
		l := q.first("a1")
		c.close()
		c.ackAndTakeNone(l)
		l = q.first("a2")
		e.ok(q.Pause(ctx))
		q.consumer(task.Filter{}).ackAndTakeNone(l)
		e.ok(q.Resume(ctx))
		q.order("a3")
	}},
	{"State", "it is 0 if the task is gone", func(e *env) {
		q := e.open()
		settled := func(o task.PutOptions, want task.State, end func(*lease)) {
			e.Helper()
			q.one("a1", o)
			if o.Group != "" {
				q.start(o.Group)
			}
			l := q.first("a1")
			end(l)
			l.now(q, want)
			_, err := q.Truncate(ctx)
			e.ok(err)
		}
		for name, end := range settle {
			e.Log(name)
			settled(task.PutOptions{}, map[string]task.State{
				"Release": task.Ready, "Snooze": task.Ready, "Return": task.Ready, "Fail": task.Ready,
				"Bury": task.Buried, "later": task.Delayed,
			}[name], end)
		}
		last := task.PutOptions{MaxAttempts: 1}
		for name, want := range map[string]task.State{
			"Release": task.Buried, "Fail": task.Buried, "Snooze": task.Ready, "Return": task.Ready,
		} {
			settled(last, want, settle[name])
		}
		for _, name := range []string{"Release", "Return", "Fail", "Bury"} {
			settled(task.PutOptions{TTL: second}, 0, func(l *lease) {
				time.Sleep(second)
				settle[name](l)
			})
			settled(in(task.Member), 0, func(l *lease) {
				q.cancel()
				settle[name](l)
			})
		}
	}},
	{"PriorityBuried", "A consumer may change Priority before a Release, Snooze, Return, Fail, " +
		"HoldKey, Repeat or Bury", func(e *env) {
		q := e.open()
		q.put("a1 b1")
		l := q.first("a1")
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
		for range 3 {
			q.first("a1").fail(errOops)
			l := q.first("a1")
			equal(e, "attempts", l.Attempts, 2)
			e.ok(l.Repeat(ctx, time.Hour))
			l.now(q, task.Delayed)
			equal(e, "attempts", q.peek(id).Attempts, 0)
			equal(e, "error", q.peek(id).Info().Err, nil)
			q.none()
			wait.waits()
			time.Sleep(time.Hour)
		}
		q.first("a1").fail(errOops)
		q.first("a1").fail(errOops)
		q.state(task.Buried, id)
		e.is(q.peek(id).Repeat(ctx, 0), task.ErrLeaseLost)
		q.put("b1")
		l := q.first("b1")
		e.is(l.Repeat(ctx, -1), task.ErrInvalid)
		e.ok(l.Repeat(ctx, 0))
		l.now(q, task.Ready)
		q.order("b1")
	}},
	{"GroupCancelled", "When the group is cancelled, the cause is [ErrGroupCancelled]", func(e *env) {
		q := e.open()
		q.put("a1 b1", in(task.Member))
		q.start("g")
		q.put("d1")
		l := q.takes("a1 b1 d1")
		q.one("c1", in(task.Member))
		contexts := make([]context.Context, len(l))
		for i := range l {
			c, cancel := l[i].Context(ctx)
			defer cancel()
			contexts[i] = c
		}
		w := q.watch(ctx)
		q.cancel()
		w.saw("cancel a, cancel b, delete c")
		late, cancel := l[0].Context(ctx)
		defer cancel()
		synctest.Wait()
		e.is(context.Cause(contexts[0]), task.ErrGroupCancelled)
		e.is(context.Cause(contexts[1]), task.ErrGroupCancelled)
		e.is(context.Cause(late), task.ErrGroupCancelled)
		e.ok(context.Cause(contexts[2]))
		l[0].holds()
		l[0].ack()
		l[1].release(0)
		l[1].now(q, 0)
		q.counts(0, 0, 1, 0, 0)
	}},
	{"WrongPriority", "is returned for an invalid argument or option", func(e *env) {
		q := e.open()
		q.put("a1")
		l := q.first("a1")
		for _, priority := range []int{-1, task.MaxPriority + 1} {
			l.Priority = priority
			for _, end := range []func(context.Context, error) error{
				l.Bury, func(ctx context.Context, err error) error { return l.Fail(ctx, err, 0) },
			} {
				e.is(end(ctx, errOops), task.ErrInvalid)
			}
			e.is(l.Snooze(ctx, 0), task.ErrInvalid)
			e.is(l.Release(ctx, 0), task.ErrInvalid)
		}
		l.ack()
		l.now(q, 0)
	}},
}
