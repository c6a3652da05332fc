package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairq/fairq/task"
)

// unique is for tasks with the unique key x, and again for tasks that replace or follow another.
var (
	unique = task.PutOptions{UniqueKey: "x"}
	again  = task.PutOptions{UniqueKey: "x", Replace: true}
)

// followed takes a1, which has the unique key x, and has a2 follow it with some options.
func (q *queue) followed(o task.PutOptions) (l *lease, next task.ID) {
	q.e.Helper()
	q.one("a1", task.PutOptions{UniqueKey: "x", Group: o.Group})
	if o.Group != "" {
		q.start(o.Group)
	}
	l = q.first("a1")
	o.UniqueKey, o.Replace = "x", true
	return l, q.one("a2", o)
}

// failed checks that a call returned the error of a task that has failed.
func (c *call[T]) failed(want task.Error) {
	c.e.Helper()
	var got *task.Error
	if c.over(); !errors.As(c.err, &got) || *got != want {
		c.e.Fatalf("Wait returned: %v; it should be %v", c.err, want)
	}
}

var uniqueKeyCases = []testCase{
	{"Bury", "the recorded [*Error] if it is buried", func(e *env) {
		q := e.open()
		id := q.one("a1", task.PutOptions{UniqueKey: "x", MaxAttempts: 1})
		bad := &task.Error{Code: 1, Message: "bad"}
		for _, bury := range []func(){
			func() { q.first("a1").fail(bad) },
			func() { e.ok(q.first("a1").Bury(ctx, fmt.Errorf("%w", bad))) },
			func() { e.ok(q.Bury(ctx, id, bad)) },
		} {
			wait := q.waiting()
			wait.waits()
			bury()
			wait.failed(*bad)
			q.waiting().failed(*bad)
			q.kick(1, 1)
			bad.Code++
		}
		q.order("a1")
		e.ok(q.Wait(ctx, "x"))
	}},
	{"Discard", "the recorded [*Error] if it is buried or was discarded", func(e *env) {
		q := e.open()
		for reason, want := range map[error]task.Error{
			errOops:                              {Message: "oops"},
			&task.Error{Code: 4, Message: "bad"}: {Code: 4, Message: "bad"},
			nil:                                  {Message: "discarded without a reason"},
		} {
			q.one("a1", unique)
			wait := q.waiting()
			q.first("a1").fail(errors.New("at first"))
			e.ok(q.first("a1").Discard(ctx, reason))
			for _, c := range []*call[struct{}]{wait, q.waiting()} {
				c.failed(want)
			}
		}
		time.Sleep(time.Minute)
		e.is(q.Wait(ctx, "x"), task.ErrNotFound)
	}},
	{"Gone", "else [ErrDeleted] or [ErrExpired]", func(e *env) {
		q := e.open()
		for name, c := range map[string]struct {
			o    task.PutOptions
			end  func(task.ID)
			want error
		}{
			"Delete":   {unique, q.remove, task.ErrDeleted},
			"Truncate": {unique, func(task.ID) { _, err := q.Truncate(ctx); e.ok(err) }, task.ErrDeleted},
			"CancelGroup": {
				task.PutOptions{UniqueKey: "x", Group: "g"}, func(task.ID) { q.cancel() }, task.ErrDeleted,
			},
			"TTL": {
				task.PutOptions{UniqueKey: "x", TTL: second},
				func(task.ID) { time.Sleep(second) }, task.ErrExpired,
			},
		} {
			e.Log("ended by", name)
			id := q.one("a1", c.o)
			wait := q.waiting()
			wait.waits()
			c.end(id)
			wait.returns(c.want)
			q.waiting().returns(c.want)
		}
		id := q.one("a1", unique)
		q.first("a1")
		wait := q.waiting()
		q.remove(id)
		wait.returns(task.ErrDeleted)
	}},
	{"Retention", "The outcome of a task that is gone is kept " +
		"during Options.Retention", func(e *env) {
		for _, c := range []struct {
			q    *queue
			kept time.Duration
		}{
			{e.open(), time.Minute}, {e.openIn(e.store, "other", options{Retention: time.Hour}), time.Hour},
		} {
			c.q.one("a1", unique)
			c.q.first("a1").ack()
			time.Sleep(c.kept - time.Millisecond)
			e.ok(c.q.Wait(ctx, "x"))
			time.Sleep(time.Millisecond)
			e.is(c.q.Wait(ctx, "x"), task.ErrNotFound)
		}
	}},
	{"UsedAgain", "waits until the task with that unique key is gone or buried", func(e *env) {
		q := e.open()
		for range 50 {
			q.one("a1", unique)
			wait := q.waiting()
			q.first("a1").ack()
			id := q.one("a2", unique)
			wait.returns(nil)
			q.remove(id)
		}
	}},
	{"Cancelled", "A context that ends loses nothing.", func(e *env) {
		q := e.open()
		q.one("a1", unique)
		gone, cancel := context.WithCancel(ctx)
		one, two := begin(e, func() (struct{}, error) { return struct{}{}, q.Wait(gone, "x") }),
			q.waiting()
		one.waits()
		cancel()
		one.returns(context.Canceled)
		two.waits()
		e.is(q.Wait(gone, "x"), context.Canceled)
		q.order("a1")
		two.returns(nil)
	}},
	{"Replace", "With Replace, the task takes the place of the task with its UniqueKey, if that is " +
		"ready, delayed or held", func(e *env) {
		for _, o := range modes {
			o.Capacity = 3
			q, start := e.openIn(e.store, "queue", o), time.Now()
			replace := func(name string, o task.PutOptions) task.ID {
				o.UniqueKey, o.Replace = "x", true
				return q.one(name, o)
			}
			id := replace("a1", task.PutOptions{TTL: second, MaxAttempts: 1})
			wait := q.waiting()
			q.put("b1 a2")
			for i := range 3 { // in vain attempts are forgotten, and there is no room for another task
				equal(e, "id", replace(fmt.Sprint("a", 7+i), task.PutOptions{TTL: time.Minute}), id)
			}
			q.first("a9").fail(errOops)
			equal(e, "id", replace("a9", task.PutOptions{Delay: 5 * second}), id)
			i := q.peek(id).Info()
			e.at("Until", i.Until, start, 5*second)
			equal(e, "attempts, error and end", [3]any{i.Attempts, i.Err, i.Expires},
				[3]any{0, (*task.Error)(nil), time.Time{}})
			time.Sleep(3 * second)
			replace("a8", task.PutOptions{Delay: 5 * second}) // the last one decides
			q.order("b1 a2")
			waits := q.taking()
			time.Sleep(5*second - 1)
			waits.waits()
			time.Sleep(time.Nanosecond)
			l := got(waits, "a8")
			wait.waits()
			q.refuses("a1", unique, task.ErrDuplicate)
			l.bury()
			q.refuses("a1", again, task.ErrReplace)
			e.ok(q.KickID(ctx, id))
			for _, other := range []task.PutOptions{{Kind: "k"}, in(task.Member), in(task.AtEnd)} {
				other.UniqueKey, other.Replace = "x", true
				q.refuses("a1", other, task.ErrReplace)
			}
			q.refuses("b1", again, task.ErrReplace)
			q.refuses("b1", task.PutOptions{Replace: true}, task.ErrInvalid)
			_, err := q.Put(ctx, "b", "b1", again)
			equal(e, "error", err.Error(),
				fmt.Sprintf(`task: task cannot be replaced: "x" is task %d; its key is "a", not "b"`, id))
			q.order("a8")
			replace("a1", task.PutOptions{})
			time.Sleep(second)
			events := q.watch(ctx)
			replace("a2", task.PutOptions{Deadline: time.Now().Add(-time.Minute)})
			e.at("the end", events.saw("change a, ttl a")[1].Time, time.Now(), 0)
			e.ok(q.Drop(ctx))
		}
	}},
	{
		"MaxDelay", "that long after it Replace still changes the task, but no longer delays it",
		func(e *env) {
			for i, o := range modes {
				q := e.openIn(e.store, fmt.Sprint("queue", i), o)
				debounce := task.PutOptions{
					UniqueKey: "x", Replace: true, Delay: 2 * second, MaxDelay: 5 * second, TTL: second,
				}
				due := func(start time.Time, after time.Duration) {
					e.Helper()
					t, err := q.Find(ctx, "x")
					e.ok(err)
					e.at("Until", t.Info().Until, start, after)
				}
				start := time.Now()
				for i, until := range []time.Duration{2, 3, 4, 5, 5} {
					q.one(fmt.Sprint("a", i), debounce)
					due(start, until*second)
					time.Sleep(second)
				}
				q.put("b1 a6") // when the bound is over the task keeps its turn
				id := q.one("a5", debounce)
				e.at("Expires", q.peek(id).Info().Expires, time.Now(), second)
				q.first("a5").fail(errOops)
				start = time.Now() // a take ends the bound
				q.one("a5", debounce)
				due(start, 2*second)
				time.Sleep(second)
				e.ok(q.Change(ctx, id, task.Change[string]{Delay: new(20 * second)}))
				due(start, 21*second)
				debounce.TTL = 0
				q.one("a5", debounce)
				q.order("b1 a6")
				time.Sleep(2 * second)
				l := q.first("a5") // a follower has its own bound, and brings it along
				start = time.Now()
				next := q.one("a7", debounce)
				time.Sleep(4 * second)
				l.release(second)
				q.gone(next)
				q.one("a8", debounce)
				due(start, 5*second)
				time.Sleep(second)
				q.order("a8")
				q.refuses("a1", task.PutOptions{UniqueKey: "x", MaxDelay: 1}, task.ErrInvalid)
				debounce.MaxDelay = -1
				q.refuses("a1", debounce, task.ErrInvalid)
			}
		},
	},
	{"Follow", "If the task with the UniqueKey is taken, the new task follows it.", func(e *env) {
		type ending struct {
			name   string
			first  task.PutOptions
			end    func(*queue, *consumer, *lease) error
			starts bool // the follower; else the first is tried again
		}
		for i, c := range []ending{
			{"Ack", unique, func(_ *queue, _ *consumer, l *lease) error { return l.Ack(ctx) }, true},
			{"Bury by id", unique, func(q *queue, _ *consumer, l *lease) error {
				return q.Bury(ctx, l.ID, errOops)
			}, true},
			{"Delete", unique, func(q *queue, _ *consumer, l *lease) error {
				return q.Delete(ctx, l.ID)
			}, true},
			{"Last", task.PutOptions{MaxAttempts: 1}, func(_ *queue, _ *consumer, l *lease) error {
				return l.Fail(ctx, errOops, 0)
			}, true},
			{"TTL", task.PutOptions{TTL: second}, func(_ *queue, _ *consumer, l *lease) error {
				time.Sleep(second)
				return l.Release(ctx, 0)
			}, true},
			{"Fail", task.PutOptions{TTL: time.Hour}, func(_ *queue, _ *consumer, l *lease) error {
				return l.Fail(ctx, errOops, second)
			}, false},
			{"Return", unique, func(_ *queue, _ *consumer, l *lease) error { return l.Return(ctx) }, false},
			{"Repeat", unique, func(_ *queue, _ *consumer, l *lease) error {
				return l.Repeat(ctx, second)
			}, false},
			{"Close", unique, func(_ *queue, c *consumer, _ *lease) error { return c.Close(ctx) }, false},
			{"TTR", task.PutOptions{TTR: second}, func(*queue, *consumer, *lease) error {
				time.Sleep(second)
				return nil
			}, false},
		} {
			e.Log("ended by", c.name)
			o := modes[i%len(modes)]
			o.Capacity = 3
			q := e.openIn(e.store, c.name, o)
			k := q.consumer(task.Filter{})
			c.first.UniqueKey = "x"
			first := q.one("a1", c.first)
			wait, l := q.waiting(), k.first("a1")
			next := q.one("a2", again)
			equal(e, "id", q.one("a3", again), next)
			q.state(task.Held, next)
			found, err := q.Find(ctx, "x")
			e.ok(err)
			equal(e, "the task with the unique key", found.ID, first)
			_, err = q.TakeID(ctx, next)
			e.is(err, task.ErrBlocked)
			other := q.one("b1", task.PutOptions{})
			q.refuses("c1", task.PutOptions{}, task.ErrFull)
			q.remove(other)
			q.refuses("a4", unique, task.ErrDuplicate)
			q.refuses("b1", again, task.ErrReplace)
			wait.waits()
			e.ok(c.end(q, k, l))
			after := q.waiting()
			if c.starts {
				if !wait.over() {
					e.Fatal("the first task is still waited for")
				}
				equal(e, "unique key", q.peek(next).Info().UniqueKey, "x")
				if kept, err := q.Peek(ctx, first); err == nil {
					equal(e, "unique key of a buried task", kept.Info().UniqueKey, "")
					q.remove(first)
				}
			} else {
				q.gone(next)
				i := q.peek(first).Info()
				equal(e, "state, attempts, error and end", [4]any{i.State, i.Attempts, i.Err, i.Expires},
					[4]any{task.Ready, 0, (*task.Error)(nil), time.Time{}})
				wait.waits()
			}
			after.waits()
			q.order("a3")
			after.returns(nil)
			wait.over()
			q.counts(0, 0, 0, 0, 0)
		}
	}},
	{"FollowLater", "is ready, or delayed until the end of its own Delay", func(e *env) {
		for i, o := range modes {
			q, start := e.openIn(e.store, fmt.Sprint("queue", i), o), time.Now()
			later := task.PutOptions{Delay: 5 * second, TTL: 2 * second}
			l, next := q.followed(later)
			time.Sleep(3 * second)
			l.ack()
			e.at("Until", q.peek(next).Info().Until, start, 5*second)
			e.at("Expires", q.peek(next).Info().Expires, start, 7*second)
			got(func() *call[*lease] { c := q.taking(); c.waits(); time.Sleep(2 * second); return c }(),
				"a2").ack()
			start = time.Now()
			l, next = q.followed(later)
			time.Sleep(3 * second)
			l.fail(errOops)
			q.gone(next)
			e.at("Until", q.peek(l.ID).Info().Until, start, 5*second)
			e.at("Expires", q.peek(l.ID).Info().Expires, start, 7*second)
			time.Sleep(4 * second)
			q.counts(0, 0, 0, 0, 0)

			l, next = q.followed(task.PutOptions{TTL: second}) // it expires while it is held
			time.Sleep(second)
			q.gone(next)
			l.fail(errOops)
			l = q.first("a1")
			next = q.one("a3", again)
			q.bury(next)
			l.ack()
			e.ok(q.KickID(ctx, next)) // it is a task like any other
			equal(e, "unique key", q.peek(next).Info().UniqueKey, "")
			q.order("a3")
		}
	}},
	{
		"FollowInGroup", "has another key, kind or group, or is not a Member of its group",
		func(e *env) {
			q := e.open()
			member := in(task.Member)
			l, _ := q.followed(member)
			end := q.one("e1", in(task.AtEnd))
			q.refuses("a3", again, task.ErrReplace)
			l.ack()
			q.state(task.Held, end)
			q.order("a2 e1")
			l, next := q.followed(member)
			q.cancel()
			q.gone(next)
			l.fail(errOops)
			q.counts(0, 0, 0, 0, 0)
			l, _ = q.followed(task.PutOptions{})
			wait := q.waiting()
			n, err := q.Truncate(ctx)
			e.ok(err)
			equal(e, "deleted", n, 2)
			wait.returns(task.ErrDeleted)
			l.lost(q)
			q.counts(0, 0, 0, 0, 0)
		},
	},
}

