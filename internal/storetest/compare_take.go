package storetest

import (
	"fmt"
	"time"

	"github.com/fairq/fairq/task"
)

func (c *comparison) take() {
	var f task.Filter
	if c.chance(4) {
		f.MaxPriority = new(c.IntN(3) - 1)
	}
	if c.chance(4) {
		f.Kinds = []string{oneOf(c, c.kinds...), oneOf(c, c.kinds...)}
	}
	w := oneOf(c, c.workers...)
	for range oneOf(c, 1, 1, 3) {
		if !c.takeOne(w, f) {
			return
		}
	}
}

// takeOne takes a task, and reports whether there was one.
func (c *comparison) takeOne(w *worker, f task.Filter) bool {
	w.got.SetFilter(f)
	w.want.SetFilter(f)
	got, ok, err := w.got.TryTake(ctx)
	c.ok("TryTake", err)
	return c.takeTheSame(w, f, got, ok)
}

// ackAndTake acks a task and takes the next one by one call, and in the wanted queue by two.
func (c *comparison) ackAndTake(w *worker, l *twins) {
	var f task.Filter
	if c.chance(3) {
		f.MaxPriority = new(0)
	}
	w.got.SetFilter(f)
	w.want.SetFilter(f)
	got, ok := new(task.Task[int]), false
	if c.both(fmt.Sprintf("AckAndTake of task %d", l.want.ID), nil, func(s *side) (err error) {
		if s == c.want {
			return l.want.Ack(ctx)
		}
		ok, err = w.got.AckAndTake(c.ctx, l.got, got)
		return err
	}) {
		c.equal("state", l.got.Info().State, l.want.Info().State)
		c.takeTheSame(w, f, got, ok)
	}
}

// takeTheSame takes a task from the wanted queue, if one was taken from the other.
func (c *comparison) takeTheSame(w *worker, f task.Filter, got *task.Task[int], ok bool) bool {
	if c.did("TryTake(%s): %v", showFilter(f), ok); ok {
		c.did("... task %d of %s, priority %d, kind %q", c.ids[got.ID], got.Key, got.Priority, got.Kind)
	}
	want, wantOK, err := w.want.TryTake(ctx)
	c.ok("TryTake", err)
	if !c.equal("whether a task was taken", ok, wantOK) || !ok {
		return false
	}
	c.equal("payload", got.Payload, want.Payload)
	c.leases = append(c.leases, &twins{got: got, want: want, at: w.at})
	return c.equal("the task that was taken", c.ids[got.ID], want.ID)
}

func showFilter(f task.Filter) string {
	if f.MaxPriority == nil {
		return fmt.Sprintf("%q", f.Kinds)
	}
	return fmt.Sprintf("%q, priority <= %d", f.Kinds, *f.MaxPriority)
}

func (c *comparison) settle() {
	if len(c.leases) == 0 {
		return
	}
	l := c.leases[len(c.leases)-1-min(c.IntN(8), c.IntN(len(c.leases)))]
	if w := oneOf(c, c.workers...); w.at == l.at && c.ctx == ctx && c.chance(4) {
		c.ackAndTake(w, l)
		return
	}
	d, names := time.Duration(c.IntN(4)/2)*c.duration(), []string{
		"Ack", "Ack", "Return", "Return", "Release", "Release", "Fail", "Fail", "Bury", "Snooze",
		"Discard", "Touch", "Repeat",
	}
	if c.pauses {
		names = append(names, "HoldKey", "Wait", "Wait")
	}
	name := oneOf(c, names...)
	if name == "HoldKey" {
		c.failed = l.got.ID
	}
	does := name
	if c.chance(5) {
		l.want.Priority = c.IntN(2)
		l.got.Priority = l.want.Priority
		does += fmt.Sprint(" with priority ", l.want.Priority)
	}
	c.both(fmt.Sprintf("%s (%v) of task %d", does, d, l.want.ID), nil, func(s *side) error {
		t := l.got
		if s == c.want {
			t = l.want
		}
		return ends(t, d)[name](c.ctx)
	})
	if c.ctx == ctx { // else it is known after the commit
		c.sameLease(l)
	}
}

// sameLease compares the fields of a lease.
func (c *comparison) sameLease(l *twins) {
	c.equal("state", l.got.Info().State, l.want.Info().State)
	c.equal("until", showTime(l.got.Info().Until), showTime(l.want.Info().Until))
}
