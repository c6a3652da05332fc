package storetest

import (
	"github.com/fairq/fairq/task"
)

// asIs opens the queue as it is.
func (e *env) asIs(store task.Store) *task.Queue[string] {
	e.Helper()
	q, err := task.Open(ctx, store, "queue", &options{AsIs: true})
	e.ok(err)
	e.Cleanup(func() { e.ok(q.Close(ctx)) })
	return q
}

var asIsCases = []testCase{
	{"Missing", "The queue must exist, or Open returns [ErrNotFound].", func(e *env) {
		_, err := task.Open(ctx, e.store, "queue", &options{AsIs: true})
		e.is(err, task.ErrNotFound)
		names, err := e.store.Queues(ctx, "", 0)
		e.ok(err)
		equal(e, "queues", len(names), 0)
	}},
	{"Keeps", "It keeps its options", func(e *env) {
		o := options{
			Capacity: 3, KeyCapacity: 2,
			MaxInFlightPerKey: 1, Quantum: 5, Format: "text",
		}
		q := e.open(o)
		q.put("a1 a2 b1")
		looker := e.asIs(e.store)
		s, err := looker.Stats(ctx)
		e.ok(err)
		equal(e, "Capacity and Ready", [2]int{s.Capacity, s.Ready}, [2]int{3, 3})
		e.refuse(task.ErrInvalid, work(looker))
		e.ok(looker.Close(ctx))
		l := q.first("a1")
		e.openIn(e.store, "queue", o)
		l.ack()
		q.order("a2 b1")
	}},
	{"Helps", "opens a queue to look at it, or to repair it by hand", func(e *env) {
		q := e.open(serial)
		ids := q.put("a1 a2 b1 b2 c1 c2")
		looker := e.asIs(e.store)
		running := q.first("a1")
		next, err := looker.Upcoming(ctx, 10)
		e.ok(err)
		equal(e, "next", next[0].Key, "b")
		e.is(looker.BuryUnlessTaken(ctx, ids[0], errOops), task.ErrTaken)
		e.ok(looker.Bury(ctx, ids[2], errOops))
		e.ok(looker.Delete(ctx, ids[3]))
		e.ok(looker.PauseKey(ctx, "c"))
		q.none()
		running.ack()
		q.first("a2").ack()
		e.ok(looker.ResumeKey(ctx, "c"))
		e.ok(looker.KickID(ctx, ids[2]))
		q.order("c1 c2 b1")
		e.ok(looker.DropUnlessTaken(ctx))
		for _, dropped := range []*task.Queue[string]{q.Queue, looker} {
			e.is(errOf(dropped.Stats(ctx)), task.ErrDropped)
		}
	}},
}

// asIsElsewhere has cases in which another process looks.
var asIsElsewhere = []testCase{
	{"Change", "which its consumers can still change", func(e *env) {
		q := e.open(options{Capacity: 3})
		q.put("a1")
		looker := e.asIs(e.reopen())
		q.close()
		q = e.reopenAs(e.store, options{Capacity: 5, MaxInFlightPerKey: 1})
		q.put("a2 a3 a4 a5")
		s, err := looker.Stats(ctx)
		e.ok(err)
		equal(e, "Capacity and Ready", [2]int{s.Capacity, s.Ready}, [2]int{5, 5})
	}},
}
