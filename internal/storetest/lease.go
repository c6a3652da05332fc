package storetest

import (
	"context"
	"testing/synctest"
	"time"

	"github.com/fairq/fairq/task"
)

// withTTR is for tasks whose leases last ten seconds.
var withTTR = task.PutOptions{TTR: 10 * second}

var leaseCases = []testCase{
	{"OnTime", "An expired lease is lost for good, even if no consumer " +
		"has taken the task since.", func(e *env) {
		q, start := e.open(), time.Now()
		id := q.one("a1", withTTR)
		equal(e, "TTR", q.peek(id).Info().TTR, 10*second)
		time.Sleep(second)
		l := q.first("a1")
		equal(e, "TTR", l.Info().TTR, 10*second)
		e.at("end of the lease", l.Info().Until, start, 11*second)
		time.Sleep(10*second - time.Millisecond)
		l.holds()
		q.state(task.Taken, id)
		q.none()
		time.Sleep(time.Millisecond)
		l.lost(q)
		q.state(task.Ready, id)
		equal(e, "losses", q.stats().Losses, 1)
		equal(e, "consumer", q.peek(id).Info().Consumer, "")
	}},
	{"HandedOver", "After its end another consumer can take the task.", func(e *env) {
		q, start := e.open(), time.Now()
		q.one("a1", withTTR)
		l := q.first("a1")
		take := q.consumer(task.Filter{}).taking()
		take.waits()
		time.Sleep(10 * second)
		next := got(take, "a1")
		e.at("taken", take.at, start, 10*second)
		equal(e, "attempts", next.Attempts, 2)
		l.lost(q)
		next.ack()
	}},
	{"TouchOne", "extends the lease by d", func(e *env) {
		q, start := e.open(), time.Now()
		q.put("a1 b1 c1 d1", withTTR)
		l := q.takes("a1 b1 c1 d1")
		l[0].touch(second)
		l[2].touch(2 * second)
		w := q.watch(ctx)
		time.Sleep(20 * second)
		events := w.saw("ttr b, ttr d, ttr a, ttr c")
		for i, after := range []time.Duration{10 * second, 10 * second, 11 * second, 12 * second} {
			e.at("event", events[i].Time, start, after)
		}
	}},
	{"NoTTR", "or 0 there too, means that a lease lasts until its " +
		"consumer is closed or gone", func(e *env) {
		q := e.open()
		q.put("a1")
		l := q.first("a1")
		equal(e, "end of the lease", l.Info().Until, time.Time{})
		time.Sleep(ages)
		w := q.watch(ctx)
		e.is(l.Touch(ctx, second), task.ErrInvalid)
		l.holds()
		equal(e, "end of the lease", l.Info().Until, time.Time{})
		w.saw("")
		equal(e, "touches", q.stats().Touches, 0)
		time.Sleep(time.Hour)
		q.none()
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
		time.Sleep(9 * second)
		l[1].lost(q)
		time.Sleep(ages)
		l[2].ack()
	}},
	{"ManyAtOnce", "Changes that are due at a time happen at that time", func(e *env) {
		q := e.open()
		var tasks []task.Entry[string]
		for range 500 * few(5) {
			tasks = append(tasks, task.Entry[string]{Key: "a", Payload: "a1", Options: withTTR})
		}
		_, err := q.PutBatch(ctx, tasks)
		e.ok(err)
		for range 2 {
			var taken []*task.Task[string]
			for len(taken) < len(tasks) {
				more, err := q.TakeBatch(ctx, min(task.MaxBatch, len(tasks)-len(taken)))
				e.ok(err)
				taken = append(taken, more...)
			}
			equal(e, "tasks taken", len(taken), len(tasks))
			time.Sleep(10 * second)
			e.is(taken[len(taken)-1].Touch(ctx, 0), task.ErrLeaseLost)
			e.is(taken[0].Touch(ctx, 0), task.ErrLeaseLost)
			q.counts(len(tasks), 0, 0, 0, 0)
		}
	}},
	{"Context", "At the end of the lease its cause is [ErrLeaseLost], and also [ErrDeleted] if " +
		"another call has removed the task.", func(e *env) {
		q := e.open()
		id := q.put("a1")[0]
		q.one("b1", withTTR)
		contexts := map[string]context.Context{}
		l := q.takes("a1 b1")
		begin := func(name string, l *lease) {
			c, cancel := l.Context(ctx)
			e.Cleanup(cancel)
			e.ok(c.Err())
			contexts[name] = c
		}
		ended := func(name string) {
			e.Helper()
			synctest.Wait()
			if contexts[name].Err() == nil {
				e.Fatalf("the context goes on after %s", name)
			}
			e.is(context.Cause(contexts[name]), task.ErrLeaseLost)
		}
		begin("Delete", l[0])
		begin("TTR", l[1])
		time.Sleep(10*second - time.Millisecond)
		e.ok(contexts["TTR"].Err())
		q.remove(id)
		ended("Delete")
		e.is(context.Cause(contexts["Delete"]), task.ErrDeleted)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		ended("TTR")
		q.order("b1")
		for name, end := range settle {
			q.put("c1")
			l := q.first("c1")
			begin(name, l)
			end(l)
			ended(name)
			_, err := q.Truncate(ctx)
			e.ok(err)
		}
		late, cancel := l[0].Context(ctx)
		defer cancel()
		e.is(context.Cause(late), task.ErrLeaseLost)
		e.is(context.Cause(late), task.ErrDeleted)
	}},
}

