package storetest

import (
	"context"
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

// changes changes a task.
func (q *queue) changes(id task.ID, how task.Change[string]) {
	q.e.Helper()
	q.e.ok(q.Change(ctx, id, how))
}

var byIDCases = []testCase{
	{"Take", "takes the task of that id, out of order and without waiting", func(e *env) {
		q := e.open()
		ids := q.put("a1 b1 a2 b2 a3", withTTR)
		w := q.watch(ctx)
		l := q.takesID(ids[4])
		equal(e, "payload", l.Payload, "a3")
		q.refusesID(ids[4], task.ErrTaken)
		q.takesID(ids[2]).ack()
		w.saw("take a, take a, ack a")
		time.Sleep(10 * second)
		l.lost(q)
		for _, id := range []task.ID{1000, ids[2]} {
			q.refusesID(id, task.ErrNotFound)
		}
		q.order("a1 b1 b2 a3")
	}},
	{"HandedBack", "a task that is handed back queues like new work, unless " +
		"the queue has KeepPlace", func(e *env) {
		for keep, want := range map[bool]string{false: "a1 a3 a4 a2", true: "a1 a2 a3 a4"} {
			e.each([]options{{KeepPlace: keep}}, func(q *queue) {
				l := q.takesID(q.put("a1 a2 a3")[1])
				q.put("a4")
				l.fail(errOops)
				q.order(want)
			})
		}
	}},
	{"Blocked", "and [ErrBlocked] if it cannot be taken now", func(e *env) {
		q := e.open(serial)
		ids := append(q.put("a1 a2 b1"), q.put("h1 c1", in(task.Member))...)
		q.bury(ids[4])
		l := q.takesID(ids[1])
		for _, id := range append(ids[3:], ids[0], q.one("e1", in(task.AtEnd))) {
			q.refusesID(id, task.ErrBlocked)
		}
		q.pauseKey("b")
		q.refusesID(ids[2], task.ErrBlocked)
		q.resumeKey("b")
		q.hold("b", second)
		q.refusesID(ids[2], task.ErrBlocked)
		time.Sleep(second)
		e.ok(q.Pause(ctx))
		q.refusesID(ids[2], task.ErrBlocked)
		e.ok(q.Resume(ctx))
		q.takesID(ids[2])
		l.ack()
		q.order("a1")
	}},
	{"UnlessTaken", "but leaves a taken task as it is and returns [ErrTaken]", func(e *env) {
		q := e.open()
		ids := q.put("a1 b1 c1")
		l := q.first("a1")
		before := q.stats()
		e.refuse(task.ErrTaken, calls{
			"Delete": func(context.Context) error { return q.DeleteUnlessTaken(ctx, ids[0]) },
			"Bury":   func(context.Context) error { return q.BuryUnlessTaken(ctx, ids[0], errOops) },
			"Drop":   q.DropUnlessTaken,
		})
		equal(e, "Stats", q.stats(), before)
		e.ok(q.BuryUnlessTaken(ctx, ids[1], errOops))
		e.ok(q.DeleteUnlessTaken(ctx, ids[1]))
		l.release(0)
		e.ok(q.DropUnlessTaken(ctx))
		q.refusesAll(task.ErrDropped)
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
		l[1].lost(q)
		equal(e, "attempts", q.peek(l[0].ID).Attempts, 0)
		other.ack()
		c.order("a1 b1")
		c.close()
		e.is(c.ReleaseAll(ctx), task.ErrClosed)
	}},
	{"ChangeDelay", "the time from now until the task is ready, " +
		"negative to make it ready now", func(e *env) {
		e.each(modes, func(q *queue) {
			start := time.Now()
			id := q.one("a1", task.PutOptions{Delay: 10 * second, TTL: 5 * second})
			w := q.watch(ctx)
			q.changes(id, task.Change[string]{Delay: 20 * second})
			e.at("Until", q.peek(id).Info().Until, start, 20*second)
			e.at("Expires", q.peek(id).Info().Expires, start, 25*second)
			waits := q.taking()
			time.Sleep(15 * second)
			waits.waits()
			now := task.Change[string]{Delay: -1}
			q.changes(id, now)
			l := got(waits, "a1")
			e.at("ReadyAt", l.Info().ReadyAt, start, 15*second)
			e.at("Expires", l.Info().Expires, start, 20*second)
			w.saw("change a, change a, take a")
			l.back()
			q.changes(id, now) // it is ready
			q.changes(id, task.Change[string]{Delay: 2 * second})
			q.goesOn("a1", 2*second)
		})
	}},
	{"ChangePriority", "negative means priority 0 ... puts the task behind all others of its " +
		"key, even with KeepPlace ... Payload does not move the task.", func(e *env) {
		e.each(modes, func(q *queue) {
			ids := q.put("a1 b1 a2 a4", task.PutOptions{Priority: 5})
			waits := q.consumer(upTo(0)).taking()
			waits.waits()
			urgent := task.Change[string]{Priority: -1}
			q.changes(ids[1], urgent)
			got(waits, "b1").ack()
			q.put("a3")
			q.changes(ids[0], urgent)
			q.changes(ids[2], task.Change[string]{Priority: 6})
			q.changes(ids[0], task.Change[string]{Payload: new("a8")})
			q.order("a3 a8 a4 a2")
		})
	}},
	{"ChangeInvalid", "It returns [ErrTaken] if the task is taken, and " +
		"[ErrNotFound] if there is none.", func(e *env) {
		q := e.open()
		ids := append(q.put("a1 b1"), q.one("c1", in(task.Member)))
		q.bury(ids[1])
		later := task.Change[string]{Delay: second, Payload: new("x")}
		for i, state := range []string{"buried", "held"} {
			err := q.Change(ctx, ids[i+1], later)
			e.is(err, task.ErrInvalid)
			equal(e, "error", err.Error(),
				"task: Change.Delay is 1s; it must be left out for a task that is "+state)
			equal(e, "payload", q.peek(ids[i+1]).Payload, []string{"b1", "c1"}[i])
		}
		for _, c := range []task.Change[string]{
			{Delay: task.MaxDuration + 1},
			{Priority: task.MaxPriority + 1},
		} {
			c.Payload = new("x")
			e.is(q.Change(ctx, ids[0], c), task.ErrInvalid)
		}
		e.is(e.asIs(e.store).Change(ctx, ids[0], later), task.ErrInvalid)
		l := q.first("a1")
		for _, c := range []task.Change[string]{later, {Priority: 1}, {}} {
			e.is(q.Change(ctx, l.ID, c), task.ErrTaken)
			e.is(q.Change(ctx, 1000, c), task.ErrNotFound)
		}
	}},
}
