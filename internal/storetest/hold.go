package storetest

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

func (q *queue) hold(key string, d time.Duration) { q.e.Helper(); q.e.ok(q.HoldKey(ctx, key, d)) }

// goesOn checks that the next task of a key that waits is taken after so long, and not before.
func (q *queue) goesOn(want string, after time.Duration) *lease {
	q.e.Helper()
	start, take := time.Now(), q.taking()
	take.waits()
	time.Sleep(after + second)
	l := got(take, want)
	q.e.at("goes on", take.at, start, after)
	return l
}

var holdCases = []testCase{
	{"Others", "makes a key wait for d, which must be more than 0: none of its " +
		"tasks is taken until then", func(e *env) {
		e.each(modes, func(q *queue) {
			q.put("a1 b1")
			q.hold("a", 10*second)
			q.hold("c", 5*second) // it has no tasks
			q.put("a2 c1")
			q.one("a3", task.PutOptions{Priority: 1})
			q.order("b1")
			q.counts(4, 0, 0, 0, 0)
			q.goesOn("c1", 5*second).ack()
			q.goesOn("a1", 4*second).ack()
			q.order("a2 a3")
		})
	}},
	{"Onwards", "A longer wait of the key stays.", func(e *env) {
		q := e.open()
		q.put("a1 a2")
		q.hold("a", 10*second)
		q.hold("a", 5*second)
		l := q.goesOn("a1", 10*second)
		q.hold("a", 5*second)
		q.hold("a", 20*second)
		l.holdKey(nil, second)
		q.goesOn("a1", 20*second)
	}},
	{"Paused", "undoes PauseKey and HoldKey", func(e *env) {
		q := e.open()
		q.put("a1")
		q.hold("a", 10*second)
		q.pauseKey("a")
		take := q.taking()
		time.Sleep(time.Hour)
		take.waits()
		q.resumeKey("a")
		got(take, "a1").back()
		q.hold("a", time.Hour)
		q.pauseKey("a")
		q.none()
		q.resumeKey("a")
		q.order("a1")
	}},
	{"HandBack", "hands the task back at its place, first of its key, and makes " +
		"the whole key wait for d ... If reason is nil the attempt does not count", func(e *env) {
		e.each(modes, func(q *queue) {
			q.put("a1 a2 a3 b1 b2")
			w := q.watch(ctx)
			l := q.first("a1")
			l.holdKey(nil, 10*second)
			l.now(q, task.Ready)
			equal(e, "attempts", q.peek(l.ID).Attempts, 0)
			q.order("b1 b2")
			w.saw("take a, release a, take b, ack b, take b, ack b")
			l = q.goesOn("a1", 10*second)
			l.holdKey(nil, 10*second)
			l = q.goesOn("a1", 10*second)
			l.holdKey(nil, 0)
			q.order("a1 a2 a3")
		})
	}},
	{"Failed", "After its last attempt it is buried, and the key does not wait.", func(e *env) {
		q := e.open(options{MaxAttempts: 2})
		q.put("a1 a2 b1 a3")
		l := q.first("a1")
		l.holdKey(errOops, 10*second)
		equal(e, "error", q.peek(l.ID).Info().Err.Message, errOops.Error())
		q.order("b1")
		l = q.goesOn("a1", 10*second)
		l.holdKey(errOops, 10*second)
		l.now(q, task.Buried)
		q.order("a2 a3")
	}},
	{"Left", "The wait ends when the task leaves its place", func(e *env) {
		o := task.PutOptions{UniqueKey: "u", Group: "g", Replace: true}
		for i, leave := range []func(q *queue, id task.ID){
			(*queue).remove,
			(*queue).bury,
			func(q *queue, id task.ID) { q.changes(id, task.Change[string]{Delay: time.Hour}) },
			func(q *queue, id task.ID) { q.changes(id, task.Change[string]{Priority: 1}) },
			func(q *queue, _ task.ID) { q.cancel() },
			func(*queue, task.ID) { time.Sleep(10 * second) }, // to its deadline
			func(q *queue, _ task.ID) { q.one("a2", o) },
		} {
			for reasons, wait := range []time.Duration{0, 20 * second} { // with two it does not end
				e.each([]options{{KeepPlace: true, MaxInFlightPerKey: i % 2}}, func(q *queue) {
					o.Deadline = time.Now().Add(10 * second)
					q.one("a1", o)
					q.start("g")
					l := q.first("a1")
					if i < 6 { // else it is put in place of a1
						q.put("a2")
					}
					l.holdKey(errOops, 20*second)
					if reasons > 0 {
						q.hold("a", second)
					}
					take := q.taking()
					take.waits()
					o.Deadline = time.Time{}
					if leave(q, l.ID); wait > 0 {
						take.waits()
					}
					time.Sleep(wait)
					got(take, "a2")
				})
			}
		}
	}},
	{"SameTurn", "and the task keeps its turn, unless it was " +
		"returned the last time too ... with the next turn for the key if it has missed one " +
		"or more", func(e *env) {
		q := e.open()
		q.put("a1 b1 c1 a2 b2")
		for range 2 {
			q.first("a1").holdKey(nil, second)
			time.Sleep(second)
		}
		q.order("b1 c1 a1 b2 a2")
		q.put("a1 b1 c1 a2 b2")
		q.first("a1").ack()
		q.hold("a", second)
		time.Sleep(second)
		q.order("b1 c1 a2 b2")
	}},
	{"InFlight", "Leases stay", func(e *env) {
		q := e.open(options{MaxInFlightPerKey: 2})
		q.put("a1 a2 a3 a4 b1")
		l := q.takes("a1 b1 a2")
		l[0].holdKey(nil, 10*second)
		q.none()
		l[2].ack()
		q.none()
		time.Sleep(10 * second)
		l = q.takes("a1 a3")
		q.hold("a", second)
		l[0].ack()
		q.goesOn("a4", second)
	}},
	{"KeyStats", "but not the keys that wait after HoldKey, because there may be many", func(e *env) {
		q, start := e.open(), time.Now()
		q.put("a1 b1")
		q.hold("a", time.Hour)
		q.hold("c", time.Hour)
		q.pauseKey("d")
		q.hold("d", time.Minute)
		stats, err := q.KeyStats(ctx, 10, fairq.ByBacklog)
		e.ok(err)
		type shown struct {
			wait   time.Duration
			paused bool
		}
		all := map[string]shown{}
		for _, s := range stats {
			all[s.Key] = shown{max(0, s.WaitsUntil.Sub(start)), s.Paused}
		}
		equal(e, "keys", all, map[string]shown{
			"a": {time.Hour, false}, "b": {}, "d": {time.Minute, true}, // c has no tasks
		})
	}},
	{"Many", "The wait costs other keys nothing, outlasts this " +
		"process, and ends by itself", func(e *env) {
		q := e.open()
		n := 1200 * few(5) / 5
		for i := range n {
			key := fmt.Sprint("key ", i)
			e.ok(errOf(q.Put(ctx, key, key, task.PutOptions{})))
			q.hold(key, second)
		}
		take := q.taking()
		take.waits()
		time.Sleep(second)
		for take.returns(nil).ack(); n > 1; n-- {
			t, err := q.Take(ctx)
			e.ok(err)
			e.ok(t.Ack(ctx))
		}
		q.none()
	}},
	{"Invalid", "is returned for an invalid argument or option", func(e *env) {
		q := e.open()
		q.put("a1")
		l := q.first("a1")
		for _, d := range []time.Duration{-1, math.MinInt64, task.MaxDuration + 1} {
			e.is(l.HoldKey(ctx, nil, d), task.ErrInvalid)
			e.is(q.HoldKey(ctx, "a", d), task.ErrInvalid)
		}
		e.is(q.HoldKey(ctx, "a", 0), task.ErrInvalid)
		e.is(q.HoldKey(ctx, strings.Repeat("k", task.MaxName+1), 1), task.ErrInvalid)
		l.holdKey(nil, task.MaxDuration)
		q.none()
		q.resumeKey("a")
		q.order("a1")
	}},
}

