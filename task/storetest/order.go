package storetest

import (
	"testing/synctest"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

var orderCases = []testCase{
	{"DefaultPriority", "0 means Options.Priority; negative means 0, whatever that is", func(e *env) {
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
		q.first("a1").release(0)
		q.put("b1")
		q.first("b1").release(0)
		q.put("c1 b2")
		q.order("b1 c1 b2 a1")
	}},
	{"Rounds", "within a priority keys are served in rounds, as by a [fairq.Queue]", func(e *env) {
		q := e.open()
		q.put("a1 a2 a3 a4 b1 c1 b2")
		q.order("a1 b1 c1 a2 b2 a3 a4")
	}},
	{"InvalidWeight", "tells how many tasks of a key a round takes, 1 to [fairq.MaxWeight]", func(e *env) {
		weight := 0
		q := e.open(options{Weight: func(string) int { return weight }})
		q.refuses("a1", task.PutOptions{}, fairq.ErrWeight)
		weight = fairq.MaxWeight + 1
		q.refuses("a1", task.PutOptions{}, fairq.ErrWeight)
		weight = fairq.MaxWeight
		q.put("a1")
	}},
	{"Retry", "So what is tried again after a delay or by Fail queues up like new work", func(e *env) {
		q := e.open()
		q.put("a1 a2 b1 b2 b3")
		q.first("a1").release(second)
		time.Sleep(second)
		q.order("b1 a2 b2 b3 a1")
	}},
	{"Flood", "a key whose tasks all fail does not flood the others", func(e *env) {
		q := e.open()
		q.put("a1 a2 a3 a4 a5 a6 b1 b2 b3")
		var order string
		for range 12 {
			t, err := q.Take(ctx)
			e.ok(err)
			if order += t.Key; t.Key == "b" {
				e.ok(t.Ack(ctx))
				continue
			}
			e.ok(t.Fail(ctx, errOops, time.Millisecond))
			time.Sleep(time.Millisecond)
		}
		equal(e, "keys in order", order, "abababaaaaaa")
	}},
	{"BuryByOthers", "when it is kicked", func(e *env) {
		q := e.open()
		q.bury(q.put("a1 b1 c1")[0])
		q.put("b2")
		q.kick(1, 1)
		q.order("b1 c1 a1 b2")
	}},
	{"DeleteKeepsTurn", "the tasks of its key behind it may move up by one turn", func(e *env) {
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
	{"KeepPlaceKick", "Options.KeepPlace makes all of them return to the place of their Put.", func(e *env) {
		q := e.open(options{KeepPlace: true})
		ids := q.put("a1 a2 a3 b1")
		q.bury(ids[1])
		q.first("a1").bury()
		q.kick(2, 2)
		q.order("a1 b1 a2 a3")
	}},
	{"KeepPlaceLate", "go to where it was put, instead of behind what its key has queued", func(e *env) {
		q := e.open(options{KeepPlace: true, MaxInFlightPerKey: 1})
		q.put("a1 a2 a3")
		q.first("a1").release(second)
		q.first("a2").release(2 * second)
		time.Sleep(2 * second)
		q.order("a1 a2 a3")
	}},
}

var delayCases = []testCase{
	{"OnTime", "What has a time happens at that time, not when somebody looks.", func(e *env) {
		q, start := e.open(), time.Now()
		take := q.taking()
		q.one("a1", task.PutOptions{Delay: 20 * second})
		q.one("b1", task.PutOptions{Delay: 10 * second}) // sooner than what is known
		time.Sleep(10 * second)
		got(take, "b1").release(5 * second)
		e.at("b1 taken", take.at, start, 10*second)
		take = q.taking()
		time.Sleep(time.Hour)
		got(take, "b1")
		e.at("b1 taken again", take.at, start, 15*second)
		q.first("a1")
	}},
	{"Many", "What has a time happens at that time, not when somebody looks.", func(e *env) {
		q, start := e.open(), time.Now()
		for i := range 50 {
			q.one("a1", task.PutOptions{Delay: time.Duration(i*37%50+1) * second})
		}
		for i := range 50 {
			take := q.taking()
			time.Sleep(second)
			got(take, "a1")
			e.at("taken", take.at, start, time.Duration(i+1)*second)
		}
	}},
}

var ttlCases = []testCase{
	{"WithoutACall", "What has a time happens at that time, not when somebody looks.", func(e *env) {
		q := e.open(options{Capacity: 1})
		q.one("a1", task.PutOptions{TTL: second})
		put := q.putting("b1")
		put.waits()
		time.Sleep(second - time.Millisecond)
		put.waits()
		time.Sleep(time.Millisecond)
		put.returns(nil)
	}},
	{"ManyAtOnce", "Then it leaves the queue", func(e *env) {
		q := e.open()
		var tasks []task.Batch[string]
		for range 500 * few(5) {
			tasks = append(tasks, task.Batch[string]{Key: "a", Payload: "a1", Options: task.PutOptions{TTL: second}})
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
	{"Default", "0 means Options.TTL; [Forever] means no end", func(e *env) {
		q := e.open(options{TTL: second})
		one, two := q.one("a1", task.PutOptions{}), q.one("a2", task.PutOptions{TTL: 2 * second})
		never := q.one("a3", task.PutOptions{TTL: task.Forever})
		equal(e, "end of life", q.peek(never).Info().Expires, time.Time{})
		time.Sleep(second)
		q.gone(one)
		time.Sleep(second)
		q.gone(two)
		time.Sleep(ages)
		q.order("a3")
	}},
}
