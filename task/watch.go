package task

import (
	"context"
	"math"
	"slices"

	"github.com/fairq/fairq/task/driver"
)

// Watch takes tasks for those who run workers only while there is something to do: nobody has to
// wait in Take. If there is no task, it stands in line like one who does, and has a function called
// when it is worth to look again. Consumer.Watch makes one. All methods may be called at any time
// by any goroutine, also by the function.
type Watch[V any] struct {
	consumer *Consumer[V]
	taker    taker // in line, or woken, if armed is true
	armed    bool  // protected by notifier.mu, as are the others
	count    count
}

// count is the function of a Watch, to be called when some more tasks are ready or wait for room.
type count struct {
	notifier *notifier
	f        func()
	left     int // 0 means that it is not armed
}

// Watch returns a Watch that stands in no line yet. Its function is called in a goroutine of its
// own, or, in memory, by a Put before it returns; so it should be quick. If it panics, the panic is
// swallowed.
func (c *Consumer[V]) Watch(f func()) *Watch[V] {
	w := &Watch[V]{consumer: c, count: count{notifier: c.queue.notifier, f: f}}
	w.taker.consumer, w.taker.watch = &c.state, &w.count
	return w
}

// Take takes a task like Consumer.TryTake, but stands in line for it, behind those who wait. It
// writes it into a zero Task. If it is not its turn or there is none, found is false. If it returns
// that armed is true, which it does too with a task if it is sure that there is no other one, the
// function is called, once, when there may be a task: then Take must be called again, or Disarm,
// for until then others may have to wait. The function is also called when the consumer or the
// queue is closed.
func (w *Watch[V]) Take(ctx context.Context, into *Task[V]) (found, armed bool, err error) {
	armed, err = w.take(ctx, func(by *driver.Taker) (bool, error) {
		t, err := w.consumer.takeOne(ctx, by, into)
		found = t != nil
		return found, err
	})
	return found, armed, err
}

// TakeBatch is Take for up to n tasks, in order.
func (w *Watch[V]) TakeBatch(ctx context.Context, n int) (tasks []*Task[V], armed bool, err error) {
	if err := checkBatch(n); err != nil {
		return nil, false, err
	}
	records := make([]driver.Record, n)
	armed, err = w.take(ctx, func(by *driver.Taker) (bool, error) {
		var err error
		tasks, err = w.consumer.takeSome(ctx, by, records)
		return len(tasks) > 0, err
	})
	return tasks, armed, err
}

// take stands in line, and calls try when it is its turn.
func (w *Watch[V]) take(ctx context.Context, try func(*driver.Taker) (found bool, err error)) (armed bool, err error) {
	if err := w.consumer.check(ctx); err != nil {
		return false, err
	}
	c, n := w.consumer, w.consumer.queue.notifier
	n.mu.Lock()
	defer n.mu.Unlock()
	if w.taker.busy { // another call takes care
		return true, n.overFor(&c.state)
	}
	w.taker.busy, w.taker.notified = true, false
	defer func() { w.taker.busy = false }()
	if !w.armed {
		n.addWaiting(&n.takersWaiting, 1)
		w.armed = true
		n.takers.arrive(&w.taker)
		n.takers.wakeNext()
	}
	for {
		if err := n.overFor(&c.state); err != nil {
			w.disarmLocked(false)
			return false, err
		}
		if !w.taker.woken {
			return true, nil
		}
		w.taker.looked = c.state.filter.Load()
		var found bool
		n.unlocked(func() { found, err = try(&w.taker.looked.Taker) }, func() { w.disarmLocked(false) })
		switch {
		case found && n.takers.foundLast(&w.taker):
			return true, nil
		case found || err != nil:
			w.disarmLocked(found)
			return false, err
		}
		n.takers.foundNothing(&w.taker)
	}
}

// CountTo has the function called, once, when n more tasks, 1 at least, have become ready or wait
// for room, or when the queue refuses one because it is full: what fills it need not be ready. That
// is as far as the Store tells: it may be earlier, as when this Queue is paused or tasks were put a
// moment before, and tasks of keys that are busy or paused need not count. Calling it again replaces
// n.
func (w *Watch[V]) CountTo(n int) {
	notifier := w.consumer.queue.notifier
	notifier.mu.Lock()
	defer notifier.mu.Unlock()
	if w.count.left == 0 {
		notifier.counts = append(notifier.counts, &w.count)
		notifier.addWaiting(&notifier.counting, 1)
	}
	w.count.left = max(n, 1)
	if notifier.over() != nil {
		notifier.countLocked(w.count.left)
	}
}

// Disarm takes back Take and CountTo. The function may be running, or about to be called,
// nevertheless.
func (w *Watch[V]) Disarm() {
	n := w.consumer.queue.notifier
	n.mu.Lock()
	defer n.mu.Unlock()
	if w.armed && !w.taker.busy {
		w.disarmLocked(false)
	}
	if w.count.left > 0 {
		w.count.left = 0
		n.forgetCountLocked(&w.count)
	}
}

// disarmLocked leaves the line. found says whether it looked and found something.
func (w *Watch[V]) disarmLocked(found bool) {
	n := w.consumer.queue.notifier
	w.armed = false
	n.addWaiting(&n.takersWaiting, -1)
	n.takers.leave(&w.taker, found)
}

// countLocked says that some more tasks are ready or wait for room.
func (n *notifier) countLocked(more int) {
	for i := len(n.counts) - 1; i >= 0; i-- {
		c := n.counts[i]
		if c.left -= min(more, c.left); c.left == 0 {
			n.forgetCountLocked(c)
			c.callLocked()
		}
	}
}

// tellCounts calls the functions of all that count.
func (n *notifier) tellCounts() {
	if n.counting.Load() > 0 {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.countLocked(math.MaxInt)
	}
}

func (n *notifier) forgetCountLocked(c *count) {
	n.counts = slices.DeleteFunc(n.counts, func(other *count) bool { return other == c })
	n.addWaiting(&n.counting, -1)
}

// callLocked has the function called when no lock is held any more, for it is the user's: by a Put
// that is under way, or by a goroutine of its own.
func (c *count) callLocked() {
	n := c.notifier
	n.calls = append(n.calls, c.f)
	n.calling.Store(true)
	if n.putting.Load() == 0 {
		go n.call()
	}
}

// call calls the functions that are to be called. One that panics, or ends the goroutine, does not
// keep the others from being called; there is nobody who could be told, for who puts a task does not
// know those who watch.
func (n *notifier) call() {
	if !n.calling.Load() {
		return
	}
	n.mu.Lock()
	if len(n.calls) == 0 { // others were quicker
		n.mu.Unlock()
		return
	}
	f := n.calls[0]
	n.calls = slices.Delete(n.calls, 0, 1)
	n.calling.Store(len(n.calls) > 0)
	n.mu.Unlock()
	defer n.call()
	_ = guard("Watch", f)
}