// holdElsewhere is about processes that share a store.
var holdElsewhere = []testCase{
	{"Shared", "makes a key wait for d, which must be more than 0: none of its " +
		"tasks is taken until then", func(e *env) {
		q, other := e.two()
		q.put("a1 b1")
		q.hold("a", 10*soon)
		later()
		other.order("b1")
		other.none()
		start, take := time.Now(), other.taking()
		time.Sleep(8 * soon)
		take.waits()
		time.Sleep(2 * soon)
		later()
		l := got(take, "a1")
		l.holdKey(errOops, 10*soon)
		later()
		q.none()
		q.resumeKey("a")
		later()
		other.order("a1")
		if took := time.Since(start); took > 20*soon {
			e.Fatalf("it took %v", took)
		}
	}},
}

// BenchmarkWaiting times a put, take and ack of one key, beside 1,000 keys with a task that wait
// and beside 100,000. The ratio of the two is what matters.
func BenchmarkWaiting(b *testing.B, open func(b *testing.B) task.Store) {
	for _, keys := range []int{1000, 100_000} {
		b.Run(fmt.Sprint(keys), func(b *testing.B) {
			q, err := task.Open[int](ctx, open(b), b.Name(), nil)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = q.Close(ctx) })
			one := func(key string, f func() error) {
				if _, err := q.Put(ctx, key, 0, task.PutOptions{}); err != nil {
					b.Fatal(err)
				}
				if err := f(); err != nil {
					b.Fatal(err)
				}
			}
			var waiting sync.WaitGroup
			for i := range 50 {
				waiting.Go(func() {
					for k := i; k < keys; k += 50 {
						key := fmt.Sprint("key ", k)
						one(key, func() error { return q.HoldKey(ctx, key, time.Hour) })
					}
				})
			}
			waiting.Wait()
			done := func() error {
				t, ok, err := q.TryTake(ctx)
				if !ok || err != nil {
					return fmt.Errorf("a task was taken: %v; %w", ok, err)
				}
				return t.Ack(ctx)
			}
			for range 100 {
				one("goes on", done)
			}
			for b.Loop() {
				one("goes on", done)
			}
		})
	}
}
