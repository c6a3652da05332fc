package storetest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fairq/fairq/task"
)

// settle are the ways to end a lease.
var settle = map[string]func(*lease){
	"Ack":     func(l *lease) { l.ack() },
	"Release": func(l *lease) { l.release(0) },
	"Snooze":  func(l *lease) { l.snooze(0) },
	"Return":  func(l *lease) { l.back() },
	"Fail":    func(l *lease) { l.fail(errOops) },
	"Bury":    func(l *lease) { l.bury() },
	"Discard": func(l *lease) { l.discard() },
	"later":   func(l *lease) { l.release(time.Hour) },
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
		want := task.Info{
			ID: id, Key: "a", Kind: "k", UniqueKey: "x", State: task.Ready, Priority: 7, Cost: 1,
		}
		check := func(what string, got task.Info) {
			e.Helper()
			e.at("created", got.Created, start, 0)
			e.at("ready", got.ReadyAt, start, 0)
			got.Created, got.ReadyAt = time.Time{}, time.Time{}
			equal(e, what, got, want)
		}
		check("task put", q.peek(id).Info())
		equal(e, "payload", q.peek(id).Payload, "a1")
		time.Sleep(time.Second)
		c := q.consumer(task.Filter{})
		l := c.first("a1")
		want.State, want.Attempts, want.Consumer = task.Taken, 1, c.ID()
		check("task taken", l.Info())
		check("task taken, by Peek", q.peek(id).Info())
		l.ack()
		q.gone(id)
		q.counts(0, 0, 0, 0, 0)
	}},
	{"OneConsumer", "One consumer at a time holds a task, while its lease lasts.", func(e *env) {
		q := e.open()
		q.put("a1")
		q.first("a1")
		q.none()
		q.consumer(task.Filter{}).none()
	}},
	{"Settled", "Then all methods of the Task return " +
		"[ErrLeaseLost] and change nothing.", func(e *env) {
		q := e.open()
		for name, end := range settle {
			e.Log("after", name)
			q.put("a1")
			l := q.first("a1")
			end(l)
			l.lost(q)
			_, err := q.Truncate(ctx)
			e.ok(err)
		}
	}},
	{"SeenIsNotHeld", "A Task from Peek or List has no lease.", func(e *env) {
		q := e.open()
		id := q.put("a1")[0]
		l := q.first("a1")
		(&lease{q.peek(id), e}).lost(q)
		all, err := q.List(ctx, task.ListOptions{})
		e.ok(err)
		(&lease{all[0], e}).lost(q)
		l.ack()
	}},
	{"Fail", "Fail is Release, and records the reason. If reason is, or wraps, an " +
		"[*Error], Fail records its code", func(e *env) {
		q := e.open()
		id := q.put("a1")[0]
		for _, c := range []struct{ err, want error }{
			{&task.Error{Code: 3, Message: "full"}, &task.Error{Code: 3, Message: "full"}},
			{errOops, &task.Error{Message: "oops"}},
			{
				fmt.Errorf("disk: %w", &task.Error{Code: -4, Message: "worn"}),
				&task.Error{Code: -4, Message: "disk: worn"},
			},
		} {
			q.first("a1").fail(c.err)
			q.state(task.Ready, id)
			equal[error](e, "recorded error", q.peek(id).Info().Err, c.want)
		}
		l := q.first("a1")
		equal(e, "recorded error, as the next one sees it", *l.Info().Err,
			task.Error{Code: -4, Message: "disk: worn"})
	}},
	{"Discard", "reports the task as failed for good, and removes it, as Ack does", func(e *env) {
		q := e.open(options{Capacity: 1})
		id := q.put("a1")[0]
		l := q.first("a1")
		put := q.putting("b1")
		put.waits()
		w := q.watch(ctx)
		e.ok(l.Discard(ctx, &task.Error{Code: 7, Message: "bad"}))
		q.gone(id)
		put.returns(nil)
		l.lost(q)
		ev := w.saw("delete a, put b")[0]
		equal(e, "error in the event", *ev.Task.Err, task.Error{Code: 7, Message: "bad"})
		equal(e, "a lease ended", ev.Lease != 0, true)
		equal(e, "acks, buries and deletes",
			[3]uint64{q.stats().Acks, q.stats().Buries, q.stats().Deletes}, [3]uint64{0, 0, 1})
		q.order("b1")
	}},
	{"KickOrder", "makes up to Limit buried tasks of a Key and Kind ready, in the order in which " +
		"they were buried, and returns their number", func(e *env) {
		q := e.open()
		q.put("a1 b1 c1 d1 a2")
		l := q.takes("a1 b1 c1 d1 a2")
		for _, i := range []int{3, 0, 4, 2, 1} {
			l[i].bury()
		}
		q.counts(0, 0, 0, 5, 0)
		q.kick(2, 2)
		q.counts(2, 0, 0, 3, 0)
		q.order("d1 a1")
		q.kick(100, 3)
		q.kick(100, 0)
		q.order("a2 c1 b1")
		equal(e, "kicks", q.stats().Kicks, 5)
		for _, o := range []task.ListOptions{
			{State: task.Ready}, {Group: "g"}, {After: 1}, {Limit: -1},
		} {
			_, err := q.Kick(ctx, o)
			e.is(err, task.ErrInvalid)
		}
	}},
	{"KickID", "It returns [ErrNotFound] if there is no such " +
		"task, or it is not buried.", func(e *env) {
		q := e.open()
		ids, l := q.everywhere()
		for state, id := range ids {
			if state != task.Buried {
				e.is(q.KickID(ctx, id), task.ErrNotFound)
				q.state(state, id)
			}
		}
		e.is(q.KickID(ctx, 1<<40), task.ErrNotFound)
		e.ok(q.KickID(ctx, ids[task.Buried]))
		q.counts(2, 1, 1, 0, 1)
		l.ack()
	}},
	{"Delete", "removes a task in any state. A lease on it is lost.", func(e *env) {
		q := e.open()
		ids, l := q.everywhere()
		for _, id := range ids {
			q.remove(id)
			q.gone(id)
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
			q.takes("a1 b1")[0].ack()
			q.remove(last)
			_, err := q.Truncate(ctx)
			e.ok(err)
			q.gone(last)
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
	{"Names", "is the greatest length in bytes of a queue's name and of a task's key, " +
		"kind, unique key and group", func(e *env) {
		long := strings.Repeat("x", task.MaxName-1)
		q := e.openIn(e.store, "queue/../\x00'\";%s ü", options{})
		names := []string{
			"", " ", "a", "A", "a ", "ä", "a\x00b", "a\xff", "%", "a/b", "a'b", `a"b`, `a\b`, "a:*>.", "\n",
			long + "y", long + "z",
		}
		for _, name := range names {
			o := task.PutOptions{Kind: name, UniqueKey: name, Group: name}
			_, err := q.Put(ctx, name, "payload", o)
			e.ok(err)
			if name != "" {
				q.start(name)
			}
		}
		equal(e, "keys", q.stats().Keys, len(names))
		for _, name := range names {
			c := q.consumer(task.Filter{Kinds: []string{name}})
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
	}},
	{"Nothing", "is returned when there is no such task, " +
		"consumer, group or unique key", func(e *env) {
		q := e.open()
		q.none()
		_, _, err := q.ResumeConsumer(ctx, "nobody", task.Filter{})
		for _, err := range []error{
			err, q.Delete(ctx, 1), q.Bury(ctx, 1, errOops), q.KickID(ctx, 1), q.StartGroup(ctx, "g"),
			q.CancelGroup(ctx, "g"), q.Wait(ctx, "x"),
		} {
			e.is(err, task.ErrNotFound)
		}
		q.gone(0, 1, 1<<63)
		n, err := q.Truncate(ctx)
		e.ok(errors.Join(err, q.Resume(ctx), q.ResumeKey(ctx, "a")))
		equal(e, "tasks deleted", n, 0)
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
		q.state(task.Ready, two, never)
		q.remove(two)
		for range 100 {
			q.first("c1").release(0)
		}
		q.state(task.Ready, never)
	}},
}
