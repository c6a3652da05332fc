package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

func (q *queue) list(o task.ListOptions) string {
	q.e.Helper()
	tasks, err := q.List(ctx, o)
	q.e.ok(err)
	return payloads(tasks)
}

var viewCases = []testCase{
	{"List", "returns tasks in the order of their ids", func(e *env) {
		q := e.open()
		q.put("c1 b1 a1 c2 a2", task.PutOptions{Kind: "k"})
		q.put("a3 b2", in(task.Member))
		q.first("c1").bury()
		q.first("b1")
		for want, all := range map[string][]task.ListOptions{
			"c1 b1 a1 c2 a2 a3 b2": {{}},
			"a1 c2 a2":             {{State: task.Ready}},
			"b1":                   {{State: task.Taken}},
			"c1":                   {{State: task.Buried}},
			"a3 b2":                {{State: task.Held}, {Group: "g"}, {Kind: new("")}},
			"":                     {{State: task.Delayed}, {Key: new("")}, {Group: "h"}},
			"a1 a2 a3":             {{Key: new("a")}},
			"c1 b1 a1 c2 a2":       {{Kind: new("k")}},
			"c2":                   {{State: task.Ready, Key: new("c"), Kind: new("k")}},
		} {
			for _, o := range all {
				equal(e, "tasks", q.list(o), want)
				o.Limit, o.After = 1, 1000
				n, err := q.Count(ctx, o)
				e.ok(err)
				equal(e, "number of tasks", n, len(strings.Fields(want)))
			}
		}
	}},
	{"NextFirst", "NextFirst makes List return tasks in the " +
		"order of their next change.", func(e *env) {
		q := e.open()
		for name, o := range map[string]task.PutOptions{
			"a3": {Delay: 3 * second}, "a1": {Delay: second, Kind: "k"},
			"b2": {Delay: time.Hour, Deadline: time.Now().Add(2 * second)}, "b4": {TTL: second},
		} {
			q.one(name, o)
		}
		ids := q.put("c1 c2 c3")
		for _, i := range []int{1, 0, 2} {
			q.bury(ids[i])
		}
		for want, o := range map[string]task.ListOptions{
			"a1 b2 a3": {State: task.Delayed}, "a1": {State: task.Delayed, Limit: 1},
			"b2":    {State: task.Delayed, Limit: 1, Kind: new("")},
			"c2 c1": {State: task.Buried, Limit: 2},
		} {
			o.NextFirst = true
			equal(e, "tasks", q.list(o), want)
		}
		for _, o := range []task.ListOptions{
			{}, {State: task.Ready}, {State: task.Buried, Group: "g"}, {State: task.Delayed, After: 1},
		} {
			o.NextFirst = true
			e.is(errOf(q.List(ctx, o)), task.ErrInvalid)
		}
	}},
	{"Pages", "only greater ids: the last id of the page before", func(e *env) {
		q := e.open()
		ids := q.put(strings.Repeat("a1 b1 ", 120))
		q.remove(ids[150])
		var listed []task.ID
		for page := []task.ID{0}; len(page) > 0; {
			tasks, err := q.List(ctx, task.ListOptions{After: page[len(page)-1]})
			e.ok(err)
			page = nil
			for _, t := range tasks {
				page = append(page, t.ID)
			}
			listed = append(listed, page...)
		}
		equal(e, "tasks", listed, slices.Delete(slices.Clone(ids), 150, 151))
		equal(e, "two of key b",
			q.list(task.ListOptions{Key: new("b"), After: ids[2], Limit: 2}), "b1 b1")
	}},
	{"Queues", "lists the queues, from a name on", func(e *env) {
		is := func(from string, n int, want string) {
			e.Helper()
			names, err := e.store.Queues(ctx, from, n)
			e.ok(err)
			equal(e, "queues", strings.Join(names, " "), want)
		}
		is("", 0, "")
		for _, name := range []string{"b", "a\x00b", "c", "a\xff", "a"} {
			e.openIn(e.store, name)
		}
		is("", 0, "a a\x00b a\xff b c")
		is("", 2, "a a\x00b")
		is("a\x00", 2, "a\x00b a\xff")
		is("b", 1, "b")
		is("bb", 1, "c")
		is("d", 0, "")
		is("a", 1, "a")
		q := e.openIn(e.store, "d")
		e.ok(q.Drop(ctx))
		is("d", 1, "")
	}},
	{"Upcoming", "So it leaves out tasks that cannot be taken", func(e *env) {
		q := e.open(options{MaxInFlightPerKey: 2})
		upcoming := func(n int, want string) {
			e.Helper()
			infos, err := q.Upcoming(ctx, n)
			e.ok(err)
			var names []string
			for _, i := range infos {
				t := q.peek(i.ID)
				equal(e, "Info", i.Info, t.Info())
				names = append(names, fmt.Sprint(t.Payload, "/", i.Round))
				equal(e, "Weight", i.Weight, 1)
			}
			equal(e, fmt.Sprintf("Upcoming(%d)", n), strings.Join(names, " "), want)
		}
		upcoming(9, "")
		q.one("c2", task.PutOptions{Priority: 1})
		q.one("d1", task.PutOptions{Delay: time.Hour})
		q.put("a1 a2 a3 b1 c1")
		upcoming(9, "a1/1 b1/1 c1/1 a2/2 c2/1") // c2 is of another priority
		upcoming(2, "a1/1 b1/1")
		upcoming(0, "")
		l := q.first("a1")
		q.pauseKey("b")
		upcoming(9, "c1/0 a2/1 c2/1")
		e.ok(q.Pause(ctx))
		upcoming(9, "")
		e.ok(q.Resume(ctx))
		q.resumeKey("b")
		l.back()
		upcoming(task.MaxBatch, "a1/0 b1/0 c1/0 a2/1 c2/1")
	}},
	{"KeyStats", "returns the n keys with the most tasks, most first", func(e *env) {
		q, start := e.open(), time.Now()
		q.put("a1 b1")
		time.Sleep(second)
		q.one("b5", task.PutOptions{Delay: time.Hour})
		time.Sleep(second)
		q.put("b2 b3 b4 c1")
		q.takes("a1 b1 c1")[1].bury()
		time.Sleep(second)
		q.put("c2")
		q.one("b6", task.PutOptions{Group: "g"})
		q.pauseKey("c")
		want := []fairq.KeyStat[string]{
			{Key: "b", Backlog: 5, Buried: 1, OldestAge: 2 * second},
			{Key: "c", Backlog: 1, Taken: 1, Paused: true},
			{Key: "a", Taken: 1},
		}
		e.at("the clock", time.Now(), start, 3*second)
		for n := range 6 {
			stats, err := q.KeyStats(ctx, n, fairq.ByBacklog)
			e.ok(err)
			first := slices.Clone(want[:min(n, 3)])
			if n < 2 { // paused keys are there too
				first = append(first, want[1])
			}
			equal(e, "KeyStats by backlog", stats, first)
		}
		oldest, err := q.KeyStats(ctx, 1, fairq.ByOldest)
		e.ok(err)
		equal(e, "keys by age", []string{oldest[0].Key, oldest[1].Key}, []string{"b", "c"})
	}},
	{"DeleteSome", "It deletes taken tasks only if State is Taken.", func(e *env) {
		e.each(modes, func(q *queue) {
			n := 1300 * few(5) / 5
			for i := 0; i < n; i += 20 {
				q.many(20, task.PutOptions{})
			}
			q.put("b1 b2")
			q.one("a2", kind("x"))
			q.one("a3", task.PutOptions{Delay: time.Hour})
			l := q.takes("a1 b1")
			deletes := func(want int, options task.ListOptions) {
				e.Helper()
				n, err := q.DeleteSome(ctx, options)
				e.ok(err)
				equal(e, "tasks deleted", n, want)
			}
			deletes(1, task.ListOptions{Key: new("a"), Kind: new("x")})
			deletes(1, task.ListOptions{State: task.Delayed})
			deletes(0, task.ListOptions{Key: new("c")})
			deletes(n-1, task.ListOptions{Key: new("a")})
			q.counts(1, 0, 2, 0, 0)
			q.put("a4")
			deletes(1, task.ListOptions{Key: new("a"), State: task.Taken})
			l[0].lost(q)
			l[1].ack()
			q.order("b2 a4")
			for _, wrong := range []task.ListOptions{
				{Group: "g"}, {After: 1}, {State: task.Held + 1}, {State: task.Delayed, NextFirst: true},
			} {
				e.is(errOf(q.DeleteSome(ctx, wrong)), task.ErrInvalid)
			}
		})
	}},
	{"Position", "returns how many tasks would be taken before the task of that id", func(e *env) {
		q := e.open()
		ids := q.put("a1 a2 a3 b1 c1")
		at := func(id task.ID, limit, want int, wantOK bool) {
			e.Helper()
			before, ok, err := q.Position(ctx, id, limit)
			e.ok(err)
			equal(e, "position", before, want)
			equal(e, "ok", ok, wantOK)
		}
		fails := func(id task.ID, want error) {
			e.Helper()
			_, _, err := q.Position(ctx, id, 10)
			e.is(err, want)
		}
		for i, want := range []int{0, 3, 4, 1, 2} {
			at(ids[i], want+1, want, true)
		}
		at(ids[1], 3, 0, false)
		q.hold("a", time.Hour)
		fails(ids[0], task.ErrBlocked)
		at(ids[4], 10, 1, true)
		fails(q.one("d1", task.PutOptions{Delay: time.Hour}), task.ErrBlocked)
		fails(q.first("b1").ID, task.ErrTaken)
		fails(1<<40, task.ErrNotFound)
		for _, limit := range []int{0, task.MaxBatch + 1} {
			_, _, err := q.Position(ctx, ids[0], limit)
			e.is(err, task.ErrInvalid)
		}
	}},
	{"Truncate", "deletes all tasks, and returns their number. All leases are lost.", func(e *env) {
		q := e.open()
		_, l := q.everywhere()
		equal(e, "tasks deleted", q.truncate(), 5)
		l.lost(q)
		time.Sleep(2 * time.Hour)
		q.none()
		equal(e, "keys", q.stats().Keys, 0)
		q.put("a1 a2 b1")
		q.order("a1 b1 a2")
	}},
}

