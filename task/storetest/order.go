package storetest

import (
	"testing/synctest"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

var orderCases = []testCase{
	{"Priority", "tasks of priority 0 are taken before those of priority 1, and so on up to [MaxPriority]", func(e *env) {
		q := e.open()
		for name, p := range map[string]int{"a1": 2, "b1": 0, "c1": task.MaxPriority, "d1": 1, "e1": 1000} {
			q.one(name, task.PutOptions{Priority: p})
		}
		q.order("b1 d1 a1 e1 c1")
	}},
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
	{"RoundsOfPriorities", "within a priority keys are served in rounds", func(e *env) {
		q := e.open()
		q.put("a1 a2 a3", task.PutOptions{Priority: 1})
		q.put("a4 a5 b1")
		q.put("c1 b2", task.PutOptions{Priority: 1})
		q.order("a4 b1 a5 a1 c1 b2 a2 a3")
	}},
	{"Arrival", "within a key tasks are taken in the order in which they became ready", func(e *env) {
		q := e.open()
		q.put("a3 a1 a2 a5 a4")
		q.one("a7", task.PutOptions{Delay: second})
		q.one("a6", task.PutOptions{Delay: 2 * second})
		q.put("a8")
		time.Sleep(3 * second)
		q.order("a3 a1 a2 a5 a4 a8 a7 a6")
	}},
	{"NextRound", "says which round a key joins that has no task ready", func(e *env) {
		q := e.open()
		q.put("a1 a2 b1")
		q.first("a1").ack()
		q.put("c1")
		q.order("b1 a2 c1")
	}},
	{"ThisRound", "says which round a key joins that has no task ready", func(e *env) {
		q := e.open(options{Newcomers: fairq.ThisRound})
		q.put("a1 a2 b1 d1")
		q.takes("a1 b1")
		q.put("b2 c1") // b has been served
		q.order("d1 c1 a2 b2")
	}},
	{"Weight", "tells how many tasks of a key a round takes", func(e *env) {
		q := e.open(options{Weight: func(key string) int { return map[string]int{"a": 3, "b": 1, "c": 2}[key] }})
		q.put("b1 b2 b3 a1 a2 a3 a4 a5 c1 c2 c3")
		q.order("b1 a1 a2 a3 c1 c2 b2 a4 a5 c3 b3")
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
	{"HandedBack", "keeps the turn that it was taken by, and is first", func(e *env) {
		q := e.open()
		q.put("a1 b1 c1 d1 a2")
		l := q.takes("a1 b1 c1")
		l[2].release(0)
		l[0].release(0)
		q.order("a1 c1 d1 a2")
	}},
	{"Failed", "a key whose tasks all fail does not flood the others", func(e *env) {
		q := e.open()
		q.put("a1 a2 b1 b2")
		for range 3 {
			q.first("a1").fail(errOops)
			q.first("b1").fail(errOops)
			q.first("a2").fail(errOops)
			q.first("b2").fail(errOops)
		}
		q.order("a1 b1 a2 b2")
	}},
	{"HandedBackOfOneKey", "keeps the turn that it was taken by, and is first", func(e *env) {
		q := e.open()
		q.put("a1 a2 a3 b1 b2")
		l := q.takes("a1 b1 a2 b2")
		l[2].release(0)
		l[1].release(0)
		l[0].release(0)
		q.order("a1 b1 a2 a3")
	}},
	{"HandedBackAgain", "keeps the turn that it was taken by, and is first", func(e *env) {
		q := e.open()
		q.put("a1 b1 a2")
		l := q.first("a1")
		for range 5 {
			l.release(0)
			l = q.first("a1")
		}
		m := q.first("b1")
		l.release(0)
		m.release(0)
		q.order("a1 b1 a2")
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
	{"DelayEnds", "when its delay ends", func(e *env) {
		q := e.open()
		q.one("a1", task.PutOptions{Delay: second})
		q.put("a2 b1 b2")
		time.Sleep(second)
		q.put("c1")
		q.order("a2 b1 c1 b2 a1")
	}},
	{"Kick", "when it is kicked", func(e *env) {
		q := e.open()
		id := q.put("a1 a2 b1 b2")[0]
		q.first("a1").bury()
		e.ok(q.KickID(ctx, id))
		q.order("b1 a2 b2 a1")
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
	{"KeepPlaceDelay", "makes every task that becomes ready again, or for the first time after a delay, go to where it was put", func(e *env) {
		q := e.open(options{KeepPlace: true})
		q.one("a1", task.PutOptions{Delay: second})
		q.put("a2 b1 b2")
		time.Sleep(second)
		q.order("a1 b1 a2 b2")
	}},
	{"KeepPlaceRelease", "Options.KeepPlace makes all of them return to the place of their Put.", func(e *env) {
		q := e.open(options{KeepPlace: true})
		q.put("a1 a2 a3 b1")
		q.first("a1").release(second)
		time.Sleep(second)
		q.order("a1 b1 a2 a3")
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
	{"Put", "is how long it takes until the task is ready", func(e *env) {
		q, start := e.open(), time.Now()
		id := q.one("a1", task.PutOptions{Delay: 10 * second})
		q.state(task.Delayed, id)
		e.at("due", q.peek(id).Info().Until, start, 10*second)
		time.Sleep(10*second - time.Millisecond)
		q.none()
		q.state(task.Delayed, id)
		time.Sleep(time.Millisecond)
		l := q.first("a1")
		equal(e, "until, without TTR", l.Info().Until, time.Time{})
	}},
	{"Release", "After a delay it queues up like new work", func(e *env) {
		q, start := e.open(), time.Now()
		id := q.put("a1")[0]
		time.Sleep(second)
		q.first("a1").release(10 * second)
		q.state(task.Delayed, id)
		e.at("due", q.peek(id).Info().Until, start, 11*second)
		time.Sleep(10*second - time.Millisecond)
		q.none()
		time.Sleep(time.Millisecond)
		q.first("a1")
	}},
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
	{"Buried", "makes buried tasks of a Key and Kind ready", func(e *env) {
		q := e.open()
		id := q.one("a1", task.PutOptions{Delay: second})
		q.bury(id)
		equal(e, "until", q.peek(id).Info().Until, time.Time{})
		q.kick(1, 1)
		q.state(task.Ready, id)
		q.order("a1")
	}},
	{"Removed", "A lease on it is lost.", func(e *env) {
		q := e.open()
		ids := q.put("a1 b1", task.PutOptions{Delay: second})
		q.remove(ids[0])
		q.bury(ids[1])
		time.Sleep(second)
		q.none()
		q.counts(0, 0, 0, 1, 0)
		q.kick(1, 1)
		q.order("b1")
	}},
}

var ttlCases = []testCase{
	{"OnTime", "is how long the task is of use, from Put on, to which each delay is added. Then it leaves the queue", func(e *env) {
		q, start := e.open(), time.Now()
		w := q.watch(ctx)
		id := q.one("a1", task.PutOptions{TTL: 10 * second})
		e.at("end of life", q.peek(id).Info().Expires, start, 10*second)
		time.Sleep(10*second - time.Millisecond)
		q.state(task.Ready, id)
		time.Sleep(time.Hour)
		e.at("end", w.saw("put a, ttl a")[1].Time, start, 10*second)
		q.none()
		q.gone(id)
		equal(e, "expiries", q.stats().Expiries, 1)
	}},
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
	{"Delayed", "from Put on, to which each delay is added", func(e *env) {
		q, start := e.open(), time.Now()
		id := q.one("a1", task.PutOptions{TTL: 10 * second, Delay: 5 * second})
		e.at("end of life", q.peek(id).Info().Expires, start, 15*second)
		time.Sleep(5 * second)
		q.first("a1").release(7 * second)
		e.at("end of life", q.peek(id).Info().Expires, start, 22*second)
		time.Sleep(17*second - time.Millisecond)
		q.state(task.Ready, id)
		time.Sleep(time.Millisecond)
		q.gone(id)
	}},
	{"Running", "Then it leaves the queue, unless it is running: then it may be finished", func(e *env) {
		q := e.open()
		id := q.one("a1", task.PutOptions{TTL: second})
		l := q.first("a1")
		time.Sleep(time.Hour)
		q.state(task.Taken, id)
		l.ack()
		equal(e, "acks and expiries", [2]uint64{q.stats().Acks, q.stats().Expiries}, [2]uint64{1, 0})
	}},
	{"NoRetry", "then it may be finished, but neither tried again nor buried", func(e *env) {
		q := e.open()
		w := q.watch(ctx)
		ids := q.put("a1 b1", task.PutOptions{TTL: 10 * second})
		c1 := q.one("c1", task.PutOptions{TTL: 10 * second, TTR: 20 * second})
		l := q.takes("a1 b1 c1")
		w.saw("put a, put b, put c, take a, take b, take c")
		time.Sleep(10 * second)
		l[0].release(0)
		q.gone(ids[0])
		l[1].fail(errOops)
		q.gone(ids[1])
		q.state(task.Taken, c1)
		time.Sleep(10 * second)
		q.gone(c1)
		w.saw("release a, ttl a, release b, ttl b, ttr c, ttl c")
		equal(e, "expiries", q.stats().Expiries, 3)
	}},
	{"NoRetryLater", "but neither tried again nor buried", func(e *env) {
		q := e.open()
		id := q.one("a1", task.PutOptions{TTL: 10 * second})
		l := q.first("a1")
		time.Sleep(12 * second)
		l.release(5 * second)
		take := q.taking()
		time.Sleep(ages)
		take.waits()
		q.gone(id)
	}},
	{"NotBuried", "but neither tried again nor buried", func(e *env) {
		q := e.open()
		ids := q.put("a1 b1", task.PutOptions{TTL: second, MaxAttempts: 1})
		ids = append(ids, q.one("c1", task.PutOptions{TTL: second, TTR: 2 * second, MaxAttempts: 1}))
		l := q.takes("a1 b1 c1")
		time.Sleep(second)
		l[0].bury()
		l[1].fail(errOops)
		q.gone(ids[:2]...)
		time.Sleep(second)
		q.gone(ids[2])
		equal(e, "expiries", q.stats().Expiries, 3)
	}},
	{"InTime", "but neither tried again nor buried", func(e *env) {
		q := e.open()
		id := q.one("a1", task.PutOptions{TTL: 10 * second})
		l := q.first("a1")
		time.Sleep(10*second - time.Millisecond)
		l.release(0)
		q.state(task.Ready, id)
		time.Sleep(time.Millisecond)
		q.gone(id)
	}},
	{"BuriedAndHeld", "Then it leaves the queue, unless it is running", func(e *env) {
		q := e.open()
		b := q.one("b1", task.PutOptions{TTL: second})
		q.first("b1").bury()
		h := q.one("h1", task.PutOptions{TTL: second, Group: "g"})
		time.Sleep(second)
		q.gone(b, h)
		equal(e, "expiries", q.stats().Expiries, 2)
		e.is(q.StartGroup(ctx, "g"), task.ErrNotFound)
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
