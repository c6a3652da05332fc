package storetest

import (
	"context"
	"testing/synctest"
	"time"

	"github.com/fairq/fairq/task"
)

// now checks in which state a task is that was just settled, 0 if it is gone.
func (l *lease) now(q *queue, want task.State) {
	l.e.Helper()
	equal(l.e, "state, as it was told", l.Info().State, want)
	if want == 0 {
		q.gone(l.ID)
	} else {
		q.state(want, l.ID)
	}
}

// ackAndTake acks a task and takes the next one by the same call, and checks which that is.
func (c *consumer) ackAndTake(done *lease, want string) *lease {
	c.e.Helper()
	t := new(task.Task[string])
	ok, err := c.AckAndTake(ctx, done.Task, t)
	c.e.ok(err)
	equal(c.e, "whether a task was taken", ok, want != "")
	equal(c.e, "state, as it was told", done.Info().State, 0)
	if ok {
		equal(c.e, "the next task", t.Payload, want)
	}
	return &lease{t, c.e}
}

var settleCases = []testCase{
	{"AckAndTake", "AckAndTake is done.Ack, and then TryTake", func(e *env) {
		q := e.open()
		c, w := q.consumer(task.Filter{}), q.watch(ctx)
		q.put("a1 b1")
		l := c.ackAndTake(c.first("a1"), "b1")
		equal(e, "Attempts and State", [2]int{l.Attempts, int(l.Info().State)}, [2]int{1, int(task.Taken)})
		c.ackAndTake(l, "")
		q.counts(0, 0, 0, 0, 0)
		w.saw("put a, put b, take a, ack a, take b, ack b")
	}},
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
		_, err = e.openIn(e.store, "other").consumer(task.Filter{}).AckAndTake(ctx, l.Task, new(task.Task[string]))
		e.is(err, task.ErrInvalid)
		l.holds()
		_, err = c.AckAndTake(ctx, q.peek(l.ID), new(task.Task[string]))
		e.is(err, task.ErrLeaseLost)
		q.order("b1")
	}},
	{"AckAndTakeWhatItFrees", "done.Ack, and then TryTake", func(e *env) {
		q := e.open(options{MaxInFlightPerKey: 1})
		c := q.consumer(task.Filter{})
		q.put("a1 a2")
		l := c.ackAndTake(c.first("a1"), "a2")
		q.one("b1", in(task.Member))
		q.one("b2", in(task.AtEnd))
		q.start("g")
		l = c.ackAndTake(l, "b1")
		c.ackAndTake(l, "b2")
	}},
	{"AckAndTakeFilters", "TryTake", func(e *env) {
		q := e.open()
		c := q.consumer(kinds("x"))
		l := c.taking()
		q.one("a1", kind("x"))
		q.one("a2", kind("y"))
		q.one("b1", kind("x"))
		c.ackAndTake(c.ackAndTake(got(l, "a1"), "b1"), "")
		q.order("a2")
	}},
	{"AckAndTakeBehindOthers", "ok is false; also if others wait for one", func(e *env) {
		q := e.open(options{MaxInFlightPerKey: 1})
		c := q.consumer(task.Filter{})
		q.put("a1 a2 a3")
		l := c.first("a1")
		other := q.taking()
		other.waits()
		c.ackAndTake(l, "")
		got(other, "a2").ack()
		q.order("a3")
	}},
	{"AckAndTakeIsClosed", "or if TryTake would return an error", func(e *env) {
		q := e.open()
		c := q.consumer(task.Filter{})
		q.put("a1 a2 a3")
		l := q.first("a1")
		c.close()
		c.ackAndTake(l, "")
		l = q.first("a2")
		e.ok(q.Pause(ctx))
		q.consumer(task.Filter{}).ackAndTake(l, "")
		e.ok(q.Resume(ctx))
		q.order("a3")
	}},
	{"State", "that is where the task is since, 0 if it is gone", func(e *env) {
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
				"Release": task.Ready, "Snooze": task.Ready, "Fail": task.Ready, "Bury": task.Buried, "later": task.Delayed,
			}[name], end)
		}
		last := task.PutOptions{MaxAttempts: 1}
		for name, want := range map[string]task.State{"Release": task.Buried, "Fail": task.Buried, "Snooze": task.Ready} {
			settled(last, want, settle[name])
		}
		for _, name := range []string{"Release", "Fail", "Bury"} {
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
	{"StateOfALostLease", "With a lost lease nothing can be changed.", func(e *env) {
		q := e.open()
		l := q.first(q.peek(q.one("a1", withTTR)).Payload)
		time.Sleep(10 * second)
		e.is(l.Release(ctx, 0), task.ErrLeaseLost)
		equal(e, "state", l.Info().State, task.Taken)
	}},
	{"Priority", "then that is the task's priority from now on", func(e *env) {
		for _, o := range []options{{}, {KeepPlace: true}, {MaxInFlightPerKey: 2}, {KeepPlace: true, MaxInFlightPerKey: 2}} {
			e.Logf("with %+v", o)
			q := e.openIn(e.store, "queue", o)
			q.put("a1 b1 a2")
			q.put("a3 b2", task.PutOptions{Priority: 1})
			l := q.first("a1")
			l.Priority = 1
			l.release(0)
			equal(e, "priority", q.peek(l.ID).Priority, 1)
			l = q.first("b1")
			l.Priority = 1
			l.fail(errOops)
			q.order("a2 a3 b2 a1 b1")
			q.one("c1", task.PutOptions{Priority: 7})
			q.one("c2", task.PutOptions{Priority: 7, MaxAttempts: 1})
			l = q.first("c1")
			l.Priority = 2
			l.snooze(second)
			last := q.first("c2")
			last.Priority = 1
			last.fail(errOops)
			last.now(q, task.Buried)
			time.Sleep(second)
			q.kick(1, 1)
			q.order("c2 c1")
			e.ok(q.Drop(ctx))
		}
	}},
	{"PriorityOfOthers", "It queues up there like new work, even without a delay and with KeepPlace.", func(e *env) {
		for _, o := range []options{{}, {KeepPlace: true}} {
			q := e.openIn(e.store, "queue", o)
			q.put("a1 a2 b1")
			l := q.takes("a1 b1")
			q.put("a3 c1", task.PutOptions{Priority: 1})
			for i := range l {
				l[i].Priority = 1
				l[i].release(0)
			}
			q.order("a2 a3 c1 b1 a1")
			e.ok(q.Drop(ctx))
		}
	}},
	{"PriorityBuried", "Priority may be changed before a Release, Snooze, Fail or Bury", func(e *env) {
		q := e.open()
		q.put("a1 b1")
		l := q.first("a1")
		l.Priority = task.MaxPriority
		l.bury()
		equal(e, "priority", q.peek(l.ID).Priority, task.MaxPriority)
		q.kick(1, 1)
		q.order("b1 a1")
	}},
	{"GroupCancelled", "It is also done when the group of the task is cancelled, with the cause [ErrGroupCancelled]", func(e *env) {
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
	{"WrongPriority", "is returned when an argument or an option makes no sense", func(e *env) {
		q := e.open()
		q.put("a1")
		l := q.first("a1")
		for _, priority := range []int{-1, task.MaxPriority + 1} {
			l.Priority = priority
			for _, end := range []func(context.Context, error) error{l.Bury, func(ctx context.Context, err error) error { return l.Fail(ctx, err, 0) }} {
				e.is(end(ctx, errOops), task.ErrInvalid)
			}
			e.is(l.Snooze(ctx, 0), task.ErrInvalid)
			e.is(l.Release(ctx, 0), task.ErrInvalid)
		}
		l.ack()
		l.now(q, 0)
	}},
}
