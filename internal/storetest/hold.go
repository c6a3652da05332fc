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
		for _, o := range modes {
			q := e.openIn(e.store, "queue", o)
			q.put("a1 b1")
			q.hold("a", 10*second)
			q.hold("c", 5*second) // it has no tasks
			q.put("a2 c1")
			q.one("a3", task.PutOptions{Priority: 1})
			q.order("b1")
			q.none()
			q.counts(4, 0, 0, 0, 0)
			q.goesOn("c1", 5*second).ack()
			q.goesOn("a1", 4*second).ack()
			q.order("a2 a3")
			e.ok(q.Drop(ctx))
		}
	}},
	{"Onwards", "A longer wait of the key stays.", func(e *env) {
		q := e.open()
		q.put("a1 a2 a3")
		q.hold("a", 10*second)
		q.hold("a", 5*second)
		l := q.goesOn("a1", 10*second)
		q.hold("a", 5*second)
		q.hold("a", 10*second)
		l.ack()
		l = q.goesOn("a2", 10*second)
		q.hold("a", 20*second)
		e.ok(l.HoldKey(ctx, nil, second))
		q.goesOn("a2", 20*second).ack()
		q.order("a3")
	}},
	{"Paused", "undoes PauseKey and HoldKey", func(e *env) {
		q := e.open()
		q.put("a1")
		q.hold("a", 10*second)
		e.ok(q.PauseKey(ctx, "a"))
		take := q.taking()
		time.Sleep(time.Hour)
		take.waits()
		e.ok(q.ResumeKey(ctx, "a"))
		got(take, "a1").back()
		q.hold("a", time.Hour)
		e.ok(q.PauseKey(ctx, "a"))
		q.none()
		e.ok(q.ResumeKey(ctx, "a"))
		q.order("a1")
		q.put("a1 a2")
		e.ok(q.PauseKey(ctx, "a"))
		e.ok(q.ResumeKey(ctx, "a"))
		time.Sleep(time.Hour)
		q.order("a1 a2")
	}},
	{"HandBack", "hands the task back at its place, first of its key, and makes " +
		"the whole key wait for d", func(e *env) {
		for _, o := range modes {
			q := e.openIn(e.store, "queue", o)
			q.put("a1 a2 a3 b1 b2")
			w := q.watch(ctx)
			l := q.first("a1")
			e.ok(l.HoldKey(ctx, nil, 10*second))
			equal(e, "state", l.Info().State, task.Ready)
			l.lost(q)
			equal(e, "attempts", q.peek(l.ID).Attempts, 0)
			q.order("b1 b2")
			w.saw("take a, release a, take b, ack b, take b, ack b")
			l = q.goesOn("a1", 10*second)
			e.ok(l.HoldKey(ctx, nil, 10*second))
			q.none()
			l = q.goesOn("a1", 10*second)
			equal(e, "attempts", l.Attempts, 1)
			e.ok(l.HoldKey(ctx, nil, 0))
			q.order("a1 a2 a3")
			e.ok(q.Drop(ctx))
		}
	}},
	{"Failed", "After its last attempt it is buried, and the key does not wait.", func(e *env) {
		for _, o := range modes {
			o.MaxAttempts = 3
			q := e.openIn(e.store, "queue", o)
			q.put("a1 a2 b1 a3")
			for i := range 2 {
				l := q.first("a1")
				e.ok(l.HoldKey(ctx, errOops, 10*second))
				equal(e, "attempts", q.peek(l.ID).Attempts, i+1)
				equal(e, "error", q.peek(l.ID).Info().Err.Message, errOops.Error())
				if i == 0 {
					q.order("b1")
				}
				q.none()
				time.Sleep(10 * second)
			}
			l := q.first("a1")
			e.ok(l.HoldKey(ctx, errOops, 10*second))
			l.now(q, task.Buried)
			q.order("a2 a3")
			e.ok(q.Drop(ctx))
		}
	}},
	{"Left", "The wait ends when the task leaves its place", func(e *env) {
		unique := task.PutOptions{UniqueKey: "u", Group: "g", Replace: true}
		for i, leave := range []func(q *queue, id task.ID) error{
			func(q *queue, id task.ID) error { return q.Delete(ctx, id) },
			func(q *queue, id task.ID) error { return q.Bury(ctx, id, errOops) },
			func(q *queue, id task.ID) error {
				return q.Change(ctx, id, task.Change[string]{Delay: new(time.Hour)})
			},
			func(q *queue, id task.ID) error {
				return q.Change(ctx, id, task.Change[string]{Priority: new(1)})
			},
			func(q *queue, _ task.ID) error { return q.CancelGroup(ctx, "g") },
			func(*queue, task.ID) error { time.Sleep(10 * second); return nil }, // to its deadline
			func(q *queue, _ task.ID) error { _, err := q.Put(ctx, "a", "a2", unique); return err },
		} {
			for _, reasons := range []int{1, 2} { // to wait; with two it does not end
				q := e.openIn(e.store, "queue", options{KeepPlace: true, MaxInFlightPerKey: i % 2})
				o := unique
				o.Deadline = time.Now().Add(10 * second)
				q.one("a1", o)
				e.ok(q.StartGroup(ctx, "g"))
				l := q.first("a1")
				if i < 6 { // else it is put in place of a1
					q.put("a2")
				}
				e.ok(l.HoldKey(ctx, errOops, 20*second))
				if reasons == 2 {
					q.hold("a", second)
				}
				take := q.taking()
				take.waits()
				e.ok(leave(q, l.ID))
				if reasons == 2 {
					take.waits()
					time.Sleep(20 * second)
				}
				got(take, "a2").ack()
				e.ok(q.Drop(ctx))
			}
		}
	}},
	{"Gone", "If reason is nil the attempt does not count", func(e *env) {
		q := e.open()
		for _, reason := range []error{errOops, nil} {
			q.one("a1", task.PutOptions{Deadline: time.Now().Add(second)})
			q.put("a2")
			l := q.first("a1")
			time.Sleep(second)
			e.ok(l.HoldKey(ctx, reason, second))
			l.now(q, 0)
			if reason == nil { // then it is not about the task
				q.none()
				time.Sleep(second)
			}
			q.order("a2")
		}
	}},
	{"SameTurn", "and the task keeps its turn, unless it was " +
		"returned the last time too", func(e *env) {
		q := e.open()
		q.put("a1 b1 c1 a2 b2")
		e.ok(q.first("a1").HoldKey(ctx, nil, second))
		time.Sleep(second)
		e.ok(q.first("a1").HoldKey(ctx, nil, second))
		time.Sleep(second)
		q.order("b1 c1 a1 b2 a2")
	}},
	{"NoMissedTurn", "with the next turn for the key if it has missed one or more", func(e *env) {
		q := e.open()
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
		e.ok(l[0].HoldKey(ctx, nil, 10*second))
		q.none()
		l[2].holds()
		l[2].ack()
		q.none()
		time.Sleep(10 * second)
		l = q.takes("a1 a3")
		q.none()
		q.hold("a", second)
		l[0].ack()
		time.Sleep(second - time.Millisecond)
		q.none()
		time.Sleep(time.Millisecond)
		q.order("a4")
	}},
	{"KeyStats", "but not the keys that wait after HoldKey, because there may be many", func(e *env) {
		q, start := e.open(), time.Now()
		q.put("a1 b1")
		q.hold("a", time.Hour)
		q.hold("c", time.Hour)
		e.ok(q.PauseKey(ctx, "d"))
		q.hold("d", time.Minute)
		all := map[string]fairq.KeyStat[string]{}
		stats, err := q.KeyStats(ctx, 10, fairq.ByBacklog)
		e.ok(err)
		for _, s := range stats {
			all[s.Key] = s
		}
		equal(e, "keys", len(all), 3) // c has no tasks
		e.at("WaitsUntil", all["a"].WaitsUntil, start, time.Hour)
		e.at("WaitsUntil", all["d"].WaitsUntil, start, time.Minute)
		equal(e, "WaitsUntil", all["b"].WaitsUntil, time.Time{})
		equal(e, "Paused", [2]bool{all["a"].Paused, all["d"].Paused}, [2]bool{false, true})
	}},
	{"Many", "The wait costs other keys nothing, outlasts this " +
		"process, and ends by itself", func(e *env) {
		q := e.open()
		n := 1200 * few(5) / 5
		for i := range n {
			key := fmt.Sprint("key ", i)
			_, err := q.Put(ctx, key, key, task.PutOptions{})
			e.ok(err)
			q.hold(key, second)
		}
		q.none()
		take := q.taking()
		time.Sleep(second)
		take.returns(nil).ack()
		taken := map[string]bool{}
		for len(taken) < n-1 {
			t, ok, err := q.TryTake(ctx)
			e.ok(err)
			if !ok || taken[t.Payload] {
				e.Fatalf("%d of %d keys go on", len(taken)+1, n)
			}
			taken[t.Payload] = true
			e.ok(t.Ack(ctx))
		}
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
		l.holds()
		e.ok(l.HoldKey(ctx, nil, task.MaxDuration))
		q.none()
		e.ok(q.ResumeKey(ctx, "a"))
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
		e.ok(l.HoldKey(ctx, errOops, 10*soon))
		later()
		q.none()
		e.ok(q.ResumeKey(ctx, "a"))
		later()
		other.order("a1")
		if took := time.Since(start); took > 20*soon {
			e.Fatalf("it took %v", took)
		}
	}},
	{"Died", "outlasts this process, and ends by itself", func(e *env) {
		q := e.open()
		q.put("a1 b1")
		e.ok(q.first("a1").HoldKey(ctx, nil, time.Hour))
		e.kill()
		other := e.openIn(e.reopen(), "queue")
		other.order("b1")
		other.goesOn("a1", time.Hour)
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
