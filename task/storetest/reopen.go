package storetest

import (
	"time"

	"github.com/fairq/fairq/task"
)

// reopen returns the store as another process would open it.
func (e *env) reopen() task.Store {
	e.Helper()
	e.reopened = true
	return e.reopener.Reopen(e.T)
}

// again closes the queue, and opens it as another process would.
func (q *queue) again(o ...options) *queue {
	q.e.Helper()
	store := q.e.reopen()
	q.close()
	return q.e.openIn(store, "queue", o...)
}

// kill ends the store as the end of its process would.
func (e *env) kill() {
	e.killed = true
	e.reopener.Kill(e.T)
}

var reopenCases = []testCase{
	{"Tasks", "The tasks stay in the store.", func(e *env) {
		q := e.open()
		ids, _ := q.everywhere()
		q.bury(ids[task.Taken])
		infos := map[task.ID]task.Info{}
		for _, id := range ids {
			infos[id] = q.peek(id).Info()
		}
		q = q.again()
		for id, want := range infos {
			got := q.peek(id).Info()
			e.at("created", got.Created, want.Created, 0)
			e.at("until", got.Until, want.Until, 0)
			got.Created, got.Until = want.Created, want.Until
			equal(e, "task", got, want)
		}
		q.counts(1, 1, 0, 2, 1)
		if id := q.put("a1")[0]; id <= ids[task.Held] {
			e.Fatalf("id %d after %d", id, ids[task.Held])
		}
		q.kick(1, 1)
		q.start("g")
		time.Sleep(time.Hour)
		q.order("r1 a1 b1 h1 d1")
	}},
	{"Metadata", toldEverywhere, func(e *env) {
		q := e.open()
		q.tagged("a1 a2")
		q.first("a1").fail(errOops)
		q = q.again()
		tells(e, "Take", q.first("a2").Task, q.first("a1").Task)
	}},
	{"Order", "within a priority keys are served in rounds", func(e *env) {
		q := e.open()
		q.put("a1 a2 a3 b1 b2")
		l := q.takes("a1 b1")
		l[1].ack()
		q.put("c1")
		q = q.again()
		q.order("a1 a2 b2 c1 a3")
	}},
	{"Account", paysLater, func(e *env) {
		o := options{Quantum: 10}
		q := e.open(o)
		q.costing(30, "a1")
		q.costing(10, "b1 b2 b3 b4")
		q.first("a1").ack()
		q = q.again(o)
		q.costing(10, "a2")
		q.order("b1 b2 b3 b4 a2")
	}},
	{"Time", "What has a time happens at that time", func(e *env) {
		q, start := e.open(), time.Now()
		q.one("a1", task.PutOptions{Delay: 10 * second})
		id := q.one("b1", task.PutOptions{TTL: 5 * second})
		q.one("c1", task.PutOptions{Delay: second})
		q = q.again()
		w := q.watch(ctx)
		take := q.consumer(upTo(0)).taking()
		got(take, "b1").bury()
		time.Sleep(20 * second)
		q.gone(id)
		q.order("c1 a1")
		events := w.saw("take b, bury b, delay c, ttl b, delay a, take c, ack c, take a, ack a")
		for i, after := range map[int]time.Duration{2: second, 3: 5 * second, 4: 10 * second} {
			e.at("event", events[i].Time, start, after)
		}
	}},
	{"TTR", "is how long a lease lasts", func(e *env) {
		q, start := e.open(), time.Now()
		id := q.one("a1", withTTR)
		c := q.consumer(task.Filter{})
		c.first("a1")
		c.disconnect()
		time.Sleep(second)
		q = q.again()
		q.state(task.Taken, id)
		take := q.taking()
		take.waits()
		time.Sleep(9 * second)
		got(take, "a1")
		e.at("taken", take.at, start, 10*second)
	}},
	{"Resume", "or whose process has died, and the tasks that it holds", func(e *env) {
		q := e.open(serial)
		q.put("a1 b1 a2")
		c := q.consumer(task.Filter{})
		c.takes("a1 b1")
		c.disconnect()
		q = q.again(serial)
		q.none()
		_, l := q.resume(c.ID(), "a1 b1")
		time.Sleep(time.Hour)
		l[0].ack()
		q.first("a2")
		l[1].ack()
	}},
	{"Grace", "keeps its leases", func(e *env) {
		q, start := e.open(), time.Now()
		q.put("a1")
		c := q.consumer(task.Filter{})
		c.first("a1")
		c.disconnect()
		q = q.again()
		take := q.taking()
		time.Sleep(time.Hour)
		got(take, "a1")
		e.at("taken", take.at, start, 30*second)
		_, _, err := q.ResumeConsumer(ctx, c.ID(), task.Filter{})
		e.is(err, task.ErrNotFound)
	}},
	{"UniqueKey", "What happened to a task that is gone can be asked for during Options.Retention", func(e *env) {
		q := e.open()
		q.put("a1", unique)
		q.put("b1", task.PutOptions{UniqueKey: "y"})
		q.first("a1").ack()
		q = q.again()
		e.ok(q.Wait(ctx, "x"))
		q.refuses("c1", task.PutOptions{UniqueKey: "y"}, task.ErrDuplicate)
		time.Sleep(time.Minute)
		e.is(q.Wait(ctx, "x"), task.ErrNotFound)
	}},
	{"Group", "holds the task back until Queue.StartGroup", func(e *env) {
		q := e.open()
		q.put("a1 b1", in(task.Member))
		q.put("e1", in(task.AtEnd))
		q = q.again()
		q.start("g")
		q.first("a1").ack()
		q = q.again()
		q.order("b1 e1")
	}},
	{"Pause", "stops the taking of tasks, until Resume", func(e *env) {
		q := e.open()
		q.put("a1 b1")
		e.ok(q.PauseKey(ctx, "a"))
		q = q.again()
		q.first("b1")
		q.none()
		e.ok(q.ResumeKey(ctx, "a"))
		e.ok(q.Pause(ctx))
		q = q.again()
		q.none()
		e.ok(q.Resume(ctx))
		q.order("a1 b1")
	}},
	{"Kick", "in the order in which they were buried", func(e *env) {
		q := e.open()
		q.put("a1 b1 c1")
		l := q.takes("a1 b1 c1")
		for _, i := range []int{2, 0, 1} {
			l[i].bury()
		}
		q = q.again()
		q.kick(3, 3)
		q.order("c1 a1 b1")
	}},
	{"Format", "A queue that has tasks is not opened with another one", func(e *env) {
		q := e.open()
		q.put("a1")
		q.close()
		store := e.reopen()
		_, err := task.Open[int](ctx, store, "queue", nil)
		e.is(err, task.ErrInvalid)
		e.openIn(store, "queue").order("a1")
	}},
	{"Drop", "a later Open makes a new one", func(e *env) {
		q := e.open()
		q.put("a1")
		e.ok(q.Drop(ctx))
		q = q.again()
		q.counts(0, 0, 0, 0, 0)
	}},
	{"Died", "is how long a consumer that disconnects, or whose process dies, keeps its leases", func(e *env) {
		q := e.open()
		q.put("a1 b1")
		c := q.consumer(task.Filter{})
		c.first("a1")
		time.Sleep(time.Hour)
		other := e.openIn(e.reopen(), "queue")
		later()
		other.first("b1")
		other.none()
		e.kill()
		time.Sleep(time.Minute)
		other.first("a1")
	}},
	{"DiedAndResumed", "which has disconnected or whose process has died, and the tasks that it holds", func(e *env) {
		q := e.open()
		q.put("a1 b1")
		c := q.consumer(task.Filter{})
		c.first("a1")
		q.first("b1")
		time.Sleep(time.Hour)
		e.kill()
		other := e.openIn(e.reopen(), "queue")
		_, l := other.resume(c.ID(), "a1")
		time.Sleep(time.Hour)
		l[0].ack()
		other.order("b1")
	}},
}
