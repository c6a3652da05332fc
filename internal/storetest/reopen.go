package storetest

import (
	"strings"
	"time"

	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/memory"
)

// reopen returns the store as another process would open it.
func (e *env) reopen() task.Store {
	e.Helper()
	e.reopened = true
	return e.reopener.Reopen(e.T)
}

// again closes the queue, and opens it as another process would.
func (q *queue) again(o ...options) *queue {
	q.e.Helper()
	store := q.e.reopen()
	q.close()
	return q.e.openIn(store, "queue", o...)
}

// kill ends the store as the end of its process would.
func (e *env) kill() {
	e.killed = true
	e.reopener.Kill(e.T)
}

var reopenCases = []testCase{
	{"Random", "The tasks stay in the store.", func(e *env) {
		for _, seed := range seeds(e.T, max(2, few(3))) {
			s := Subject{Store: e.store, Others: []task.Store{e.reopen()}, InTurn: true}
			if compare(e.T, seed, new(memory.Store), s); e.Failed() {
				return
			}
		}
	}},
	{"Time", "Changes that are due at a time happen at that time", func(e *env) {
		q, start := e.open(), time.Now()
		q.one("a1", task.PutOptions{Delay: 10 * second})
		id := q.one("b1", task.PutOptions{TTL: 5 * second})
		q.one("c1", task.PutOptions{Delay: second})
		q = q.again()
		w := q.watch(ctx)
		take := q.consumer(upTo(0)).taking()
		got(take, "b1").bury()
		time.Sleep(20 * second)
		q.gone(id)
		q.order("c1 a1")
		events := w.saw("take b, bury b, delay c, ttl b, delay a, take c, ack c, take a, ack a")
		for i, after := range map[int]time.Duration{2: second, 3: 5 * second, 4: 10 * second} {
			e.at("event", events[i].Time, start, after)
		}
	}},
	{"Order", "Open refuses another KeepPlace for a queue that has tasks.", func(e *env) {
		q := e.open()
		q.bury(q.put("a1")[0])
		q.close()
		for o, want := range map[*options]string{
			{KeepPlace: true}: "task: Options.KeepPlace is true; it must be false, ",
			{Quantum: 5}:      "task: Options.Quantum is 5; it must be 0, ",
		} {
			_, err := task.Open(ctx, e.reopen(), "queue", o)
			if e.is(err, task.ErrInvalid); !strings.HasPrefix(err.Error(), want) {
				e.Fatalf("the error is %q; it should begin with %q", err, want)
			}
		}
		e.openIn(e.reopen(), "queue").counts(0, 0, 0, 1, 0)
	}},
	{
		"Died", "is the time for which a consumer that disconnects, or whose process dies, keeps its " +
			"leases ... which has disconnected or whose process has died, and the tasks that it holds",
		func(e *env) {
			q := e.open()
			q.put("a1 b1 b2 c1")
			c := q.consumer(task.Filter{})
			c.takes("a1")
			q.first("b1")
			time.Sleep(time.Hour)
			other := e.openIn(e.reopen(), "queue")
			later()
			l := other.takes("c1 b2")
			other.none()
			l[1].back()
			e.kill()
			_, held := other.resume(c.ID(), "a1")
			time.Sleep(time.Hour)
			held[0].ack()
			other.order("b2 b1") // b1 may have killed its process, so it takes a new turn
		},
	},
}
