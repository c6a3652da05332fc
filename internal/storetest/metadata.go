package storetest

import (
	"maps"
	"strings"
	"time"

	"github.com/fairq/fairq/task"
)

// about returns metadata, in a new map.
func about() map[string]string { return map[string]string{"trace": "1-2-3", "by": "alice"} }

// tagged puts tasks with metadata.
func (q *queue) tagged(tasks string) []task.ID {
	q.e.Helper()
	return q.put(tasks, task.PutOptions{Metadata: about()})
}

const (
	toldEverywhere = "It is in every Info of the task."
	ownMap         = "No other code has the map."
)

// checkMetadata checks the metadata of tasks, and then changes them.
func checkMetadata[V any](e *env, what string, tasks ...*task.Task[V]) {
	e.Helper()
	for _, t := range tasks {
		equal(e, "metadata of a task, by "+what, t.Info().Metadata, about())
		clear(t.Info().Metadata)
	}
}

var metadataCases = []testCase{
	{"Told", toldEverywhere, func(e *env) {
		q := e.open()
		ids := q.tagged("a1 a2 a3 a4")
		for range 2 { // the second time after the maps were changed
			checkMetadata(e, "Peek", q.peek(ids[0]))
			tasks, err := q.List(ctx, task.ListOptions{})
			e.ok(err)
			checkMetadata(e, "List", tasks...)
			infos, err := q.Upcoming(ctx, 1)
			e.ok(err)
			equal(e, "metadata of a task, by Upcoming", infos[0].Metadata, about())
			clear(infos[0].Metadata)
		}
		c := q.consumer(task.Filter{})
		var next task.Task[string]
		e.ok(errOf(c.AckAndTake(ctx, q.first("a1").Task, &next)))
		checkMetadata(e, "AckAndTake", &next)
		tasks, err := c.TakeBatch(ctx, 1)
		e.ok(err)
		checkMetadata(e, "TakeBatch", append(tasks, q.takesID(ids[3]).Task)...)
		c.disconnect()
		_, leases := q.resume(c.ID(), "a2 a3")
		for _, l := range leases {
			checkMetadata(e, "ResumeConsumer", l.Task)
			l.release(0)
		}
		checkMetadata(e, "Take", q.first("a2").Task)
	}},
	{"Events", ownMap, func(e *env) {
		q := e.open(options{TTR: second})
		watches := []*watch{q.watch(ctx), q.watch(ctx)}
		q.tagged("a1")
		q.first("a1").bury()
		q.kick(1, 1)
		q.first("a1")
		time.Sleep(second)
		q.first("a1").ack()
		for _, w := range watches {
			for _, ev := range w.saw("put a, take a, bury a, kick a, take a, ttr a, take a, ack a") {
				equal(e, "metadata of an event", ev.Task.Metadata, about())
				clear(ev.Task.Metadata)
			}
		}
	}},
	{"Copied", "The map is copied.", func(e *env) {
		o, x := e.expiring()
		q, m := e.open(o), about()
		q.put("a1 b1", task.PutOptions{Metadata: m, TTL: second})
		clear(m)
		checkMetadata(e, "Take", q.first("a1").Task)
		time.Sleep(second)
		checkMetadata(e, "OnExpire", x.got("b1")...)
	}},
	{"None", "nil if there is none", func(e *env) {
		q := e.open()
		q.put("a1")
		q.one("a2", task.PutOptions{Metadata: map[string]string{}, UniqueKey: "x"})
		for _, name := range []string{"a1", "a2"} {
			equal(e, "metadata", q.first(name).Info().Metadata, nil)
		}
	}},
	{"Text", "Names and values are UTF-8, and together at most [MaxMetadata] bytes.", func(e *env) {
		q, most := e.open(), strings.Repeat("\u00e9", task.MaxMetadata/2-1)
		for _, m := range []map[string]string{
			{"": ""},
			{"a": "", "A": "a", "": "\x00", "\x00": `"'\<&>`, "\u2028": "\ufffd🙂\n", "{}": "null"},
			{"m": most, "n": ""},
			{most: "", "mn": ""},
		} {
			q.one("a1", task.PutOptions{Metadata: maps.Clone(m)})
			l := q.first("a1")
			equal(e, "metadata", l.Info().Metadata, m)
			l.ack()
		}
		for _, m := range []map[string]string{
			{"m": most, "n": "n"}, {most: "xyz"}, {"a\xff": "b"}, {"a": "\xc3\x28"},
		} {
			q.refuses("a1", task.PutOptions{Metadata: m}, task.ErrInvalid)
		}
		q.counts(0, 0, 0, 0, 0)
	}},
}