var eventCases = []testCase{
	{"Ends", "its time to live or its deadline is over, and it is gone", func(e *env) {
		q, start := e.open(), time.Now()
		w := q.watch(ctx)
		q.one("a1", task.PutOptions{TTL: second})
		q.remove(q.put("b1")[0])
		time.Sleep(2 * second)
		evs := w.saw("put a, put b, delete b, ttl a")
		e.at("event", evs[3].Time, start, second)
		q.put("c1 d1")
		q.first("c1")
		q.truncate()
		evs = w.saw("put c, put d, take c, delete c, delete d")
		equal(e, "a lease ended", evs[3].Lease != 0 && evs[4].Lease == 0, true)
	}},
	{"Group", "it was deleted, discarded or cancelled with its group, and is gone", func(e *env) {
		q := e.open()
		q.put("a1 b1 c1", in(task.Member))
		q.put("e1", in(task.AtEnd))
		q.put("f1", in(task.AtAbort))
		q.start("g")
		l := q.takes("a1")
		w := q.watch(ctx)
		q.cancel()
		w.saw("cancel a, delete b, delete c")
		l[0].release(0)
		if _, got := w.seen(); got != "release a, delete a, delete e, start f" &&
			got != "release a, delete a, start f, delete e" {
			e.Fatalf("events: %s", got)
		}
	}},
	{"Readers", "until ctx is done or the queue is closed", func(e *env) {
		q := e.open()
		gone, cancel := context.WithCancel(ctx)
		one, two := q.watch(gone), q.watch(ctx)
		q.put("a1")
		one.saw("put a")
		cancel()
		one.saw("")
		equal(e, "the reader is over", one.over, true)
		q.put("b1")
		one.saw("")
		two.saw("put a, put b")
		q.close()
		synctest.Wait()
		equal(e, "the reader is over", two.over, true)
	}},
}
