package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/fairq/fairq/task"
)

// settled are the ways to end a lease, and the states that follow.
var settled = map[string]task.State{
	"Ack": 0, "Release": task.Ready, "Snooze": task.Ready, "Return": task.Ready, "Fail": task.Ready,
	"Bury": task.Buried, "Discard": 0,
}

// everywhere puts a task into each state, and returns their ids and the lease of the taken one.
func (q *queue) everywhere() (ids map[task.State]task.ID, l *lease) {
	q.e.Helper()
	taken, buried := q.one("t1", task.PutOptions{}), q.one("b1", task.PutOptions{})
	l = q.first("t1")
	q.first("b1").bury()
	ids = map[task.State]task.ID{
		task.Ready: q.one("r1", task.PutOptions{}), task.Taken: taken, task.Buried: buried,
		task.Delayed: q.one("d1", task.PutOptions{Delay: time.Hour}),
		task.Held:    q.one("h1", task.PutOptions{Group: "g"}),
	}
	for state, id := range ids {
		q.state(state, id)
	}
	q.counts(1, 1, 1, 1, 1)
	return ids, l
}

var lifeCases = []testCase{
	{"PutTakeAck", "keeps a task until the consumer that has taken " +
		"it reports how it went", func(e *env) {
		q, start := e.open(), time.Now()
		id := q.one("a1", task.PutOptions{Priority: 7, Kind: "k", UniqueKey: "x"})
		got := q.peek(id).Info()
		e.at("created", got.Created, start, 0)
		e.at("ready", got.ReadyAt, start, 0)
		want := task.Info{
			ID: id, Key: "a", Kind: "k", UniqueKey: "x", State: task.Ready, Priority: 7, Cost: 1,
			Created: got.Created, ReadyAt: got.ReadyAt,
		}
		equal(e, "task put", got, want)
		time.Sleep(time.Second)
		c := q.consumer(task.Filter{})
		l := c.first("a1")
		want.State, want.Attempts, want.Consumer = task.Taken, 1, c.ID()
		equal(e, "task taken", l.Info(), want)
		equal(e, "task taken, by Peek", q.peek(id).Info(), want)
		l.ack()
		q.gone(id)
		q.counts(0, 0, 0, 0, 0)
	}},
	{"Settled", "Then all methods of the Task return [ErrLeaseLost] and change nothing. ... " +
		"A Task from Peek or List has no lease.", func(e *env) {
		q := e.open()
		for name := range settled {
			e.Log("after", name)
			q.put("a1")
			l := q.first("a1")
			(&lease{q.peek(l.ID), e}).lost(q)
			all, err := q.List(ctx, task.ListOptions{})
			e.ok(err)
			(&lease{all[0], e}).lost(q)
			e.ok(ends(l.Task, 0)[name](ctx))
			l.lost(q)
			q.truncate()
		}
	}},
	{"Fail", "Fail is Release, and records the reason. If reason is, or wraps, an " +
		"[*Error], Fail records its code", func(e *env) {
		q := e.open()
		q.put("a1")
		for _, c := range []struct {
			err  error
			want task.Error
		}{
			{&task.Error{Code: 3, Message: "full"}, task.Error{Code: 3, Message: "full"}},
			{errOops, task.Error{Message: "oops"}},
			{
				fmt.Errorf("disk: %w", &task.Error{Code: -4, Message: "worn"}),
				task.Error{Code: -4, Message: "disk: worn"},
			},
		} {
			l := q.first("a1")
			l.fail(c.err)
			l.now(q, task.Ready)
			equal(e, "recorded error", *q.peek(l.ID).Info().Err, c.want)
		}
	}},
	{"Discard", "reports the task as failed for good, and removes it, as Ack does", func(e *env) {
		q := e.open(options{Capacity: 1})
		q.put("a1")
		l := q.first("a1")
		put := q.putting("b1")
		w := q.watch(ctx)
		bad := &task.Error{Code: 7, Message: "bad"}
		e.ok(l.Discard(ctx, bad))
		l.now(q, 0)
		put.returns(nil)
		ev := w.saw("delete a, put b")[0]
		equal(e, "error in the event", ev.Task.Err, bad)
		equal(e, "a lease ended", ev.Lease != 0, true)
		equal(e, "acks, buries and deletes",
			[3]uint64{q.stats().Acks, q.stats().Buries, q.stats().Deletes}, [3]uint64{0, 0, 1})
	}},
	{"KickOrder", "makes up to Limit buried tasks of a Key and Kind ready, in the order in which " +
		"they were buried, and returns their number", func(e *env) {
		q := e.open()
		q.put("a1 b1 c1 d1 a2")
		l := q.takes("a1 b1 c1 d1 a2")
		for _, i := range []int{3, 0, 4, 2, 1} {
			l[i].bury()
		}
		q.kick(2, 2)
		q.counts(2, 0, 0, 3, 0)
		q.order("d1 a1")
		q.kick(100, 3)
		q.order("a2 c1 b1")
		equal(e, "kicks", q.stats().Kicks, 5)
	}},
	{"ByID", "It returns [ErrNotFound] if there is no such task, or it is not buried. ... " +
		"removes a task in any state. A lease on it is lost.", func(e *env) {
		q := e.open()
		ids, l := q.everywhere()
		for state, id := range ids {
			if state != task.Buried {
				e.is(q.KickID(ctx, id), task.ErrNotFound)
				q.state(state, id)
			}
		}
		e.ok(q.KickID(ctx, ids[task.Buried]))
		q.counts(2, 1, 1, 0, 1)
		for _, id := range ids {
			q.remove(id)
			e.is(q.Delete(ctx, id), task.ErrNotFound)
		}
		l.lost(q)
		time.Sleep(2 * time.Hour)
		q.none()
		equal(e, "deletes", q.stats().Deletes, 5)
	}},
	{"IDs", "No two tasks of a queue ever have the same ID; 0 is none.", func(e *env) {
		q := e.open()
		var last task.ID
		for range 3 {
			for _, id := range q.put("a1 b1 a2 c1") {
				if id <= last {
					e.Fatalf("id %d after %d; ids should grow", id, last)
				}
				last = id
			}
			q.first("a1").ack()
			q.remove(last)
			q.truncate()
		}
	}},
	{"Limits", "is the longest delay, time to live and time to run", func(e *env) {
		q, start := e.open(), time.Now()
		t := q.peek(q.one("a1", task.PutOptions{Delay: task.MaxDuration, TTL: task.MaxDuration}))
		e.at("due", t.Info().Until, start, task.MaxDuration)
		e.at("end of life", t.Info().Expires.Add(-task.MaxDuration), start, task.MaxDuration)
		q.one("b1", task.PutOptions{Priority: task.MaxPriority, TTR: task.MaxDuration})
		l := q.first("b1")
		equal(e, "priority", l.Priority, task.MaxPriority)
		e.at("end of the lease", l.Info().Until, start, task.MaxDuration)
	}},
	{
		"Names", "is the greatest length in bytes of a queue's name and of a task's key, " +
			"kind, unique key and group ... opens the queue of that name, and makes it if there is none",
		func(e *env) {
			long := strings.Repeat("x", task.MaxName-1)
			q := e.openIn(e.store, "queue/../\x00'\";%s ü", options{})
			names := []string{
				"", " ", "a", "A", "a ", "ä", "a\x00b", "a\xff", "%", "a/b", "a'b", `a"b`, `a\b`, "a:*>.",
				"\n", long + "y", long + "z",
			}
			for _, name := range names {
				e.ok(errOf(q.Put(ctx, name, "payload",
					task.PutOptions{Kind: name, UniqueKey: name, Group: name})))
				if name != "" {
					q.start(name)
				}
			}
			equal(e, "keys", q.stats().Keys, len(names))
			for _, name := range names {
				c := q.consumer(kinds(name))
				l := c.first("payload")
				equal(e, "key, kind, unique key, group",
					[4]string{l.Key, l.Kind, l.Info().UniqueKey, l.Info().Group},
					[4]string{name, name, name, name})
				c.none()
				l.ack()
				if name != "" {
					e.ok(q.Wait(ctx, name))
				}
			}
			e.openIn(e.store, long+"y", options{}).put("a1")
			e.openIn(e.store, long+"z", options{}).none()
		},
	},
	{"Nothing", "is returned when there is no such task, " +
		"consumer, group or unique key", func(e *env) {
		q := e.open()
		q.none()
		all := care(q.Queue)
		for name, call := range work(q.Queue) {
			if name == "ResumeConsumer" || name == "Wait" || name == "TakeID" {
				all[name] = call
			}
		}
		for _, name := range []string{
			"List", "Count", "Kick", "Truncate", "DeleteSome", "Upcoming", "Stats", "KeyStats", "Pause",
			"Resume", "PauseKey", "ResumeKey", "HoldKey",
		} {
			e.ok(all[name](ctx))
			delete(all, name)
		}
		e.refuse(task.ErrNotFound, all)
		q.gone(0, 1, 1<<63)
	}},
}

var attemptCases = []testCase{
	{"Default", "0 means Options.MaxAttempts; negative means no limit", func(e *env) {
		q := e.open(options{MaxAttempts: 1})
		one, two := q.one("a1", task.PutOptions{}), q.one("b1", task.PutOptions{MaxAttempts: 2})
		never := q.one("c1", task.PutOptions{MaxAttempts: -1})
		for _, l := range q.takes("a1 b1 c1") {
			l.release(0)
		}
		q.state(task.Buried, one)
		q.remove(two)
		for range 100 {
			q.first("c1").release(0)
		}
		q.state(task.Ready, never)
	}},
}
