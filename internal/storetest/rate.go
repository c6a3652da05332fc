package storetest

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/fairq/fairq/task"
)

// perSecond is a KeyRate of one attempt a second.
func perSecond(burst int) options {
	return options{KeyRate: task.Rate{Limit: 1, Burst: burst}, CountKeys: 10}
}

// serveOthers serves enough other keys for a store to forget keys without state.
func (q *queue) serveOthers() {
	for i := range 1200 * few(5) / 5 {
		_, err := q.Put(ctx, fmt.Sprint("key ", i), "", task.PutOptions{})
		q.e.ok(err)
		t, _, err := q.TryTake(ctx)
		q.e.ok(err)
		q.e.ok(t.Ack(ctx))
	}
}

var rateCases = []testCase{
	{"Burst", "there are Burst tokens at first, and Limit more of them a second", func(e *env) {
		for _, change := range []func(o *options){
			func(*options) {},
			func(o *options) { o.KeepPlace = true },
			func(o *options) { o.MaxInFlightPerKey = 4 },
			func(o *options) { o.Quantum = 1 },
		} {
			o := perSecond(2)
			change(&o)
			q := e.openIn(e.store, "queue", o)
			q.put("a1 a2 a3 b1")
			q.one("a4", task.PutOptions{Priority: 1})
			q.order("a1 b1 a2")
			q.goesOn("a3", second).ack()
			q.order("a4")
			time.Sleep(time.Hour)
			q.put("a1 a2 a3")
			q.order("a1 a2")
			e.ok(q.Drop(ctx))
		}
	}},
	{"Rate", "A key without a token waits until it gets one", func(e *env) {
		q, start := e.open(perSecond(0)), time.Now()
		q.put("a1 a2 a3 a4 a5")
		for i := range 5 {
			take := q.taking()
			time.Sleep(time.Duration(min(i, 1)) * second)
			l := take.returns(nil)
			e.at("goes on", take.at, start, time.Duration(i)*second)
			l.ack()
		}
	}},
	{"Untried", "A task that is handed back untried gives its tokens back", func(e *env) {
		q := e.open(perSecond(2))
		q.put("a1 a2 a3")
		l := q.takes("a1 a2")
		take := q.taking()
		take.waits()
		l[0].back()
		got(take, "a1").ack()
		c := q.consumer(task.Filter{})
		time.Sleep(second)
		c.takes("a3")
		q.one("a4", task.PutOptions{})
		q.none()
		c.close()
		q.order("a3")
		q.goesOn("a4", second)
	}},
	{"Tried", "a task that failed, was snoozed or whose lease was lost does not", func(e *env) {
		for _, end := range []func(l *lease){
			func(l *lease) { l.release(0) },
			func(l *lease) { l.fail(errOops) },
			func(l *lease) { l.snooze(0) },
			func(l *lease) { e.ok(l.Repeat(ctx, 0)) },
			func(l *lease) { e.ok(l.HoldKey(ctx, errOops, 1)); time.Sleep(time.Nanosecond) },
			func(*lease) { time.Sleep(100 * time.Millisecond) },
		} {
			o := perSecond(1)
			o.TTR = 100 * time.Millisecond
			q := e.openIn(e.store, "queue", o)
			q.put("a1 a2")
			end(q.first("a1"))
			q.none()
			time.Sleep(second)
			q.taking().returns(nil)
			q.none()
			e.ok(q.Drop(ctx))
		}
	}},
	{"Cost", "with a Quantum as many as its task costs", func(e *env) {
		o := perSecond(10)
		o.Quantum = 1
		q := e.open(o)
		q.costing(9, "a1")
		q.costing(5, "a2 a3")
		q.takes("a1 a2")[1].back() // it has one token of 5
		q.takes("a2")
		q.none()
		q.goesOn("a3", 5*second)
	}},
	{"ShareTime", "With ShareTime each attempt takes one token", func(e *env) {
		o := perSecond(2)
		o.ShareTime = true
		q := e.open(o)
		q.put("a1 a2 a3")
		q.takes("a1 a2")
		q.none()
		q.goesOn("a3", second)
	}},
	{"Kept", "A task that is handed back untried gives its tokens back", func(e *env) {
		q := e.open(perSecond(2))
		q.put("a1")
		q.first("a1").ack()
		q.serveOthers()
		q.put("a2 a3")
		q.order("a2")
		q.goesOn("a3", second)
	}},
	{"HoldAndRate", "waits until it gets one, as with HoldKey", func(e *env) {
		q := e.open(perSecond(1))
		q.put("a1 a2 a3")
		l := q.first("a1")
		q.hold("a", second/2)
		time.Sleep(second / 4)
		l.back() // the rate is no reason any more
		q.none()
		time.Sleep(second / 4)
		q.takes("a1")
		q.hold("a", 3*second)
		q.goesOn("a2", 3*second)
	}},
	{"Queue", "KeyRate limits the attempts of each key, and Rate the " +
		"attempts of all keys together", func(e *env) {
		q, start := e.open(options{Rate: task.Rate{Limit: 1, Burst: 3}}), time.Now()
		ids := q.put("a1 b1 c1 d1 a2 b2")
		l := q.takes("a1 b1 c1")
		take := q.taking()
		take.waits()
		_, err := q.TakeID(ctx, ids[3])
		e.is(err, task.ErrBlocked)
		upcoming, err := q.Upcoming(ctx, 10)
		e.ok(err)
		equal(e, "upcoming", len(upcoming), 0)
		l[2].back()
		got(take, "c1").ack()
		take = q.taking()
		time.Sleep(second)
		got(take, "d1")
		e.at("goes on", take.at, start, second)
		q.none()
		time.Sleep(time.Hour)
		q.put("a3 b3")
		if upcoming, err = q.Upcoming(ctx, 10); len(upcoming) != 3 || err != nil {
			e.Fatalf("%d tasks are upcoming, %v; it should be 3", len(upcoming), err)
		}
		q.takes("a2 b2 a3")
		q.none()
	}},
}

