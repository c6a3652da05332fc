package storetest

import (
	"slices"
	"strings"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

// serial are the options of a queue whose keys are served strictly one task after the other.
var serial = options{MaxInFlightPerKey: 1}

var keyCases = []testCase{
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
	{"Wakes", "is passed over, at no cost for the others", func(e *env) {
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
	{
		"PauseKey", "is Pause for the tasks of one key, which need not have any ... undoes PauseKey",
		func(e *env) {
			q := e.open()
			q.pauseKey("a")
			one, two := q.taking(), q.taking()
			q.put("a1")
			q.one("a2", task.PutOptions{Delay: second, Kind: "k", Priority: 3})
			time.Sleep(second)
			one.waits()
			q.counts(2, 0, 0, 0, 0)
			stats, err := q.KeyStats(ctx, 10, fairq.ByBacklog)
			e.ok(err)
			equal(e, "KeyStats", stats,
				[]fairq.KeyStat[string]{{Key: "a", Backlog: 2, Paused: true, OldestAge: stats[0].OldestAge}})
			q.resumeKey("b")
			one.waits()
			q.resumeKey("a")
			gotAll(e, "a1 a2", one, two)
		},
	},
	{"ResumeKey", "The key has the next turn if it has missed one or more.", func(e *env) {
		q := e.open()
		q.put("a1 a2 a3 a4 a5 a6 b1 b2 b3 b4 b5 b6")
		q.pauseKey("a")
		q.takes("b1 b2 b3")
		q.resumeKey("a")
		q.first("a1")
		e.Log("a and b are served by turns")
		t, err := q.TakeBatch(ctx, 3)
		e.ok(err)
		equal(e, "one of the ways", slices.Contains(
			[]string{"b4 a2 b5", "a2 b4 b5", "a2 b4 a3", "b4 a2 a3"}, payloads(t)), true)
	}},
	{"Pause", "stops the taking of tasks, until Resume. Leases " +
		"stay, and tasks can be put.", func(e *env) {
		q := e.open()
		q.put("a1")
		l := q.first("a1")
		e.ok(q.Pause(ctx))
		equal(e, "Stats.Paused", q.stats().Paused, true)
		one, two := q.taking(), q.taking()
		q.put("b1 b2 b3")
		l.ack()
		q.pauseKey("c")
		q.resumeKey("c")
		one.waits()
		two.waits()
		e.ok(q.Resume(ctx))
		equal(e, "Stats.Paused", q.stats().Paused, false)
		gotAll(e, "b1 b2", one, two)
	}},
}

func kinds(names ...string) task.Filter { return task.Filter{Kinds: names} }

func upTo(priority int) task.Filter { return task.Filter{MaxPriority: &priority} }

// kind is for tasks of a kind.
func kind(name string) task.PutOptions { return task.PutOptions{Kind: name} }

var filterCases = []testCase{
	{"Kinds", "only of these kinds; nil means all ... selects the tasks that a consumer takes. The " +
		"zero Filter passes all.", func(e *env) {
		q := e.open()
		for p, name := range []string{"a1", "b1", "c1"} {
			for _, kind := range []string{"x", "y", ""} {
				q.one(name, task.PutOptions{Priority: p, Kind: kind})
			}
		}
		for _, none := range []task.Filter{kinds("w"), {Kinds: []string{}}} {
			q.consumer(none).none()
		}
		f := upTo(1)
		f.Kinds = []string{"x", "w", "y"}
		c := q.consumer(f)
		*f.MaxPriority, f.Kinds[0] = 100, "" // what the caller does with them afterwards must not matter
		c.order("a1 a1 b1 b1")
		q.consumer(kinds("")).order("a1 b1 c1")
		q.consumer(task.Filter{}).order("c1 c1")
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
