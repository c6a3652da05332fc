package storetest

import (
	"errors"
	"time"

	"github.com/fairq/fairq/task"
)

// reopenAs opens the queue, which nobody has open, with options that it was perhaps not made with.
// A Store may refuse that.
func (e *env) reopenAs(store task.Store, o options) *queue {
	e.Helper()
	again, err := task.Open(ctx, store, "queue", &o)
	if errors.Is(err, task.ErrInvalid) {
		e.skip("the Options of a queue cannot be changed: " + err.Error())
	}
	e.ok(err)
	e.ok(again.Close(ctx))
	return e.openIn(store, "queue", o)
}

var changeCases = []testCase{
	{"Grace", "is the time for which a consumer that disconnects, or whose process " +
		"dies, keeps its leases ... The Queue calls it at the time given to " +
		"Notifier.Due or earlier.", func(e *env) {
		e.open().close()
		for _, grace := range []time.Duration{second, time.Hour} {
			q := e.reopenAs(e.store, options{Grace: grace})
			q.idles()
			q.put("a1 b1")
			held, c := q.first("a1"), q.consumer(task.Filter{})
			l := c.first("b1")
			c.disconnect()
			time.Sleep(grace - time.Millisecond)
			l.holds()
			time.Sleep(time.Minute)
			l.lost(q)
			q.order("b1")
			held.ack()
			q.close()
		}
	}},
	{"TinyGrace", "When a process dies it is at least a second.", func(e *env) {
		q := e.open(options{Grace: 1})
		q.put("a1 b1")
		l := q.first("a1")
		q.idles()
		c := q.consumer(task.Filter{})
		c.first("b1")
		c.disconnect()
		time.Sleep(time.Millisecond)
		q.order("b1")
		l.ack()
	}},
}
