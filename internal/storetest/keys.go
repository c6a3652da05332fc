package storetest

import (
	"strings"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

// serial are the options of a queue whose keys are served strictly one task after the other.
var serial = options{MaxInFlightPerKey: 1}

var keyCases = []testCase{
	{"Serial", "With 1, a key's tasks are done strictly one after the other", func(e *env) {
		q := e.open(serial)
		q.put("a1 a2 a3 b1")
		l := q.takes("a1 b1")
		q.none()
		l[0].ack()
		second := q.first("a2")
		q.none()
		second.ack()
		q.first("a3")
		q.none()
	}},
	{"AcrossPriorities", "is the greatest number of tasks of a key that are " +
		"taken at the same time", func(e *env) {
		q := e.open(serial)
		q.put("a1 b1", task.PutOptions{Priority: 1})
		q.put("a2")
		l := q.takes("a2 b1")
		q.none()
		l[0].ack()
		q.first("a1")
	}},
	{"OneMissedTurn", "it never gets back more than one", func(e *env) {
		q := e.open(serial)
		q.put("a1 a2 a3 a4 b1 b2 b3 b4 b5 b6")
		l := q.first("a1")
		for _, name := range []string{"b1", "b2", "b3", "b4"} {
			q.first(name).ack()
		}
		l.ack()
		var order []string
		for range 5 {
			t, err := q.Take(ctx)
			e.ok(err)
			e.ok(t.Ack(ctx))
			order = append(order, t.Payload)
		}
		// The order of keys within a round is not promised.
		if got := strings.Join(order, " "); got != "a2 b5 a3 b6 a4" && got != "a2 a3 b5 b6 a4" &&
			got != "a2 a3 b5 a4 b6" && got != "a2 b5 a3 a4 b6" {
			e.Fatalf("order: %s; one turn of a was missed, and then a and b are served by turns", got)
		}
	}},
	{"WakesWhoWantsIt", "is passed over, at no cost for the others", func(e *env) {
		q := e.open(serial)
		q.put("a1")
		l := q.first("a1")
		q.one("a2", kind("x"))
		q.one("a3", task.PutOptions{Kind: "y", Priority: 1})
		y, z, x := q.consumer(kinds("y")).taking(), q.consumer(kinds("z")).taking(),
			q.consumer(kinds("x")).taking()
		l.ack()
		if x.over() == y.over() {
			e.Fatal("one of two tasks can be taken; one of two Takes should have returned")
		}
		if y.over() {
			got(y, "a3").ack()
			got(x, "a2")
		} else {
			got(x, "a2").ack()
			got(y, "a3")
		}
		z.waits()
	}},
	{"WakesForAnother", "is passed over, at no cost for the others", func(e *env) {
		q := e.open(serial)
		y, z := q.consumer(kinds("y")).taking(), q.consumer(upTo(0)).taking()
		q.one("a1", task.PutOptions{Kind: "x", Priority: 1})
		y.waits()
		q.one("a2", task.PutOptions{Kind: "y", Priority: 1})
		got(y, "a2").ack()
		q.put("a3")
		got(z, "a3")
	}},
	{"PauseKeyBefore", "is Pause for the tasks of one key, which need not have any", func(e *env) {
		q := e.open()
		e.ok(q.PauseKey(ctx, "a"))
		take := q.taking()
		q.put("a1")
		q.one("a2", task.PutOptions{Delay: second, Kind: "k", Priority: 3})
		time.Sleep(second)
		take.waits()
		q.counts(2, 0, 0, 0, 0)
		stats, err := q.KeyStats(ctx, 10, fairq.ByBacklog)
		e.ok(err)
		equal(e, "KeyStats", stats,
			[]fairq.KeyStat[string]{{Key: "a", Backlog: 2, Paused: true, OldestAge: stats[0].OldestAge}})
		q.put("b1")
		got(take, "b1")
		e.ok(q.ResumeKey(ctx, "a"))
		q.order("a1 a2")
	}},
	{"ResumeKey", "The key has the next turn if it has missed one or more.", func(e *env) {
		q := e.open()
		q.put("a1 a2 a3 a4 a5 a6 b1 b2 b3 b4 b5 b6")
		e.ok(q.PauseKey(ctx, "a"))
		q.takes("b1 b2 b3")
		e.ok(q.ResumeKey(ctx, "a"))
		q.first("a1")
		t, err := q.TakeBatch(ctx, 3)
		e.ok(err)
		if got := payloads(t); got != "b4 a2 b5" && got != "a2 b4 b5" && got != "a2 b4 a3" &&
			got != "b4 a2 a3" {
			e.Fatalf("order after the turn that was missed: %s; a and b should be served by turns", got)
		}
	}},
	{"ResumeKeyWakes", "undoes PauseKey", func(e *env) {
		q := e.open()
		e.ok(q.PauseKey(ctx, "a"))
		q.put("a1 a2")
		one, two, three := q.taking(), q.taking(), q.taking()
		one.waits()
		e.ok(q.ResumeKey(ctx, "b"))
		one.waits()
		e.ok(q.ResumeKey(ctx, "a"))
		gotAll(e, "a1 a2", one, two)
		three.waits()
	}},
	{"Pause", "stops the taking of tasks, until Resume. Leases " +
		"stay, and tasks can be put.", func(e *env) {
		q := e.open()
		q.put("a1")
		l := q.first("a1")
		e.ok(q.Pause(ctx))
		equal(e, "Stats.Paused", q.stats().Paused, true)
		l.holds()
		one, two := q.taking(), q.taking()
		q.put("b1 b2 b3")
		q.none()
		l.ack()
		one.waits()
		two.waits()
		e.ok(q.PauseKey(ctx, "c"))
		e.ok(q.ResumeKey(ctx, "c"))
		one.waits()
		e.ok(q.Resume(ctx))
		equal(e, "Stats.Paused", q.stats().Paused, false)
		gotAll(e, "b1 b2", one, two)
		q.order("b3")
	}},
}

func kinds(names ...string) task.Filter { return task.Filter{Kinds: names} }

func upTo(priority int) task.Filter { return task.Filter{MaxPriority: &priority} }

// kind is for tasks of a kind.
func kind(name string) task.PutOptions { return task.PutOptions{Kind: name} }

var filterCases = []testCase{
	{"Kinds", "only of these kinds; nil means all", func(e *env) {
		q := e.open()
		q.one("a1", kind("x"))
		q.one("a2", kind("y"))
		q.one("b1", kind("z"))
		q.one("b2", kind("y"))
		q.put("c1")
		q.consumer(kinds("w")).none()
		q.consumer(task.Filter{Kinds: []string{}}).none()
		q.consumer(kinds("")).order("c1")
		c := q.consumer(kinds("y", "z", "w"))
		c.takes("a2 b1 b2")
		c.none()
		q.order("a1")
	}},
	{"Both", "selects the tasks that a consumer takes. The zero Filter passes all.", func(e *env) {
		q := e.open()
		for p, name := range []string{"a1", "b1", "c1"} {
			q.one(name, task.PutOptions{Priority: p, Kind: "x"})
			q.one(name, task.PutOptions{Priority: p, Kind: "y"})
		}
		one := 1
		c := q.consumer(task.Filter{MaxPriority: &one, Kinds: []string{"x"}})
		one = 100 // what the caller does with it afterwards must not matter
		c.order("a1 b1")
		q.consumer(task.Filter{}).order("a1 b1 c1 c1")
	}},
	{"RoundsOfKind", "within a priority keys are served in rounds", func(e *env) {
		q := e.open()
		q.put("a1 a2 a3", kind("x"))
		q.put("b1 a4 b2 c1", kind("y"))
		q.put("c2", kind("x"))
		q.consumer(kinds("x")).order("a1 c2 a2 a3")
		q.put("d1", kind("x"))
		q.consumer(kinds("x")).order("d1")
		first := map[string]bool{}
		for range 3 {
			t, err := q.Take(ctx)
			e.ok(err)
			first[t.Key] = true
		}
		equal(e, "keys of the first three", first, map[string]bool{"a": true, "b": true, "c": true})
		q.order("b2")
	}},
	{"SetFilter", "replaces the filter of the consumer, even for waiting calls", func(e *env) {
		q := e.open()
		c := q.consumer(kinds("x"))
		one, two := c.taking(), c.taking()
		q.put("a1", kind("y"))
		one.waits()
		c.SetFilter(kinds("y"))
		got(one, "a1")
		two.waits()
		q.put("a2", kind("x"))
		c.none()
		two.waits()
		q.put("a3", kind("y"))
		got(two, "a3")
		c.SetFilter(task.Filter{})
		c.first("a2")
	}},
}
