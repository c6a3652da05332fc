package storetest

import (
	"context"
	"errors"
	"testing/synctest"
	"time"

	"github.com/fairq/fairq/task"
)

// withTTR is for tasks whose leases last ten seconds.
var withTTR = task.PutOptions{TTR: 10 * second}

var leaseCases = []testCase{
	{
		"OnTime", "An expired lease is lost for good, even if no consumer " +
			"has taken the task since. ... One consumer at a time holds a task, while its lease lasts.",
		func(e *env) {
			q := e.open()
			id := q.one("a1", withTTR)
			start, l := time.Now(), q.first("a1")
			equal(e, "TTR", l.Info().TTR, 10*second)
			e.at("end of the lease", l.Info().Until, start, 10*second)
			time.Sleep(10*second - time.Millisecond)
			l.holds()
			q.consumer(task.Filter{}).none()
			time.Sleep(time.Millisecond)
			l.lost(q)
			q.state(task.Ready, id)
			equal(e, "losses", q.stats().Losses, 1)
			equal(e, "consumer", q.peek(id).Info().Consumer, "")
		},
	},
	{
		"HandedOver", "After its end another consumer can take the task. ... extends the lease by d",
		func(e *env) {
			q, start := e.open(), time.Now()
			q.put("a1 b1 c1", withTTR)
			l := q.takes("a1 b1 c1")
			l[0].touch(second)
			l[2].touch(2 * second)
			w, take := q.watch(ctx), q.consumer(kinds("")).taking()
			time.Sleep(15 * second)
			events := w.saw("ttr b, take b, ttr a, ttr c")
			for i, after := range []time.Duration{10 * second, 10 * second, 11 * second, 12 * second} {
				e.at("event", events[i].Time, start, after)
			}
			next := got(take, "b1")
			equal(e, "attempts", next.Attempts, 2)
			l[1].lost(q)
		},
	},
	{"NoTTR", "or 0 there too, means that a lease lasts until its " +
		"consumer is closed or gone", func(e *env) {
		q := e.open()
		q.put("a1")
		l := q.first("a1")
		time.Sleep(ages)
		w := q.watch(ctx)
		e.is(l.Touch(ctx, second), task.ErrInvalid)
		l.holds()
		equal(e, "end of the lease", l.Info().Until, time.Time{})
		w.saw("")
		equal(e, "touches", q.stats().Touches, 0)
		l.ack()
		e.is(l.Touch(ctx, second), task.ErrLeaseLost)
	}},
	{"Default", "0 means Options.TTR; negative, or 0 there too, " +
		"means that a lease lasts", func(e *env) {
		q := e.open(options{TTR: second})
		q.put("a1")
		q.one("b1", withTTR)
		q.one("c1", task.PutOptions{TTR: -1})
		l := q.takes("a1 b1 c1")
		time.Sleep(second)
		l[0].lost(q)
		l[1].holds()
		time.Sleep(ages)
		l[1].lost(q)
		l[2].ack()
	}},
	{"ManyAtOnce", "Changes that are due at a time happen at that time ... At its end the task " +
		"leaves the queue", func(e *env) {
		q := e.open()
		n := len(q.many(500*few(5), task.PutOptions{TTR: 10 * second, TTL: 20 * second}))
		var last *task.Task[string]
		for taken := 0; taken < n; {
			more, err := q.TakeBatch(ctx, min(task.MaxBatch, n-taken))
			e.ok(err)
			taken += len(more)
			last = more[len(more)-1]
		}
		time.Sleep(10 * second)
		e.is(last.Touch(ctx, 0), task.ErrLeaseLost)
		synctest.Wait()
		q.counts(n, 0, 0, 0, 0)
		time.Sleep(10 * second)
		q.none()
		q.gone(last.ID)
		synctest.Wait()
		q.counts(0, 0, 0, 0, 0)
	}},
	{"Context", "At the end of the lease its cause is [ErrLeaseLost], and also [ErrDeleted] if " +
		"another call has removed the task.", func(e *env) {
		q := e.open()
		q.one("b1", withTTR)
		begin := func(l *lease) context.Context {
			c, cancel := l.Context(ctx)
			e.Cleanup(cancel)
			e.ok(c.Err())
			return c
		}
		ended := func(how string, c context.Context) {
			e.Helper()
			synctest.Wait()
			if cause := context.Cause(c); !errors.Is(cause, task.ErrLeaseLost) {
				e.Fatalf("the cause after %s is: %v", how, cause)
			}
		}
		c := begin(q.first("b1"))
		time.Sleep(10*second - time.Millisecond)
		e.ok(c.Err())
		time.Sleep(time.Millisecond)
		ended("TTR", c)
		q.truncate()
		q.put("a1")
		l := q.first("a1")
		c = begin(l)
		q.remove(l.ID)
		ended("Delete", c)
		late, cancel := l.Context(ctx)
		defer cancel()
		for _, c := range []context.Context{c, late} {
			e.is(context.Cause(c), task.ErrDeleted)
			e.is(context.Cause(c), task.ErrLeaseLost)
		}
		for name := range settled {
			q.put("c1")
			l := q.first("c1")
			c := begin(l)
			e.ok(ends(l.Task, 0)[name](ctx))
			ended(name, c)
			q.truncate()
		}
	}},
}

