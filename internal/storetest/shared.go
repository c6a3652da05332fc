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

// oneOf2 returns one of two values.
func oneOf2[T any](r *rand.Rand, a, b T) T {
	if r.IntN(2) == 0 {
		return a
	}
	return b
}

var sharedCases = []testCase{
	{"PutWakes", "one new task wakes one of them", func(e *env) {
		q, other := e.two()
		one, two := other.taking(), other.taking()
		q.put("a1")
		later()
		l := got(one, "a1")
		two.waits()
		l.release(0)
		later()
		got(two, "a1").ack()
		take := q.taking()
		other.put("a2")
		later()
		got(take, "a2")
	}},
	{"EachWay", "Changes that are due at a time happen at that time, " +
		"and not at the next call.", func(e *env) {
		q, other := e.two()
		q.one("a1", task.PutOptions{TTR: 2 * soon})
		l := q.first("a1")
		take := other.taking()
		time.Sleep(2 * soon)
		later()
		got(take, "a1").bury() // because the lease was lost
		l.lost(q)
		take = other.taking()
		q.kick(1, 1)
		later()
		got(take, "a1").ack()
		q.one("a1", task.PutOptions{Group: "g"})
		take = other.taking()
		q.start("g")
		later()
		got(take, "a1").ack()
		e.ok(q.Pause(ctx))
		take = other.taking()
		q.put("a1")
		later()
		take.waits()
		e.ok(q.Resume(ctx))
		later()
		got(take, "a1").ack()
		q.one("a1", task.PutOptions{Delay: second})
		take = other.taking()
		q.close()
		later()
		got(take, "a1").ack()
	}},
	{"Order", "within a key tasks are taken in the order in which they became ready", func(e *env) {
		for _, seed := range seeds(e.T, few(25)) {
			r := rand.New(rand.NewPCG(seed, 0))
			q, other := e.two()
			at := func() *queue { return oneOf2(r, q, other) }
			want, ids, n := map[string][]string{}, map[string]task.ID{}, 0
			var calls []string
			take := func() bool {
				t, ok, err := at().TryTake(ctx)
				if e.ok(err); !ok {
					return false
				}
				e.ok(t.Ack(ctx))
				first := want[t.Key]
				calls = append(calls, "take "+t.Payload)
				if len(first) == 0 || first[0] != t.Payload {
					e.Fatalf("with %s=%d: %s is taken; it should be the first of %v, after\n%s",
						seedVariable, seed, t.Payload, first, strings.Join(calls, "\n"))
				}
				want[t.Key] = first[1:]
				return true
			}
			for range 40 {
				key := string(rune('a' + r.IntN(3)))
				switch r.IntN(6) {
				case 0:
					take()
				case 1: // the next task must not come before older ones
					if left := want[key]; len(left) > 0 {
						i := r.IntN(len(left))
						calls = append(calls, "delete "+left[i])
						at().remove(ids[left[i]])
						want[key] = slices.Delete(left, i, i+1)
					}
				default:
					var batch []task.Entry[string]
					delay := oneOf2(r, 0, oneOf2(r, 0, second))
					for range oneOf2(r, 1, 1+r.IntN(20)) {
						n++
						batch = append(batch, task.Entry[string]{
							Key: key, Payload: fmt.Sprint(key, n), Options: task.PutOptions{Delay: delay},
						})
						key = oneOf2(r, key, "a")
					}
					some, err := at().PutBatch(ctx, batch)
					e.ok(err)
					for i, id := range some {
						ids[batch[i].Payload] = id
						want[batch[i].Key] = append(want[batch[i].Key], batch[i].Payload)
					}
					calls = append(calls, fmt.Sprint("put ", batch))
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
			equal(e, "tasks left", len(want["a"])+len(want["b"])+len(want["c"]), 0)
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
	{"Room", "is Put that waits for room", func(e *env) {
		q, other := e.two(options{Capacity: 1})
		q.put("a1")
		put := q.putting("b1")
		other.first("a1").ack()
		later()
		put.returns(nil)
		other.refuses("c1", task.PutOptions{}, fairq.ErrFull)
	}},
	{"Wait", "waits until the task with that unique key is gone or buried", func(e *env) {
		q, other := e.two(options{Retention: time.Hour})
		q.one("a1", unique)
		wait := q.waiting()
		other.refuses("b1", unique, task.ErrDuplicate)
		other.first("a1").ack()
		later()
		wait.returns(nil)
		e.ok(other.Wait(ctx, "x"))
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
		"if another call has removed the task.", func(e *env) {
		q, other := e.two()
		ids := q.put("a1 b1")
		deleted, buried := q.first("a1"), q.first("b1")
		c, cancel := deleted.Context(ctx)
		defer cancel()
		d, cancel := buried.Context(ctx)
		defer cancel()
		other.remove(ids[0])
		other.bury(ids[1])
		later()
		e.is(context.Cause(c), task.ErrLeaseLost)
		e.is(context.Cause(c), task.ErrDeleted)
		equal(e, "cause after Bury", context.Cause(d), task.ErrLeaseLost)
		deleted.lost(q)
		buried.lost(q)
	}},
	{"GroupCancelled", "When the group is cancelled, the cause is [ErrGroupCancelled]", func(e *env) {
		q, other := e.two()
		q.put("a1", in(task.Member))
		q.start("g")
		l := q.first("a1")
		c, cancel := l.Context(ctx)
		defer cancel()
		w := q.watch(ctx)
		other.cancel()
		later()
		e.is(context.Cause(c), task.ErrGroupCancelled)
		time.Sleep(3 * soon)
		w.saw("cancel a")
		l.ack()
	}},
	{"Lease", "lasts until its consumer is closed or gone", func(e *env) {
		q, other := e.two()
		q.put("a1")
		l := q.first("a1")
		time.Sleep(ages)
		other.none()
		l.ack()
	}},
	{"Limit", "is the greatest number of tasks of a key that are " +
		"taken at the same time", func(e *env) {
		q, other := e.two(serial)
		q.put("a1 a2")
		l := q.first("a1")
		other.none()
		take := other.taking()
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
		q.put("d1")
		old.wasResumed()
		oldLeases[0].lost(q)
		time.Sleep(ages)
		l[0].ack()
		q.close()
		l[1].holds()
		other.takes("c1 d1")
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
	{"Names", "opens the queue of that name, and makes it if there is none", func(e *env) {
		q, other := e.open(), e.openIn(e.store, "Queue")
		id := q.one("a1", unique)
		take := other.taking()
		other.gone(id)
		e.is(other.Wait(ctx, "x"), task.ErrNotFound)
		e.ok(q.Pause(ctx))
		take.waits()
		other.one("b1", unique)
		got(take, "b1")
		e.ok(other.Drop(ctx))
		q.state(task.Ready, id)
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
