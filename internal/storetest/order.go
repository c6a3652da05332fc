package storetest

import (
	"slices"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

var orderCases = []testCase{
	{"DefaultPriority", "0 means Options.Priority; negative means priority 0", func(e *env) {
		q := e.open(options{Priority: 5})
		q.put("a1")
		for name, p := range map[string]int{"b1": -1, "c1": 4, "d1": 6} {
			q.one(name, task.PutOptions{Priority: p})
		}
		equal(e, "priority", q.first("b1").Priority, 0)
		q.order("c1 a1 d1")
	}},
	{"PriorityBeforeTurn", "Order: priority first", func(e *env) {
		q := e.open()
		q.one("a1", task.PutOptions{Priority: 1})
		q.first("a1").back()
		q.put("b1")
		q.first("b1").back()
		q.put("c1 b2")
		q.order("b1 c1 b2 a1")
	}},
	{"Rounds", "within a priority keys are served in rounds, as by a [fairq.Queue]", func(e *env) {
		q := e.open()
		q.put("a1 a2 a3 a4 b1 c1 b2")
		q.order("a1 b1 c1 a2 b2 a3 a4")
	}},
	{"InvalidWeight", "returns the number of tasks of a key in a round, " +
		"1 to [fairq.MaxWeight]", func(e *env) {
		weight := 0
		q := e.open(options{Weight: func(string) int { return weight }})
		q.refuses("a1", task.PutOptions{}, fairq.ErrWeight)
		weight = fairq.MaxWeight + 1
		q.refuses("a1", task.PutOptions{}, fairq.ErrWeight)
		weight = fairq.MaxWeight
		q.put("a1")
	}},
	{"InVain", "a key whose tasks all fail or hang does not hold up the others", func(e *env) {
		for name, back := range handsBack {
			e.Log(name)
			e.each([]options{
				{Grace: second},
				{Grace: second, KeepPlace: true},
				{Grace: second, MaxInFlightPerKey: 2},
				{Grace: second, Quantum: 1},
			}, func(q *queue) { q.inVain(back) })
		}
	}},
	{"Untried", "keeps its turn, and is first; if it comes back untried twice in a " +
		"row, it takes a new turn", func(e *env) {
		for name, back := range untried {
			for keep, want := range map[bool]string{false: "b1 c1 a2 a1", true: "b1 c1 a1 a2"} {
				e.Logf("%s: KeepPlace %v", name, keep)
				e.each([]options{{KeepPlace: keep}}, func(q *queue) {
					take := func() (*consumer, *lease) {
						c := q.consumer(task.Filter{})
						return c, c.first("a1")
					}
					q.put("a1 b1 a2 c1")
					back(take())
					back(take())
					q.order(want)
					q.put("a1 b1 a2 c1")
					back(take())
					_, l := take() // it is tried
					l.release(0)
					q.order(want)
					q.put("a1 b1")
					back(take())
					back(take())
					q.first("b1").ack()
					q.put("b2")
					back(take()) // of its next turn
					q.order("a1 b2")
				})
			}
		}
	}},
	{"BuryByOthers", "when it is kicked", func(e *env) {
		q := e.open()
		q.bury(q.put("a1 b1 c1")[0])
		q.put("b2")
		q.kick(1, 1)
		q.order("b1 c1 a1 b2")
	}},
	{"DeleteKeepsTurn", "the tasks of the key behind such a task " +
		"may move up by one turn", func(e *env) {
		q := e.open()
		ids := q.put("a1 b1 c1 a2 b2 a3")
		q.remove(ids[1])
		q.first("a1")
		q.remove(ids[3])
		e.Log("of b1 b2 the first was deleted, of a2 a3 too")
		q.batchIs("b2 c1 a3", "c1 b2 a3", "c1 a3 b2")
	}},
	{"KeepPlace", "a task returns to its place among the tasks of its key ... go to the place of " +
		"its Put among the tasks of its key and priority", func(e *env) {
		e.each([]options{{KeepPlace: true}, {KeepPlace: true, MaxInFlightPerKey: 1}}, func(q *queue) {
			q.bury(q.put("a1 a2 a3 a4 b1")[1])
			q.first("a1").release(2 * second)
			q.first("b1").ack()
			q.first("a3").release(second)
			q.kick(1, 1)
			time.Sleep(2 * second)
			q.order("a1 a2 a3 a4")
		})
	}},
}

// handsBack are all ways to end a lease without the task being done.
var handsBack = map[string]func(*consumer, *lease){
	"Release": func(_ *consumer, l *lease) { l.release(0) },
	"Snooze":  func(_ *consumer, l *lease) { l.snooze(0) },
	"Fail":    func(_ *consumer, l *lease) { l.fail(errOops) },
	"later":   func(_ *consumer, l *lease) { l.release(second); time.Sleep(second) },
	"snoozed": func(_ *consumer, l *lease) { l.snooze(second); time.Sleep(second) },
	"failed": func(_ *consumer, l *lease) {
		l.e.ok(l.Fail(ctx, errOops, second))
		time.Sleep(second)
	},
	"TTR":        func(*consumer, *lease) { time.Sleep(second) },
	"Disconnect": func(c *consumer, _ *lease) { c.disconnect(); time.Sleep(second) },
	"Repeat":     func(_ *consumer, l *lease) { l.e.ok(l.Repeat(ctx, 0)) },
	"HoldKey":    func(_ *consumer, l *lease) { l.holdKey(errOops, second); time.Sleep(second) },
	"snoozeKey":  func(_ *consumer, l *lease) { l.holdKey(nil, second); time.Sleep(second) },
	"Return":     untried["Return"],
	"ReleaseAll": untried["ReleaseAll"],
	"Close":      untried["Close"],
}

// untried are the ways to hand a task back that nobody has tried.
var untried = map[string]func(*consumer, *lease){
	"Return":     func(_ *consumer, l *lease) { l.back() },
	"ReleaseAll": func(c *consumer, _ *lease) { c.e.ok(c.ReleaseAll(ctx)) },
	"Close":      func(c *consumer, _ *lease) { c.close() },
}

// inVain has all tasks of a key taken in vain, and checks that another key gets its share.
func (q *queue) inVain(back func(*consumer, *lease)) {
	e := q.e
	q.put("a1 a2 a3 a4", task.PutOptions{TTR: second})
	q.put("b1 b2 b3 b4 b5 b6 b7 b8")
	for inVain, done := 0, 0; done < 8; {
		c := q.consumer(task.Filter{})
		t, err := c.Take(ctx)
		e.ok(err)
		if t.Key == "b" {
			done++
			e.ok(t.Ack(ctx))
		} else {
			inVain++
			back(c, &lease{t, e})
		}
		c.close()
		if inVain > 2*done+4 { // an untried task uses each turn twice
			e.Fatalf("a was served %d times, b %d times", inVain, done)
		}
	}
}

// batchIs takes all tasks, and checks that their order is one of these.
func (q *queue) batchIs(want ...string) {
	q.e.Helper()
	t, err := q.TakeBatch(ctx, 10)
	q.e.ok(err)
	if got := payloads(t); !slices.Contains(want, got) {
		q.e.Fatalf("order: %s; it should be one of %q", got, want)
	}
}

var ttlCases = []testCase{
	{"Default", "0 means Options.TTL; negative means no end", func(e *env) {
		q := e.open(options{TTL: second})
		one, two := q.one("a1", task.PutOptions{}), q.one("a2", task.PutOptions{TTL: 2 * second})
		never := q.one("a3", task.PutOptions{TTL: -1})
		equal(e, "end of life", q.peek(never).Info().Expires, time.Time{})
		time.Sleep(second)
		q.gone(one)
		time.Sleep(second)
		q.gone(two)
		time.Sleep(ages)
		q.order("a3")
	}},
}