// wasResumed checks that nothing can be done with a consumer that somebody else has resumed.
func (c *consumer) wasResumed() {
	c.e.Helper()
	_, _, tryErr := c.TryTake(ctx)
	_, takeErr := c.Take(ctx)
	_, batchErr := c.TakeBatch(ctx, 10)
	for _, err := range []error{
		tryErr, takeErr, batchErr, c.ReleaseAll(ctx), c.Disconnect(ctx), c.Close(ctx), c.Close(ctx),
	} {
		c.e.is(err, task.ErrResumed)
		c.e.is(err, task.ErrLeaseLost)
	}
}

var consumerCases = []testCase{
	{"Close", "hands back all tasks that the consumer holds, and ends it; " +
		"the attempts do not count", func(e *env) {
		q := e.open()
		ids := q.put("a1 b1 c1 a2", task.PutOptions{MaxAttempts: 1})
		c := q.consumer(task.Filter{})
		l := c.takes("a1 b1")
		other := q.first("c1")
		c.close()
		for i := range l {
			l[i].lost(q)
			t := q.peek(ids[i])
			equal(e, "state and attempts", [2]int{int(t.Info().State), t.Attempts},
				[2]int{int(task.Ready), 0})
		}
		other.holds()
		equal(e, "releases and losses", [2]uint64{q.stats().Releases, q.stats().Losses}, [2]uint64{2, 0})
		q.order("a1 b1 a2")
	}},
	{"Closed", "Waiting and later calls return [ErrClosed].", func(e *env) {
		q := e.open()
		c := q.consumer(task.Filter{})
		take, other := c.taking(), q.taking()
		take.waits()
		c.close()
		take.returns(task.ErrClosed)
		other.waits()
		c.close()
		q.put("a1")
		_, err := c.Take(ctx)
		e.is(err, task.ErrClosed)
		_, _, err = c.TryTake(ctx)
		e.is(err, task.ErrClosed)
		_, err = c.TakeBatch(ctx, 1)
		e.is(err, task.ErrClosed)
		got(other, "a1")
	}},
	{"Grace", "ends the consumer, but hands its tasks back only after Options.Grace", func(e *env) {
		q := e.open(options{Grace: 10 * second})
		q.put("a1 b1 c1")
		c := q.consumer(task.Filter{})
		l := c.takes("a1 b1")
		take := q.consumer(task.Filter{Kinds: []string{"none"}}).taking()
		c.disconnect()
		_, err := c.Take(ctx)
		e.is(err, task.ErrClosed)
		time.Sleep(10*second - time.Millisecond)
		q.counts(1, 0, 2, 0, 0)
		l[0].holds()
		time.Sleep(time.Millisecond)
		q.counts(3, 0, 0, 0, 0)
		l[0].lost(q)
		equal(e, "losses", q.stats().Losses, 2)
		q.order("c1 a1 b1")
		take.waits()
	}},
	{"Resume", "returns the consumer of that id, which has disconnected or whose process has died, " +
		"and the tasks that it holds", func(e *env) {
		q := e.open()
		q.put("a1 b1 c1")
		c := q.consumer(task.Filter{})
		old := c.takes("a1 b1")
		q.first("c1")
		c.disconnect()
		time.Sleep(30*second - time.Millisecond)
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
	}},
	{"ResumeIdle", "returns the consumer of that id, which has disconnected", func(e *env) {
		q := e.open()
		q.put("a1")
		c, fresh := q.consumer(task.Filter{}), q.consumer(task.Filter{})
		c.first("a1").ack()
		c.disconnect()
		fresh.disconnect()
		time.Sleep(second)
		q.resume(c.ID(), "")
		q.resume(fresh.ID(), "")
	}},
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
		synctest.Wait()
		take.returns(task.ErrResumed)
		e.is(context.Cause(c), task.ErrLeaseLost)
		old.wasResumed()
		for i := range l {
			oldLeases[i].lost(q)
			l[i].holds()
		}
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