// in is for tasks of group g.
func in(role task.Role) task.PutOptions { return task.PutOptions{Group: "g", Role: role} }

var groupCases = []testCase{
	{"Held", "holds the task back until Queue.StartGroup", func(e *env) {
		q := e.open()
		ids := q.put("a1 a2 b1", in(task.Member))
		q.one("c1", task.PutOptions{Group: "other"})
		q.put("d1")
		q.state(task.Held, ids...)
		t := q.peek(ids[0])
		equal(e, "group", t.Info().Group, "g")
		take := q.taking()
		got(take, "d1")
		take = q.taking()
		take.waits()
		q.start("g")
		got(take, "a1")
		q.state(task.Ready, ids[1:]...)
		q.order("b1 a2")
		q.counts(0, 0, 2, 0, 1)
	}},
	{"End", "When all its members are gone, its AtEnd tasks become ready", func(e *env) {
		q := e.open()
		ids := q.put("a1 b1 c1 d1", in(task.Member))
		end, abort := q.one("e1", in(task.AtEnd)), q.one("f1", in(task.AtAbort))
		equal(e, "role", [2]task.Role{q.peek(end).Info().Role, q.peek(abort).Info().Role},
			[2]task.Role{task.AtEnd, task.AtAbort})
		q.start("g")
		q.state(task.Held, end, abort)
		q.first("a1").ack()
		q.put("a2", in(task.Member))
		l := q.takes("b1 c1")
		q.remove(ids[3])
		q.first("a2").ack()
		l[0].ack()
		q.none()
		q.state(task.Held, end, abort)
		take := q.taking()
		l[1].discard()
		got(take, "e1")
		q.gone(abort)
		equal(e, "acks and deletes", [2]uint64{q.stats().Acks, q.stats().Deletes}, [2]uint64{3, 3})
	}},
	{"Cancel", "removes all members of a group that are not taken", func(e *env) {
		q := e.open()
		q.put("a1 b1", in(task.Member))
		q.start("g")
		l := q.takes("a1 b1")
		l[1].bury()
		gone := append(q.put("c1", in(task.Member)),
			q.one("d1", task.PutOptions{Group: "g", Delay: second}), l[1].ID)
		end, abort := q.one("e1", in(task.AtEnd)), q.one("f1", in(task.AtAbort))
		q.cancel()
		q.gone(gone...)
		q.state(task.Taken, l[0].ID)
		q.state(task.Held, abort)
		l[0].holds()
		take := q.taking()
		take.waits()
		l[0].ack()
		got(take, "f1").ack()
		q.gone(end)
		equal(e, "deletes", q.stats().Deletes, 4)
	}},
	{"HandedBack", "When these are done or handed back, the AtAbort tasks become ready " +
		"and the group is over.", func(e *env) {
		q := e.open()
		c := q.consumer(task.Filter{})
		end := map[string]func(l *lease){
			"Ack":     func(l *lease) { l.ack() },
			"Release": func(l *lease) { l.release(0) },
			"later":   func(l *lease) { l.release(second) },
			"Fail":    func(l *lease) { l.fail(errOops) },
			"Bury":    func(l *lease) { l.bury() },
			"Discard": func(l *lease) { l.discard() },
			"TTR":     func(*lease) { time.Sleep(second) },
			"Delete":  func(l *lease) { q.remove(l.ID) },
			"others":  func(l *lease) { q.bury(l.ID) },
			"Close":   func(*lease) { c.close() },
		}
		for name, f := range end {
			e.Log("ended by", name)
			q.one("a1", task.PutOptions{Group: "g", TTR: second})
			q.put("f1", in(task.AtAbort))
			q.start("g")
			l := c.first("a1")
			q.cancel()
			q.none()
			f(l)
			l.lost(q)
			q.gone(l.ID)
			q.order("f1")
			q.counts(0, 0, 0, 0, 0)
			if name == "Close" {
				c = q.consumer(task.Filter{})
			}
		}
	}},
}
