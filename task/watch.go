package task

import (
	"context"
	"slices"

	"github.com/fairq/fairq/internal/driver"
)

// Watch takes tasks for programs that run workers only while there are tasks, so that no worker
// has to wait in Take. If there is no task, the Watch stands in line like a waiting Take, and
// calls a function when there may be a task. Consumer.Watch makes one. All methods are safe for
// concurrent use, and the function may call them.
type Watch[V any] struct {
	consumer *Consumer[V]
	taker    taker // in line, or woken, if armed is true
	armed    bool  // protected by notifier.mu, as are the others
	call     call
}

// call is the function of a Watch.
type call struct {
	notifier *notifier
	f        func()
}

// Watch returns a Watch that is not in line yet. It calls f in a goroutine of its own. With a
// store in memory it may also call f within a Put, before the Put returns. So f should be quick.
// A panic of f is swallowed.
func (c *Consumer[V]) Watch(f func()) *Watch[V] {
	w := &Watch[V]{consumer: c, call: call{c.queue.notifier, f}}
	w.taker.consumer, w.taker.watch = &c.state, &w.call
	return w
}

// Take takes a task like Consumer.TryTake, but stands in line for it, behind waiting calls. It
// writes the task into a zero Task. If there is no task, or other calls are first, found is false.
//
// If armed is true, the Watch will call its function, once, when there may be a task. Then the
// program must call Take again, or Disarm, because until then other calls may have to wait. armed
// may be true with a task too, if there is no other one. The Watch also calls the function when
// the consumer or the queue is closed.
func (w *Watch[V]) Take(ctx context.Context, into *Task[V]) (found, armed bool, err error) {
	armed, err = w.take(ctx, func(by *driver.Taker) (bool, error) {
		t, err := w.consumer.takeOne(ctx, by, into)
		found = t != nil
		return found, err
	})
	return found, armed, err
}

// TakeBatch is Take for up to n tasks, in order.
func (w *Watch[V]) TakeBatch(
	ctx context.Context, n int,
) (tasks []*Task[V], armed bool, err error) {
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
func (w *Watch[V]) take(
	ctx context.Context, try func(*driver.Taker) (found bool, err error),
) (armed bool, err error) {
	if err := w.consumer.check(ctx); err != nil {
		return false, err
	}
	c, n := w.consumer, w.consumer.queue.notifier
	n.mu.Lock()
	defer n.mu.Unlock()
	if w.taker.busy { // another call will look
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
		n.unlocked(func() { found, err = try(&w.taker.looked.Taker) },
			func() { w.disarmLocked(false) })
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

// Disarm undoes Take. The function may still be running, or about to be called.
func (w *Watch[V]) Disarm() {
	n := w.consumer.queue.notifier
	n.mu.Lock()
	defer n.mu.Unlock()
	if w.armed && !w.taker.busy {
		w.disarmLocked(false)
	}
}

// disarmLocked leaves the line. found reports whether the Watch found a task.
func (w *Watch[V]) disarmLocked(found bool) {
	n := w.consumer.queue.notifier
	w.armed = false
	n.addWaiting(&n.takersWaiting, -1)
	n.takers.leave(&w.taker, found)
}

// callLocked makes a running Put, or a goroutine of its own, call the function without a lock,
// because the function is the user's.
func (c *call) callLocked() {
	n := c.notifier
	n.calls = append(n.calls, c.f)
	n.calling.Store(true)
	if n.putting.Load() == 0 {
		go n.call()
	}
}

// call calls the functions in calls. If one panics, or ends the goroutine, call still calls the
// others. It drops the panic, because the caller of Put has nothing to do with a Watch.
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
