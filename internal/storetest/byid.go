package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/fairq/fairq/task"
)

// takesID takes a task by its id.
func (q *queue) takesID(id task.ID) *lease {
	q.e.Helper()
	t, err := q.TakeID(ctx, id)
	q.e.ok(err)
	equal(q.e, "id", t.ID, id)
	equal(q.e, "state", t.Info().State, task.Taken)
	return &lease{t, q.e}
}

// refusesID checks that a task cannot be taken by its id, and that nothing happens.
func (q *queue) refusesID(id task.ID, want error) {
	q.e.Helper()
	before := q.stats()
	_, err := q.TakeID(ctx, id)
	q.e.is(err, want)
	equal(q.e, "Stats", q.stats(), before)
}

// ofKey takes and acks all tasks, and returns those of a key.
func (q *queue) ofKey(key string) string {
	q.e.Helper()
	var tasks []*task.Task[string]
	for {
		t, ok, err := q.TryTake(ctx)
		if q.e.ok(err); !ok {
			return payloads(tasks)
		}
		if q.e.ok(t.Ack(ctx)); t.Key == key {
			tasks = append(tasks, t)
		}
	}
}

var byIDCases = []testCase{
	{"Take", "takes the task of that id, out of order and without waiting", func(e *env) {
		q := e.open(options{MaxAttempts: 2})
		ids := q.put("a1 b1 a2 b2 a3", withTTR)
		w := q.watch(ctx)
		l := q.takesID(ids[4])
		equal(e, "payload", l.Payload, "a3")
		equal(e, "attempts", l.Attempts, 1)
		q.refusesID(ids[4], task.ErrTaken)
		q.takesID(ids[2]).ack()
		w.saw("take a, take a, ack a")
		time.Sleep(10 * second)
		l.lost(q)
		q.takesID(ids[4]).fail(errOops)
		q.state(task.Buried, ids[4])
		q.refusesID(1000, task.ErrNotFound)
		q.gone(ids[2])
		q.refusesID(ids[2], task.ErrNotFound)
		q.order("a1 b1 b2")
	}},
	{"HandedBack", "a task that is handed back queues like new work, unless " +
		"the queue has KeepPlace", func(e *env) {
		for _, c := range []struct {
			o    options
			want string
		}{
			{options{}, "a1 a3 a4 a2"},
			{options{KeepPlace: true}, "a1 a2 a3 a4"},
			{options{MaxInFlightPerKey: 5}, "a1 a3 a4 a2"},
			{options{KeepPlace: true, MaxInFlightPerKey: 5}, "a1 a2 a3 a4"},
		} {
			for _, end := range []string{"Release", "Snooze", "Fail"} {
				q := e.openIn(e.store, "queue", c.o)
				ids := q.put("b1 a1 a2 a3 b2")
				l := q.takesID(ids[2])
				q.put("a4")
				settle[end](l)
				equal(e, "order within key a after "+end, q.ofKey("a"), c.want)
				e.ok(q.Drop(ctx))
			}
		}
	}},
	{"Blocked", "and [ErrBlocked] if it cannot be taken now", func(e *env) {
		q := e.open(options{MaxInFlightPerKey: 1})
		held := q.one("h1", in(task.Member))
		end := q.one("e1", in(task.AtEnd))
		ids := q.put("a1 a2 b1")
		buried := q.one("c1", in(task.Member))
		q.bury(buried)
		q.refusesID(held, task.ErrBlocked)
		q.refusesID(end, task.ErrBlocked)
		q.refusesID(buried, task.ErrBlocked)
		l := q.takesID(ids[1])
		q.refusesID(ids[0], task.ErrBlocked)
		e.ok(q.PauseKey(ctx, "b"))
		q.refusesID(ids[2], task.ErrBlocked)
		e.ok(q.ResumeKey(ctx, "b"))
		q.hold("b", second)
		q.refusesID(ids[2], task.ErrBlocked)
		time.Sleep(second)
		e.ok(q.Pause(ctx))
		q.refusesID(ids[2], task.ErrBlocked)
		e.ok(q.Resume(ctx))
		q.order("b1")
		l.ack()
		q.order("a1")
	}},
	{"UnlessTaken", "but leaves a taken task as it is and returns [ErrTaken]", func(e *env) {
		q := e.open()
		ids := q.put("a1 b1 c1")
		l := q.first("a1")
		before := q.stats()
		e.is(q.DeleteUnlessTaken(ctx, ids[0]), task.ErrTaken)
		e.is(q.BuryUnlessTaken(ctx, ids[0], errOops), task.ErrTaken)
		e.is(q.DropUnlessTaken(ctx), task.ErrTaken)
		equal(e, "Stats", q.stats(), before)
		l.holds()
		e.ok(q.BuryUnlessTaken(ctx, ids[1], errOops))
		e.ok(q.DeleteUnlessTaken(ctx, ids[1]))
		e.is(q.DeleteUnlessTaken(ctx, ids[1]), task.ErrNotFound)
		l.release(0)
		e.ok(q.DropUnlessTaken(ctx))
		_, err := q.Put(ctx, "a", "a1", task.PutOptions{})
		e.is(err, task.ErrDropped)
	}},
	{"ReleaseAll", "hands back all tasks that the consumer holds, as Close does; the attempts do " +
		"not count. The consumer can take further tasks.", func(e *env) {
		q := e.open()
		q.put("a1 b1 c1")
		c := q.consumer(task.Filter{})
		e.ok(c.ReleaseAll(ctx))
		l := c.takes("a1 b1")
		other := q.first("c1")
		w := q.watch(ctx)
		e.ok(c.ReleaseAll(ctx))
		w.saw("release a, release b")
		for i := range l {
			l[i].lost(q)
			equal(e, "attempts", q.peek(l[i].ID).Attempts, 0)
		}
		other.ack()
		c.order("a1 b1")
		c.close()
		e.is(c.ReleaseAll(ctx), task.ErrClosed)
	}},
	{"ChangeDelay", "the time from now until the task is ready, " +
		"0 to make it ready now", func(e *env) {
		for _, o := range modes {
			q, start := e.openIn(e.store, "queue", o), time.Now()
			id := q.one("a1", task.PutOptions{Delay: 10 * second, TTL: 5 * second})
			delays := func(d time.Duration) {
				e.Helper()
				e.ok(q.Change(ctx, id, task.Change[string]{Delay: &d}))
			}
			w := q.watch(ctx)
			delays(20 * second)
			e.at("Until", q.peek(id).Info().Until, start, 20*second)
			e.at("Expires", q.peek(id).Info().Expires, start, 25*second)
			waits := q.taking()
			time.Sleep(15 * second)
			waits.waits()
			delays(0)
			l := got(waits, "a1")
			equal(e, "Until", l.Info().Until, time.Time{})
			e.at("ReadyAt", l.Info().ReadyAt, start, 15*second)
			e.at("Expires", l.Info().Expires, start, 20*second)
			w.saw("change a, change a, take a")
			l.back()
			delays(0) // it is ready
			delays(2 * second)
			q.goesOn("a1", 2*second).ack()
			e.ok(q.Drop(ctx))
		}
	}},
	{"ChangePriority", "puts the task behind all others of its " +
		"key, even with KeepPlace", func(e *env) {
		for _, o := range modes {
			q := e.openIn(e.store, "queue", o)
			ids := q.put("a1 b1 a2 a4", task.PutOptions{Priority: 5})
			waits := q.consumer(upTo(0)).taking()
			waits.waits()
			e.ok(q.Change(ctx, ids[1], task.Change[string]{Priority: new(0)}))
			got(waits, "b1").ack()
			q.put("a3")
			e.ok(q.Change(ctx, ids[0], task.Change[string]{Priority: new(0)}))
			e.ok(q.Change(ctx, ids[2], task.Change[string]{Priority: new(6)}))
			equal(e, "priority", q.peek(ids[2]).Priority, 6)
			q.order("a3 a1 a4 a2")
			e.ok(q.Drop(ctx))
		}
	}},
	{"ChangePayload", "Payload does not move the task.", func(e *env) {
		for _, o := range modes {
			q := e.openIn(e.store, "queue", o)
			ids := append(q.put("a1 b1 a2"), q.one("e1", task.PutOptions{Priority: 1}),
				q.one("c1", task.PutOptions{Delay: second}), q.one("d1", in(task.Member)))
			q.bury(ids[3])
			for i, payload := range strings.Fields("a8 b8 a9 e8 c8 d8") {
				e.ok(q.Change(ctx, ids[i], task.Change[string]{Payload: &payload}))
				equal(e, "payload", q.peek(ids[i]).Payload, payload)
			}
			q.counts(3, 1, 0, 1, 1)
			q.kick(1, 1)
			q.order("a8 b8 a9 e8")
			time.Sleep(second)
			q.start("g")
			q.order("c8 d8")
			e.ok(q.Drop(ctx))
		}
	}},
	{"ChangeInvalid", "It returns [ErrTaken] if the task is taken, and " +
		"[ErrNotFound] if there is none.", func(e *env) {
		q := e.open()
		ids := append(q.put("a1 b1"), q.one("c1", in(task.Member)))
		q.bury(ids[1])
		for _, id := range ids[1:] {
			err := q.Change(ctx, id, task.Change[string]{Delay: new(second), Payload: new("x")})
			e.is(err, task.ErrInvalid)
			want := fmt.Sprintf("task: Change.Delay is 1s; it must be nil for a task that is %v",
				q.peek(id).Info().State)
			equal(e, "error", err.Error(), want)
		}
		for _, c := range []task.Change[string]{
			{Delay: new(-second)},
			{Delay: new(task.MaxDuration + 1)},
			{Priority: new(-1)},
			{Priority: new(task.MaxPriority + 1)},
		} {
			c.Payload = new("x")
			e.is(q.Change(ctx, ids[0], c), task.ErrInvalid)
		}
		e.is(e.asIs(e.store).Change(ctx, ids[0], task.Change[string]{Payload: new("x")}),
			task.ErrInvalid)
		l := q.first("a1")
		equal(e, "payloads", q.peek(ids[1]).Payload+q.peek(ids[2]).Payload, "b1c1")
		for _, c := range []task.Change[string]{
			{Delay: new(second)}, {Priority: new(1)}, {Payload: new("x")}, {},
		} {
			e.is(q.Change(ctx, l.ID, c), task.ErrTaken)
			e.is(q.Change(ctx, 1000, c), task.ErrNotFound)
		}
		l.ack()
		e.is(q.Change(ctx, l.ID, task.Change[string]{}), task.ErrNotFound)
	}},
}
