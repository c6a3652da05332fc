package storetest

import (
	"errors"
	"fmt"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

// reopenAs opens the queue, which nobody has open, with options that it was perhaps not made with.
// A Store may refuse that.
func (e *env) reopenAs(store task.Store, name string, o options) *queue {
	e.Helper()
	again, err := task.Open(ctx, store, name, &o)
	if errors.Is(err, task.ErrInvalid) {
		e.skip("the Options of a queue cannot be changed: " + err.Error())
	}
	e.ok(err)
	e.ok(again.Close(ctx))
	return e.openIn(store, name, o)
}

// anyOptions returns one of very different Options.
func (r *run) anyOptions() options {
	all := []options{
		{},
		{Capacity: 10},
		{Capacity: 10, KeyCapacity: 3, MaxInFlightPerKey: 2},
		{Capacity: 5, WhenFull: fairq.RejectOverShare},
		{Retention: second},
		{MaxInFlightPerKey: 1, Retention: time.Hour},
		{KeepPlace: true},
		{KeepPlace: true, MaxInFlightPerKey: 2},
		{KeyRate: task.Rate{Limit: 0.01, Burst: 3}},
	}
	o := all[r.IntN(len(all))]
	o.Grace = []time.Duration{second, 30 * second, 10 * time.Minute}[r.IntN(3)]
	return o
}

var changeCases = []testCase{
	{"ShorterGrace", "is the time for which a consumer that disconnects, or whose process " +
		"dies, keeps its leases", func(e *env) {
		e.open().close()
		q := e.reopenAs(e.store, "queue", options{Grace: second})
		q.put("a1")
		l := q.first("a1")
		time.Sleep(time.Minute)
		l.ack()
	}},
	{"IdleWithShorterGrace", "The Queue calls it at the time given to " +
		"Notifier.Due or earlier.", func(e *env) {
		e.open().close()
		e.reopenAs(e.store, "queue", options{Grace: second}).idles()
	}},
	{"TinyGrace", "When a process dies it is at least a second.", func(e *env) {
		q := e.openIn(e.store, "queue", options{Grace: 1})
		q.put("a1 b1")
		l := q.first("a1")
		q.idles()
		l.holds()
		c := q.consumer(task.Filter{})
		c.first("b1")
		c.disconnect()
		time.Sleep(time.Millisecond)
		q.order("b1")
		l.ack()
	}},
	{"LongerGrace", "is the time for which a consumer that disconnects, or whose process " +
		"dies, keeps its leases", func(e *env) {
		e.openIn(e.store, "queue", options{Grace: second}).close()
		q := e.reopenAs(e.store, "queue", options{Grace: time.Hour})
		q.put("a1 b1")
		q.first("a1")
		c := q.consumer(task.Filter{})
		l := c.first("b1")
		c.disconnect()
		time.Sleep(59 * time.Minute)
		l.holds()
		time.Sleep(time.Minute)
		l.lost(q)
	}},
	{"Random", "The tasks stay in the store.", func(e *env) {
		e.seeds(func(r *run) {
			name, store, n := r.q.Name(), e.store, 0
			alive := map[string]bool{} // payloads
			gone := func(t *task.Task[string]) { delete(alive, t.Payload) }
			for range 10 {
				r.q.close()
				if r.IntN(2) == 0 {
					store = e.reopen()
				}
				o := r.anyOptions()
				r.did("open with %+v", o)
				r.q = e.reopenAs(store, name, o)
				for range r.IntN(10) {
					n++
					key, delay := r.key(), time.Duration(r.IntN(2)*r.IntN(1000))*time.Millisecond
					payload := fmt.Sprintf("%s%d", key, n)
					_, err := r.q.Put(ctx, key, payload, task.PutOptions{UniqueKey: payload, Delay: delay})
					if alive[payload] = err == nil; errors.Is(err, fairq.ErrFull) {
						continue
					}
					r.ok(err)
				}
				for range r.IntN(5) {
					t, ok, err := r.q.TryTake(ctx)
					if r.ok(err); !ok {
						break
					}
					time.Sleep(time.Minute)
					switch r.IntN(3) {
					case 0:
						r.ok(t.Touch(ctx, 0))
					case 1:
						r.ok(t.Release(ctx, time.Duration(r.IntN(2))*second))
					default:
						r.ok(t.Ack(ctx))
						gone(t)
					}
				}
				if r.IntN(2) == 0 {
					r.q.idles()
				}
			}
			r.q.close()
			r.q = e.reopenAs(store, name, options{})
			time.Sleep(time.Minute)
			for {
				t, ok, err := r.q.TryTake(ctx)
				if r.ok(err); !ok {
					break
				}
				if !alive[t.Payload] {
					r.fail("task %s was taken, which is gone", t.Payload)
				}
				gone(t)
				r.ok(t.Ack(ctx))
			}
			for payload, is := range alive {
				if is {
					r.fail("task %s is missing", payload)
				}
			}
		})
	}},
}