// wasResumed checks that nothing can be done with a consumer that somebody else has resumed.
func (c *consumer) wasResumed() {
	c.e.Helper()
	_, _, tryErr := c.TryTake(ctx)
	_, takeErr := c.Take(ctx)
	_, batchErr := c.TakeBatch(ctx, 10)
	for _, err := range []error{
		tryErr, takeErr, batchErr, c.ReleaseAll(ctx), c.Disconnect(ctx), c.Close(ctx),
	} {
		c.e.is(err, task.ErrResumed)
		c.e.is(err, task.ErrLeaseLost)
	}
}

var consumerCases = []testCase{
	{"Close", "hands back all tasks that the consumer holds, and ends it; " +
		"the attempts do not count ... Waiting and later calls return [ErrClosed].", func(e *env) {
		q := e.open()
		q.put("a1 b1 c1 a2", task.PutOptions{MaxAttempts: 1})
		c := q.consumer(task.Filter{})
		l := c.takes("a1 b1")
		other := q.first("c1")
		take := q.consumer(kinds("none"))
		waits := take.taking()
		take.close()
		waits.returns(task.ErrClosed)
		c.close()
		for i := range l {
			l[i].lost(q)
			equal(e, "attempts", q.peek(l[i].ID).Attempts, 0)
		}
		other.holds()
		equal(e, "releases and losses", [2]uint64{q.stats().Releases, q.stats().Losses}, [2]uint64{2, 0})
		c.close()
		_, _, err := c.TryTake(ctx)
		e.is(err, task.ErrClosed)
		e.is(errOf(c.Take(ctx)), task.ErrClosed)
		e.is(errOf(c.TakeBatch(ctx, 1)), task.ErrClosed)
		q.order("a1 b1 a2")
	}},
	{"Grace", "ends the consumer, but hands its tasks back only after Options.Grace", func(e *env) {
		q := e.open(options{Grace: 10 * second})
		q.put("a1 b1 c1")
		c := q.consumer(task.Filter{})
		l := c.takes("a1 b1")
		c.disconnect()
		e.is(errOf(c.Take(ctx)), task.ErrClosed)
		time.Sleep(10*second - time.Millisecond)
		l[0].holds()
		time.Sleep(time.Millisecond)
		q.counts(3, 0, 0, 0, 0)
		l[0].lost(q)
		equal(e, "losses", q.stats().Losses, 2)
		q.order("c1 a1 b1")
	}},
	{
		"Resume", "returns the consumer of that id, which has disconnected ... returns the consumer " +
			"of that id, which has disconnected or whose process has died, and the tasks that it holds",
		func(e *env) {
			q := e.open()
			q.put("a1 b1 c1")
			c, idle := q.consumer(task.Filter{}), q.consumer(task.Filter{})
			old := c.takes("a1 b1")
			q.first("c1")
			c.disconnect()
			idle.disconnect()
			time.Sleep(30*second - time.Millisecond)
			q.resume(idle.ID(), "")
			again, l := q.resume(c.ID(), "a1 b1")
			equal(e, "id", again.ID(), c.ID())
			time.Sleep(ages)
			l[0].ack()
			old[0].lost(q)
			q.put("d1")
			again.first("d1")
			again.close()
			l[1].lost(q)
			q.order("b1 d1")
		},
	},
	{"ResumeOfOneInUse", "calls of its Consumer change nothing and return " +
		"[ErrResumed], unless that is closed", func(e *env) {
		q := e.open()
		q.put("a1 b1")
		old := q.consumer(task.Filter{})
		oldLeases := old.takes("a1 b1")
		c, cancel := oldLeases[0].Context(ctx)
		defer cancel()
		take := old.taking()
		again, l := q.resume(old.ID(), "a1 b1")
		take.returns(task.ErrResumed)
		e.is(context.Cause(c), task.ErrLeaseLost)
		old.wasResumed()
		oldLeases[1].lost(q)
		q.put("c1")
		again.first("c1")
		time.Sleep(ages)
		l[0].ack()
		again.close()
		old.wasResumed()
		l[1].lost(q)
		q.order("b1 c1")
	}},
}
