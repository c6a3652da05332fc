package storetest

import (
	"testing/synctest"
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
		for name, back := range inVain {
			for _, o := range []options{{}, {KeepPlace: true}, {MaxInFlightPerKey: 2}, {Quantum: 1}} {
				o.Grace = second
				e.Logf("%s: KeepPlace %v, MaxInFlightPerKey %d, Quantum %d", name, o.KeepPlace,
					o.MaxInFlightPerKey, o.Quantum)
				e.inVain(back, o)
			}
		}
	}},
	{"Untried", "keeps its turn, and is first; if it comes back untried twice in a " +
		"row, it takes a new turn", func(e *env) {
		for name, back := range untried {
			for keep, want := range map[bool]string{false: "b1 c1 a2 a1", true: "b1 c1 a1 a2"} {
				e.Logf("%s: KeepPlace %v", name, keep)
				q := e.openIn(e.store, "queue", options{KeepPlace: keep})
				q.put("a1 b1 a2 c1")
				take := func() (*consumer, *lease) {
					c := q.consumer(task.Filter{})
					return c, c.first("a1")
				}
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
				e.ok(q.Drop(ctx))
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
		t, err := q.TakeBatch(ctx, 10)
		e.ok(err)
		if got := payloads(t); got != "b2 c1 a3" && got != "c1 b2 a3" && got != "c1 a3 b2" {
			e.Fatalf("order: %s", got)
		}
	}},
	{"KeepPlaceKick", "a task returns to its place among the tasks of its key", func(e *env) {
		q := e.open(options{KeepPlace: true})
		ids := q.put("a1 a2 a3 b1")
		q.bury(ids[1])
		q.first("a1").bury()
		q.kick(2, 2)
		q.order("b1 a1 a2 a3")
	}},
	{"KeepPlaceLate", "go to the place of its Put among the " +
		"tasks of its key and priority", func(e *env) {
		q := e.open(options{KeepPlace: true, MaxInFlightPerKey: 1})
		q.put("a1 a2 a3")
		q.first("a1").release(second)
		q.first("a2").release(2 * second)
		time.Sleep(2 * second)
		q.order("a1 a2 a3")
	}},
}

// inVain are all ways in which a task comes back that nobody could do.
var inVain = map[string]func(*consumer, *lease){
	"Release": func(_ *consumer, l *lease) { l.release(0) },
	"Snooze":  func(_ *consumer, l *lease) { l.snooze(0) },
	"Fail":    func(_ *consumer, l *lease) { l.fail(errOops) },
	"later":   func(_ *consumer, l *lease) { l.release(second); time.Sleep(second) },
	"snoozed": func(_ *consumer, l *lease) { l.snooze(second); time.Sleep(second) },
	"failed": func(_ *consumer, l *lease) {
		l.e.ok(l.Fail(ctx, errOops, second))
		time.Sleep(second)
	},
	"TTR": func(_ *consumer, l *lease) {
		time.Sleep(10 * second)
		l.e.is(l.Ack(ctx), task.ErrLeaseLost)
	},
	"Disconnect": func(c *consumer, _ *lease) { c.disconnect(); time.Sleep(second) },
	"Repeat":     func(_ *consumer, l *lease) { l.e.ok(l.Repeat(ctx, 0)) },
	"HoldKey": func(_ *consumer, l *lease) {
		l.e.ok(l.HoldKey(ctx, errOops, second))
		time.Sleep(second)
	},
	"snoozeKey": func(_ *consumer, l *lease) {
		l.e.ok(l.HoldKey(ctx, nil, second))
		time.Sleep(second)
	},
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
func (e *env) inVain(back func(*consumer, *lease), o options) {
	q := e.openIn(e.store, "queue", o)
	q.put("a1 a2 a3 a4", withTTR)
	q.put("b1 b2 b3 b4 b5 b6 b7 b8")
	for inVain, done := 0, 0; done < 8; {
		c := q.consumer(task.Filter{})
		t, ok, err := c.TryTake(ctx)
		e.ok(err)
		if !ok {
			e.Fatal("there is no task")
		}
		if t.Key == "b" {
			done++
			e.ok(t.Ack(ctx))
		} else {
			inVain++
			back(c, &lease{t, e})
		}
		e.ok(c.Close(ctx))
		if inVain > 2*done+4 { // an untried task uses each turn twice
			e.Fatalf("a was served %d times, b %d times", inVain, done)
		}
	}
	e.ok(q.Drop(ctx))
}

var delayCases = []testCase{
	{"OnTime", "Changes that are due at a time happen at that time, " +
		"and not at the next call.", func(e *env) {
		q, start := e.open(), time.Now()
		take := q.taking()
		q.one("a1", task.PutOptions{Delay: 20 * second})
		q.one("b1", task.PutOptions{Delay: 10 * second}) // sooner than the known time
		time.Sleep(10 * second)
		got(take, "b1").release(5 * second)
		e.at("b1 taken", take.at, start, 10*second)
		take = q.taking()
		time.Sleep(time.Hour)
		got(take, "b1")
		e.at("b1 taken again", take.at, start, 15*second)
		q.first("a1")
	}},
}

var ttlCases = []testCase{
	{"ManyAtOnce", "At its end the task leaves the queue", func(e *env) {
		q := e.open()
		var tasks []task.Entry[string]
		for range 500 * few(5) {
			tasks = append(tasks,
				task.Entry[string]{Key: "a", Payload: "a1", Options: task.PutOptions{TTL: second}})
		}
		for range 2 {
			ids, err := q.PutBatch(ctx, tasks)
			e.ok(err)
			time.Sleep(second)
			q.none()
			q.gone(ids[0], ids[len(ids)-1])
			synctest.Wait()
			q.counts(0, 0, 0, 0, 0)
		}
	}},
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