// rateElsewhere is about processes that share a store.
var rateElsewhere = []testCase{
	{"Died", "KeyRate limits the attempts of each key, and Rate the " +
		"attempts of all keys together", func(e *env) {
		q := e.open(perSecond(2))
		q.put("a1 a2 a3 b1")
		q.takes("a1 b1 a2")
		e.kill()
		other := e.openIn(e.reopen(), "queue", perSecond(2))
		other.none()
		time.Sleep(second)
		other.takes("a3")
	}},
	{"Changed", "KeyRate limits the attempts of each key, and Rate the " +
		"attempts of all keys together", func(e *env) {
		q := e.open(perSecond(1))
		q.put("a1 a2 a3 a4")
		q.first("a1").ack()
		q.hold("b", second)
		q.close()
		other := e.reopenAs(e.reopen(), "queue", perSecond(2))
		other.put("b1")
		other.order("a2 a3")
		time.Sleep(second)
		left, err := other.TakeBatch(ctx, 3)
		e.ok(err)
		equal(e, "tasks", len(left), 2)
	}},
}

// BenchmarkRates takes, acks and puts tasks of 100,000 keys which may have one a second each, and
// of as many without a rate. Waits of keys end all the time: it reports how many tasks are done a
// second, which cannot be more than 100,000 with the rate.
func BenchmarkRates(b *testing.B, open func(b *testing.B) task.Store) {
	const keys, workers = 100_000, 50
	for name, rate := range map[string]task.Rate{"none": {}, "1 a second": {Limit: 1}} {
		b.Run(name, func(b *testing.B) {
			q, err := task.Open[int](ctx, open(b), b.Name(),
				&task.Options[int]{KeyRate: rate, MaxInFlightPerKey: 1})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = q.Close(ctx) })
			put := func(key string) {
				if _, err := q.Put(ctx, key, 0, task.PutOptions{}); err != nil {
					b.Error(err)
				}
			}
			var all sync.WaitGroup
			for i := range workers {
				all.Go(func() {
					for k := i; k < keys; k += workers {
						put(fmt.Sprint("key ", k))
					}
				})
			}
			all.Wait()
			b.SetParallelism(workers / runtime.GOMAXPROCS(0))
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					t, err := q.Take(ctx)
					if err != nil {
						b.Error(err)
						return
					}
					put(t.Key)
					if err := t.Ack(ctx); err != nil {
						b.Error(err)
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
		})
	}
}
