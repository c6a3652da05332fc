package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

// two opens the queue twice; in theme Processes as two processes would.
func (e *env) two(o ...options) (q, other *queue) {
	e.Helper()
	store := e.store
	if e.reopener != nil {
		store = e.reopen()
	}
	return e.open(o...), e.openIn(store, "queue", o...)
}

// later lets time pass until processes that share a store see each other's changes.
func later() {
	synctest.Wait()
	time.Sleep(soon)
	synctest.Wait()
}

var sharedCases = []testCase{
	{"EachWay", "one new task wakes one of them ... Changes that are due at a time happen at that " +
		"time, and not at the next call.", func(e *env) {
		q, other := e.two()
		for _, c := range []struct{ prepare, change func() }{
			{func() {}, func() { q.put("a1") }},
			{func() {
				q.one("a1", task.PutOptions{TTR: 5 * soon})
				q.first("a1")
			}, func() { time.Sleep(5 * soon) }},
			{func() { q.bury(q.put("a1")[0]) }, func() { q.kick(1, 1) }},
			{func() { q.put("a1", in(task.Member)) }, func() { q.start("g") }},
			{func() { e.ok(q.Pause(ctx)); q.put("a1") }, func() { e.ok(q.Resume(ctx)) }},
			{func() { q.one("a1", task.PutOptions{Delay: 2 * soon}) }, func() { q.close() }},
		} {
			c.prepare()
			one, two := other.taking(), other.taking()
			later()
			one.waits()
			c.change()
			later()
			l := got(one, "a1")
			two.waits()
			l.release(0)
			later()
			got(two, "a1").ack()
			q, other = other, q
		}
	}},
	{"Order", "within a key tasks are taken in the order in which they became ready", func(e *env) {
		for _, seed := range seeds(e.T, few(25)) {
			r := rand.New(rand.NewPCG(seed, 0))
			q, other := e.two()
			at := func() *queue { return []*queue{q, other}[r.IntN(2)] }
			want, n := map[string][]task.ID{}, 0
			var calls []string
			take := func() bool {
				t, ok, err := at().TryTake(ctx)
				if e.ok(err); !ok {
					return false
				}
				e.ok(t.Ack(ctx))
				first := want[t.Key]
				calls = append(calls, fmt.Sprint("take ", t.ID))
				if len(first) == 0 || first[0] != t.ID {
					e.Fatalf("with %s=%d: task %d is taken; it should be the first of %v, after\n%s",
						seedVariable, seed, t.ID, first, strings.Join(calls, "\n"))
				}
				want[t.Key] = first[1:]
				n--
				return true
			}
			for range 40 {
				key := string(rune('a' + r.IntN(3)))
				switch left := want[key]; r.IntN(6) {
				case 0:
					take()
				case 1: // the next task must not come before older ones
					if len(left) > 0 {
						i := r.IntN(len(left))
						calls = append(calls, fmt.Sprint("delete ", left[i]))
						at().remove(left[i])
						want[key] = slices.Delete(left, i, i+1)
						n--
					}
				default:
					delay := time.Duration(r.IntN(4)/3) * second
					batch := make([]task.Entry[string], 1+r.IntN(20)*r.IntN(2))
					for i := range batch {
						batch[i].Key, batch[i].Options.Delay = key, delay
						key = []string{key, "a"}[r.IntN(2)]
					}
					ids, err := at().PutBatch(ctx, batch)
					e.ok(err)
					for i, id := range ids {
						want[batch[i].Key] = append(want[batch[i].Key], id)
					}
					n += len(ids)
					calls = append(calls, fmt.Sprint("put ", ids, batch))
					if delay > 0 {
						time.Sleep(delay)
						later()
					}
				}
				if r.IntN(20) == 0 {
					later()
				}
			}
			for later(); take(); {
			}
			equal(e, "tasks left", n, 0)
			q.close()
			other.close()
		}
	}},
	{"Close", "the tasks of its consumers are handed back", func(e *env) {
		q, other := e.two()
		q.put("a1 b1 c1")
		q.first("a1")
		c := q.consumer(task.Filter{})
		c.first("b1")
		l := other.first("c1")
		take := other.taking()
		q.close()
		later()
		got(take, "a1")
		l.ack()
		other.order("b1")
	}},
	{"Wait", "is Put that waits for room ... waits until the task with that unique key is gone or " +
		"buried", func(e *env) {
		q, other := e.two(options{Capacity: 1, Retention: time.Hour})
		q.one("a1", unique)
		wait, put := q.waiting(), q.putting("b1")
		other.first("a1").ack()
		later()
		put.returns(nil)
		wait.returns(nil)
		e.ok(other.Wait(ctx, "x"))
		other.refuses("c1", task.PutOptions{}, fairq.ErrFull)
	}},
	{"OnExpire", "If the queue is open several times, one Queue gets each task", func(e *env) {
		o, x := e.expiring()
		q, other := e.two(o)
		q.put("c1", by(second))
		q.first("c1")
		other.put("d1", by(second))
		l := other.first("d1")
		q.put("a1", by(soon))
		other.put("b1", by(2*soon))
		later()
		l.release(0)
		q.close()
		time.Sleep(3 * soon)
		later()
		synctest.Wait()
		x.mu.Lock()
		defer x.mu.Unlock()
		slices.SortFunc(x.tasks, func(a, b *task.Task[string]) int {
			return strings.Compare(a.Payload, b.Payload)
		})
		equal(e, "given to OnExpire, of both", payloads(x.tasks), "a1 b1 c1 d1")
	}},
	{"LeaseContext", "At the end of the lease its cause is [ErrLeaseLost], and also [ErrDeleted] " +
		"if another call has removed the task. ... When the group is cancelled, the cause is " +
		"[ErrGroupCancelled]", func(e *env) {
		q, other := e.two()
		q.put("a1 c1", in(task.Member))
		q.start("g")
		q.put("b1")
		w := q.watch(ctx)
		leases := q.takes("a1 c1 b1")
		var contexts []context.Context
		for _, l := range leases {
			c, cancel := l.Context(ctx)
			defer cancel()
			contexts = append(contexts, c)
		}
		other.remove(leases[0].ID)
		other.bury(leases[2].ID)
		later()
		e.is(context.Cause(contexts[0]), task.ErrLeaseLost)
		e.is(context.Cause(contexts[0]), task.ErrDeleted)
		equal(e, "cause after Bury", context.Cause(contexts[2]), task.ErrLeaseLost)
		leases[2].lost(q)
		w.seen()
		other.cancel()
		later()
		e.is(context.Cause(contexts[1]), task.ErrGroupCancelled)
		time.Sleep(3 * soon)
		w.saw("cancel c")
		leases[1].ack()
	}},
	{"Limit", "is the greatest number of tasks of a key that are taken at the same time ... lasts " +
		"until its consumer is closed or gone", func(e *env) {
		q, other := e.two(serial)
		q.put("a1 a2")
		l := q.first("a1")
		time.Sleep(ages)
		take := other.taking()
		take.waits()
		l.ack()
		later()
		got(take, "a2")
		q.put("a3")
		q.none()
	}},
	{"ResumeOfOneInUse", "The former owner loses the consumer, " +
		"here or in another process", func(e *env) {
		q, other := e.two()
		q.put("a1 b1 c1")
		old := q.consumer(task.Filter{})
		oldLeases := old.takes("a1 b1")
		q.first("c1")
		c, cancel := oldLeases[0].Context(ctx)
		defer cancel()
		take := old.taking()
		again, l := other.resume(old.ID(), "a1 b1")
		later()
		take.returns(task.ErrResumed)
		e.is(context.Cause(c), task.ErrLeaseLost)
		old.wasResumed()
		oldLeases[0].lost(q)
		time.Sleep(ages)
		l[0].ack()
		q.close()
		l[1].holds()
		other.takes("c1")
		again.close()
		other.first("b1")
	}},
	{"DisconnectThenChange", "hands its tasks back only after Options.Grace", func(e *env) {
		q, other := e.two(options{Grace: 2 * soon})
		q.put("a1")
		c := q.consumer(task.Filter{})
		l := c.first("a1")
		held, cancel := l.Context(ctx)
		defer cancel()
		w := q.watch(ctx)
		c.disconnect()
		other.put("b1")
		other.first("b1").ack()
		later()
		_, events := w.seen()
		equal(e, "lost in "+events, strings.Contains(events, "ttr"), false)
		e.ok(held.Err())
		time.Sleep(ages)
		e.is(context.Cause(held), task.ErrLeaseLost)
		other.first("a1").ack()
	}},
	{"Drop", "All calls on it, waiting ones too, return [ErrDropped] from now on", func(e *env) {
		q, other := e.two()
		take := other.taking()
		q.put("a1")
		later()
		l := got(take, "a1")
		take = other.taking()
		e.ok(q.Drop(ctx))
		later()
		take.returns(task.ErrDropped)
		e.is(l.Ack(ctx), task.ErrDropped)
		other.refusesAll(task.ErrDropped)
		again := e.open()
		again.put("b1")
		e.is(other.Drop(ctx), task.ErrDropped)
		again.order("b1")
	}},
}
