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
	"Fail":    func(l *lease) { l.fail(errOops) },
	"Bury":    func(l *lease) { l.bury() },
	"Discard": func(l *lease) { l.discard() },
	"later":   func(l *lease) { l.release(time.Hour) },
}

// everywhere puts a task into each state, and returns their ids, and the lease of the one that is
// taken.
func (q *queue) everywhere() (ids map[task.State]task.ID, l *lease) {
	q.e.Helper()
	taken, buried := q.one("t1", task.PutOptions{}), q.one("b1", task.PutOptions{})
	l = q.first("t1")
	q.first("b1").bury()
	ids = map[task.State]task.ID{
		task.Ready: q.one("r1", task.PutOptions{}), task.Taken: taken, task.Buried: buried,
		task.Delayed: q.one("d1", task.PutOptions{Delay: time.Hour}), task.Held: q.one("h1", task.PutOptions{Group: "g"}),
	}
	for state, id := range ids {
		q.state(state, id)
	}
	q.counts(1, 1, 1, 1, 1)
	return ids, l
}

var lifeCases = []testCase{
	{"PutTakeAck", "remembers a task until who has taken it says how it went", func(e *env) {
		q, start := e.open(), time.Now()
		id := q.one("a1", task.PutOptions{Priority: 7, Kind: "k", UniqueKey: "x"})
		want := task.Info{ID: id, Key: "a", Kind: "k", UniqueKey: "x", State: task.Ready, Priority: 7, Cost: 1}
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
	{"OneConsumer", "A task is with one consumer at a time, as long as the lease lasts.", func(e *env) {
		q := e.open()
		q.put("a1")
		q.first("a1")
		q.none()
		q.consumer(task.Filter{}).none()
	}},
	{"Settled", "Then it is lost, all its methods return [ErrLeaseLost], and change nothing.", func(e *env) {
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
	{"NextLease", "With a lost lease nothing can be changed.", func(e *env) {
		q := e.open()
		q.put("a1")
		first := q.first("a1")
		first.release(0)
		second := q.first("a1")
		first.lost(q)
		second.holds()
		second.ack()
	}},
	{"SeenIsNotHeld", "A Task from Peek or List is no lease.", func(e *env) {
		q := e.open()
		id := q.put("a1")[0]
		l := q.first("a1")
		(&lease{q.peek(id), e}).lost(q)
		all, err := q.List(ctx, task.ListOptions{})
		e.ok(err)
		(&lease{all[0], e}).lost(q)
		l.ack()
	}},
	{"Release", "it is the first of its key, and among the first of all", func(e *env) {
		q := e.open()
		id := q.put("a1 a2 b1")[0]
		q.first("a1").release(0)
		q.state(task.Ready, id)
		equal(e, "attempts", q.peek(id).Attempts, 1)
		q.order("a1 b1 a2")
		equal(e, "releases", q.stats().Releases, 1)
	}},
	{"Fail", "Fail is Release, and records why. If reason is, or wraps, an [*Error], its code is too", func(e *env) {
		q := e.open()
		id := q.put("a1")[0]
		for _, c := range []struct{ err, want error }{
			{&task.Error{Code: 3, Message: "full"}, &task.Error{Code: 3, Message: "full"}},
			{errOops, &task.Error{Message: "oops"}},
			{fmt.Errorf("disk: %w", &task.Error{Code: -4, Message: "worn"}), &task.Error{Code: -4, Message: "disk: worn"}},
		} {
			q.first("a1").fail(c.err)
			q.state(task.Ready, id)
			equal[error](e, "recorded error", q.peek(id).Info().Err, c.want)
		}
		l := q.first("a1")
		equal(e, "recorded error, as the next one sees it", *l.Info().Err, task.Error{Code: -4, Message: "disk: worn"})
	}},
	{"BuryAndKick", "puts the task aside, with the reason, until somebody kicks or deletes it", func(e *env) {
		q := e.open()
		id := q.put("a1")[0]
		q.first("a1").bury()
		q.state(task.Buried, id)
		equal(e, "reason", *q.peek(id).Info().Err, task.Error{Message: "oops"})
		time.Sleep(ages)
		q.none()
		q.kick(1, 1)
		q.state(task.Ready, id)
		q.first("a1").bury()
		q.remove(id)
		q.gone(id)
		equal(e, "buries", q.stats().Buries, 2)
	}},
	{"Discard", "the task has failed for good and is not to be kept: it is gone, as after Ack", func(e *env) {
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
		equal(e, "acks, buries and deletes", [3]uint64{q.stats().Acks, q.stats().Buries, q.stats().Deletes}, [3]uint64{0, 0, 1})
		q.order("b1")
	}},
	{"KickOrder", "makes buried tasks of a Key and Kind ready, up to Limit, in the order in which they were buried, and returns how many", func(e *env) {
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
		_, err := q.Kick(ctx, task.ListOptions{Limit: -1})
		e.is(err, task.ErrInvalid)
	}},
	{"KickSome", "makes buried tasks of a Key and Kind ready, up to Limit", func(e *env) {
		q := e.open()
		q.put("a1 b1 a2", task.PutOptions{Kind: "x"})
		q.put("a3 b2 a4", task.PutOptions{Kind: "y"})
		for _, l := range q.takes("a1 b1 a2 b2 a3 a4") {
			l.bury()
		}
		kick := func(want int, o task.ListOptions) {
			e.Helper()
			n, err := q.Kick(ctx, o)
			e.ok(err)
			equal(e, "kicked", n, want)
		}
		kick(0, task.ListOptions{Key: new("c")})
		kick(1, task.ListOptions{Key: new("a"), Kind: new("y"), Limit: 1})
		q.order("a3")
		kick(2, task.ListOptions{Kind: new("x"), Limit: 2, State: task.Buried})
		q.order("a1 b1")
		kick(2, task.ListOptions{Key: new("a"), Limit: 2})
		q.order("a2 a4")
		kick(1, task.ListOptions{})
		q.order("b2")
		for _, o := range []task.ListOptions{{State: task.Ready}, {Group: "g"}, {After: 1}, {Limit: -1}} {
			_, err := q.Kick(ctx, o)
			e.is(err, task.ErrInvalid)
		}
	}},
	{"KickID", "It returns [ErrNotFound] if there is no such task, or it is not buried.", func(e *env) {
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
	{"BuryByOthers", "buries a task, in whatever state it is. A lease on it is lost.", func(e *env) {
		q := e.open()
		ids, l := q.everywhere()
		for _, id := range ids {
			e.ok(q.Bury(ctx, id, &task.Error{Code: 9, Message: "bad"}))
			q.state(task.Buried, id)
			equal(e, "reason", *q.peek(id).Info().Err, task.Error{Code: 9, Message: "bad"})
		}
		l.lost(q)
		q.counts(0, 0, 0, 5, 0)
		time.Sleep(2 * time.Hour)
		q.none()
		e.is(q.Bury(ctx, 1<<40, errOops), task.ErrNotFound)
	}},
	{"Delete", "removes a task, in whatever state it is. A lease on it is lost.", func(e *env) {
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
	{"IDs", "No two tasks of a queue ever have the same; 0 is none.", func(e *env) {
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
	{"Invalid", "is returned when an argument or an option makes no sense", func(e *env) {
		q := e.open()
		const long = task.MaxDuration + 1
		for _, o := range []task.PutOptions{
			{Priority: task.MaxPriority + 1},
			{Priority: task.MaxPriority + 1},
			{Delay: -1},
			{Delay: long},
			{Delay: task.Forever},
			{TTL: -1},
			{TTL: long},
			{TTR: -1},
			{TTR: long},
			{Role: task.AtEnd},
			{Role: 9, Group: "g"},
			{Kind: strings.Repeat("k", task.MaxName+1)},
			{UniqueKey: strings.Repeat("a", task.MaxName+1)},
			{Group: strings.Repeat("g", task.MaxName+1)},
		} {
			q.refuses("a1", o, task.ErrInvalid)
		}
		q.put("a1")
		l := q.first("a1")
		for _, err := range []error{l.Release(ctx, -1), l.Snooze(ctx, -1), l.Fail(ctx, errOops, long), l.Touch(ctx, -1)} {
			e.is(err, task.ErrInvalid)
		}
		l.ack()
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
	{"Names", "is the length in bytes of a queue's name and of a task's key, kind, unique key and group", func(e *env) {
		long := strings.Repeat("x", task.MaxName-1)
		q := e.openIn(e.store, "queue/../\x00'\";%s ü", options{})
		names := []string{"", " ", "a", "A", "a ", "ä", "a\x00b", "a\xff", "%", "a/b", "a'b", `a"b`, `a\b`, "a:*>.", "\n", long + "y", long + "z"}
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
			equal(e, "key, kind, unique key, group", [4]string{l.Key, l.Kind, l.Info().UniqueKey, l.Info().Group}, [4]string{name, name, name, name})
			c.none()
			l.ack()
			if name != "" {
				e.ok(q.Wait(ctx, name))
			}
		}
		e.openIn(e.store, long+"y", options{}).put("a1")
		e.openIn(e.store, long+"z", options{}).none()
	}},
	{"Nothing", "is returned when there is no such task, consumer, group or unique key", func(e *env) {
		q := e.open()
		q.none()
		_, _, err := q.ResumeConsumer(ctx, "nobody", task.Filter{})
		for _, err := range []error{
			err, q.Delete(ctx, 1), q.Bury(ctx, 1, errOops), q.KickID(ctx, 1), q.StartGroup(ctx, "g"), q.CancelGroup(ctx, "g"), q.Wait(ctx, "x"),
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
	{"Fail", "One that was tried MaxAttempts times is buried, with its last error.", func(e *env) {
		q := e.open()
		id := q.one("a1", task.PutOptions{MaxAttempts: 2})
		q.first("a1").fail(&task.Error{Code: 1, Message: "first"})
		q.state(task.Ready, id)
		l := q.first("a1")
		equal(e, "attempts", l.Attempts, 2)
		e.ok(l.Fail(ctx, &task.Error{Code: 2, Message: "second"}, time.Hour))
		q.state(task.Buried, id)
		equal(e, "recorded error", *q.peek(id).Info().Err, task.Error{Code: 2, Message: "second"})
		l.lost(q)
	}},
	{"Release", "If it was its last attempt, it is buried instead.", func(e *env) {
		q := e.open()
		ids := q.put("a1 b1", task.PutOptions{MaxAttempts: 1})
		l := q.takes("a1 b1")
		l[0].release(0)
		l[1].release(time.Second)
		q.state(task.Buried, ids...)
		for _, id := range ids {
			if err := q.peek(id).Info().Err; err == nil || err.Message == "" {
				e.Fatalf("recorded error: %v; it should say that there were too many attempts", err)
			}
		}
		id := q.one("c1", task.PutOptions{MaxAttempts: 2})
		q.first("c1").fail(errOops)
		q.first("c1").release(0)
		equal(e, "last error", *q.peek(id).Info().Err, task.Error{Message: "oops"})
		equal(e, "releases and buries", [2]uint64{q.stats().Releases, q.stats().Buries}, [2]uint64{4, 3})
	}},
	{"Snooze", "is Release, but the attempt does not count, so the task is never buried by it", func(e *env) {
		q := e.open()
		id := q.one("a1", task.PutOptions{MaxAttempts: 2})
		q.first("a1").fail(errOops)
		q.put("a2 b1")
		for range 3 {
			l := q.first("a1")
			equal(e, "attempts", l.Attempts, 2)
			l.snooze(0)
			q.state(task.Ready, id)
			equal(e, "attempts", q.peek(id).Attempts, 1)
		}
		equal(e, "last error", *q.peek(id).Info().Err, task.Error{Message: "oops"})
		start := time.Now()
		q.first("a1").snooze(10 * second)
		q.state(task.Delayed, id)
		e.at("due", q.peek(id).Info().Until, start, 10*second)
		equal(e, "attempts", q.peek(id).Attempts, 1)
		time.Sleep(10 * second)
		equal(e, "releases and buries", [2]uint64{q.stats().Releases, q.stats().Buries}, [2]uint64{5, 0})
		q.order("b1 a2 a1")
		l := q.one("c1", task.PutOptions{MaxAttempts: 1})
		q.first("c1").snooze(0)
		q.first("c1").release(0)
		q.state(task.Buried, l)
	}},
	{"TTR", "is how often the task can be taken; one that was not done then is buried", func(e *env) {
		q := e.open()
		id := q.one("a1", task.PutOptions{MaxAttempts: 2, TTR: time.Second})
		for range 2 {
			q.first("a1")
			time.Sleep(time.Second)
		}
		q.state(task.Buried, id)
		if err := q.peek(id).Info().Err; err == nil || err.Message == "" {
			e.Fatalf("recorded error: %v; it should say that there were too many attempts", err)
		}
		equal(e, "losses", q.stats().Losses, 2)
	}},
	{"Kick", "They have all their attempts again.", func(e *env) {
		q := e.open()
		id := q.one("a1", task.PutOptions{MaxAttempts: 1})
		for range 3 {
			q.first("a1").fail(errOops)
			q.state(task.Buried, id)
			e.ok(q.KickID(ctx, id))
			equal(e, "attempts", q.peek(id).Attempts, 0)
		}
	}},
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
