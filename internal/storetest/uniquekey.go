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

var uniqueKeyCases = []testCase{
	{"Outcome", "the recorded [*Error] if it is buried ... the recorded [*Error] if it is buried " +
		"or was discarded ... else [ErrDeleted] or [ErrExpired]", func(e *env) {
		bad := &task.Error{Code: 1, Message: "bad"}
		member, short := in(task.Member), task.PutOptions{UniqueKey: "x", TTL: second}
		member.UniqueKey = "x"
		for name, c := range map[string]struct {
			o    task.PutOptions
			end  func(*queue, task.ID)
			want error
		}{
			"Fail": {
				task.PutOptions{UniqueKey: "x", MaxAttempts: 1},
				func(q *queue, _ task.ID) { q.first("a1").fail(bad) }, bad,
			},
			"Bury": {unique, func(q *queue, id task.ID) { e.ok(q.Bury(ctx, id, bad)) }, bad},
			"Discard": {unique, func(q *queue, _ task.ID) {
				q.first("a1").fail(errors.New("at first"))
				e.ok(q.first("a1").Discard(ctx, bad))
			}, bad},
			"Discard for nothing": {unique, func(q *queue, _ task.ID) {
				e.ok(q.first("a1").Discard(ctx, nil))
			}, &task.Error{Message: "discarded without a reason"}},
			"Delete": {unique, func(q *queue, id task.ID) {
				q.first("a1")
				q.remove(id)
			}, task.ErrDeleted},
			"Truncate":    {unique, func(q *queue, _ task.ID) { q.truncate() }, task.ErrDeleted},
			"CancelGroup": {member, func(q *queue, _ task.ID) { q.cancel() }, task.ErrDeleted},
			"TTL":         {short, func(*queue, task.ID) { time.Sleep(second) }, task.ErrExpired},
			"Ack":         {unique, func(q *queue, _ task.ID) { q.first("a1").ack() }, nil},
		} {
			e.Log("ended by", name)
			e.each([]options{{Capacity: 1}}, func(q *queue) {
				id := q.one("a1", c.o)
				wait, put := q.waiting(), q.putting("b1")
				c.end(q, id)
				equal(e, "there is room", put.over(), name != "Fail" && name[0] != 'B')
				for _, wait := range []*call[struct{}]{wait, q.waiting()} {
					wait.over()
					if failed, ok := errors.AsType[*task.Error](wait.err); ok {
						equal[error](e, "error", failed, c.want)
					} else {
						wait.returns(c.want)
					}
				}
			})
		}
	}},
	{"Retention", "The outcome of a task that is gone is kept " +
		"during Options.Retention", func(e *env) {
		for o, kept := range map[*options]time.Duration{
			{}: time.Minute, {Retention: time.Hour}: time.Hour,
		} {
			e.each([]options{*o}, func(q *queue) {
				q.one("a1", unique)
				q.first("a1").ack()
				time.Sleep(kept - time.Millisecond)
				e.ok(q.Wait(ctx, "x"))
				time.Sleep(time.Millisecond)
				e.is(q.Wait(ctx, "x"), task.ErrNotFound)
			})
		}
	}},
	{"UsedAgain", "waits until the task with that unique key is gone or buried", func(e *env) {
		q := e.open()
		gone, cancel := context.WithCancel(ctx)
		cancel()
		for range 50 {
			q.one("a1", unique)
			wait := q.waiting()
			e.is(q.Wait(gone, "x"), context.Canceled)
			q.first("a1").ack()
			id := q.one("a2", unique)
			wait.returns(nil)
			q.remove(id)
		}
	}},
	{"Replace", "With Replace, the task takes the place of the task with its UniqueKey, if that is " +
		"ready, delayed or held", func(e *env) {
		e.each(modes, func(q *queue) {
			o := again
			o.TTL = second
			id := q.one("a1", o)
			wait := q.waiting()
			q.put("b1 a2")
			o.TTL = time.Minute
			equal(e, "id", q.one("a9", o), id)
			q.first("a9").fail(errOops)
			o.Delay, o.TTL = 5*second, 0
			for range 2 { // the last one decides
				equal(e, "id", q.one("a8", o), id)
				time.Sleep(3 * second)
			}
			i := q.peek(id).Info()
			equal(e, "attempts, error and end", [3]any{i.Attempts, i.Err, i.Expires},
				[3]any{0, (*task.Error)(nil), time.Time{}})
			q.order("b1 a2")
			l := q.goesOn("a8", 2*second)
			wait.waits()
			l.bury()
			q.refuses("a1", again, task.ErrReplace)
			e.ok(q.KickID(ctx, id))
			for _, other := range []task.PutOptions{{Kind: "k"}, in(task.Member), in(task.AtEnd)} {
				other.UniqueKey, other.Replace = "x", true
				q.refuses("a1", other, task.ErrReplace)
			}
			q.refuses("b1", task.PutOptions{Replace: true}, task.ErrInvalid)
			_, err := q.Put(ctx, "b", "b1", again)
			equal(e, "error", err.Error(),
				fmt.Sprintf(`task: task cannot be replaced: "x" is task %d; its key is "a", not "b"`, id))
			events := q.watch(ctx)
			o = by(-time.Minute)
			o.UniqueKey, o.Replace = "x", true
			q.one("a2", o)
			e.at("the end", events.saw("change a, ttl a")[1].Time, time.Now(), 0)
		})
	}},
	{
		"MaxDelay", "that long after it Replace still changes the task, but no longer delays it",
		func(e *env) {
			e.each(modes, func(q *queue) {
				debounce := again
				debounce.Delay, debounce.MaxDelay = 2*second, 5*second
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
				q.first("a5").fail(errOops)
				start = time.Now() // a take ends the bound
				q.one("a5", debounce)
				due(start, 2*second)
				time.Sleep(second)
				q.changes(id, task.Change[string]{Delay: 20 * second})
				due(start, 21*second)
				q.one("a5", debounce)
				q.order("b1 a6")
				time.Sleep(2 * second)
				l := q.first("a5") // a follower has its own bound, and brings it along
				start = time.Now()
				q.one("a7", debounce)
				time.Sleep(4 * second)
				l.release(second)
				q.one("a8", debounce)
				due(start, 5*second)
				q.refuses("a1", task.PutOptions{UniqueKey: "x", MaxDelay: 1}, task.ErrInvalid)
				debounce.MaxDelay = -1
				q.refuses("a1", debounce, task.ErrInvalid)
			})
		},
	},
	{"Follow", "If the task with the UniqueKey is taken, the new task follows it.", func(e *env) {
		for name, starts := range map[string]bool{ // the follower; else the first is tried again
			"Ack": true, "Bury": true, "Discard": true, "Fail": false, "Return": false, "Snooze": false,
		} {
			e.Log("ended by", name)
			e.each([]options{{Capacity: 3}}, func(q *queue) {
				l, next := q.followed(task.PutOptions{})
				wait := q.waiting()
				equal(e, "id", q.one("a3", again), next)
				q.state(task.Held, next)
				found, err := q.Find(ctx, "x")
				e.ok(err)
				equal(e, "the task with the unique key", found.ID, l.ID)
				q.refusesID(next, task.ErrBlocked)
				other := q.put("b1")[0]
				q.refuses("c1", task.PutOptions{}, task.ErrFull)
				q.remove(other)
				q.refuses("a4", unique, task.ErrDuplicate)
				q.refuses("b1", again, task.ErrReplace)
				wait.waits()
				e.ok(ends(l.Task, 0)[name](ctx))
				after := q.waiting()
				if starts {
					equal(e, "the first task is over", wait.over(), true)
				} else {
					q.gone(next)
					wait.waits()
				}
				after.waits()
				q.order("a3")
				after.returns(nil)
			})
		}
	}},
	{"FollowLater", "is ready, or delayed until the end of its own Delay", func(e *env) {
		e.each(modes, func(q *queue) {
			for _, end := range []func(*lease){(*lease).ack, func(l *lease) { l.fail(errOops) }} {
				start := time.Now()
				l, _ := q.followed(task.PutOptions{Delay: 5 * second, TTL: 2 * second})
				time.Sleep(3 * second)
				end(l)
				t, err := q.Find(ctx, "x")
				e.ok(err)
				e.at("Until", t.Info().Until, start, 5*second)
				e.at("Expires", t.Info().Expires, start, 7*second)
				time.Sleep(4 * second)
			}
			l, next := q.followed(task.PutOptions{TTL: second}) // it expires while it is held
			time.Sleep(second)
			q.gone(next)
			next = q.one("a3", again)
			q.bury(next)
			l.ack()
			e.ok(q.KickID(ctx, next)) // it is a task like any other
			equal(e, "unique key", q.peek(next).Info().UniqueKey, "")
			q.order("a3")
		})
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
			q.followed(task.PutOptions{})
			wait := q.waiting()
			equal(e, "deleted", q.truncate(), 2)
			wait.returns(task.ErrDeleted)
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
		take := q.taking()
		take.waits()
		q.start("g")
		got(take, "a1")
		q.state(task.Ready, ids[1:]...)
		q.order("b1 a2")
		q.counts(0, 0, 1, 0, 1)
	}},
	{"End", "When all its members are gone, its AtEnd tasks become ready", func(e *env) {
		q := e.open()
		ids := q.put("a1 b1 c1", in(task.Member))
		end, abort := q.one("e1", in(task.AtEnd)), q.one("f1", in(task.AtAbort))
		equal(e, "role", q.peek(abort).Info().Role, task.AtAbort)
		q.start("g")
		q.first("a1").ack()
		q.put("a2", in(task.Member))
		l := q.takes("b1 c1 a2")
		q.remove(ids[1])
		l[2].ack()
		q.state(task.Held, end, abort)
		take := q.taking()
		l[1].discard()
		got(take, "e1")
		q.gone(abort)
		equal(e, "acks and deletes", [2]uint64{q.stats().Acks, q.stats().Deletes}, [2]uint64{2, 3})
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
		q.state(task.Held, abort)
		take := q.taking()
		take.waits()
		l[0].ack()
		got(take, "f1").ack()
		q.gone(end)
		equal(e, "deletes", q.stats().Deletes, 4)
	}},
	{"HandedBack", "When these are done or handed back, the AtAbort tasks become ready " +
		"and the group is over.", func(e *env) {
		for name, end := range handsBack {
			e.Log("ended by", name)
			e.each([]options{{Grace: second, TTR: second}}, func(q *queue) {
				q.put("a1", in(task.Member))
				q.put("f1", in(task.AtAbort))
				q.start("g")
				c := q.consumer(task.Filter{})
				l := c.first("a1")
				q.cancel()
				q.none()
				end(c, l)
				l.lost(q)
				q.order("f1")
				q.counts(0, 0, 0, 0, 0)
			})
		}
	}},
}
