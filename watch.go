package fairq

import (
	"slices"

	"github.com/fairq/fairq/internal/share"
)

// Watch has a function called when a queue has so much to do, for those who run workers only while
// they are needed: nobody has to wait in PopWait. [FairQueue.Watch] makes one. All methods may be
// called at any time by any goroutine, also by the function.
type Watch[K comparable, V any] struct {
	queue *FairQueue[K, V]
	f     func()
	level int // 0 means that it is not armed; protected by queue.mu
}

// Watch returns a Watch that is not armed yet. Its function is called in the goroutine of the push
// that makes it due, after the lock is released. It delays that push, so it should be quick. If it
// panics, the push has been made nevertheless; but a PushWait that would have to wait gives up.
func (q *FairQueue[K, V]) Watch(f func()) *Watch[K, V] {
	return &Watch[K, V]{queue: q, f: f}
}

// Arm has the function called, once, as soon as n items, at least 1, are queued or wait in
// PushWait, or the queue is closed. If that is so already, it returns false instead, and the watch
// is not armed. Arming it again replaces n. Items that are handed to a waiting consumer are never
// queued.
func (w *Watch[K, V]) Arm(n int) (armed bool) {
	q := w.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	q.disarmLocked(w)
	if q.closed || q.demandLocked() >= n {
		return false
	}
	w.level = n
	q.watches = append(q.watches, w)
	q.setFastLimitLocked()
	return true
}

// Disarm takes back Arm. The function may be running, or about to be called, nevertheless.
func (w *Watch[K, V]) Disarm() {
	w.queue.mu.Lock()
	defer w.queue.mu.Unlock()
	w.queue.disarmLocked(w)
}

func (q *FairQueue[K, V]) disarmLocked(w *Watch[K, V]) {
	if w.level > 0 {
		w.level = 0
		q.watches = slices.DeleteFunc(q.watches, func(other *Watch[K, V]) bool { return other == w })
		q.setFastLimitLocked()
	}
}

// demandLocked returns how many items are queued, or waiting to be.
func (q *FairQueue[K, V]) demandLocked() int {
	return q.queue.Len() + q.producers.Len() + q.keyBlocked.Len()
}

// setFastLimitLocked computes fastLimit. It is called whenever what it depends on has changed. A
// queue that has fewer items has room for every key, and the push makes no watch due.
func (q *FairQueue[K, V]) setFastLimitLocked() {
	q.fastLimit = 0
	if q.options.KeyCapacity == q.options.Capacity && !q.options.TrackWait && !q.closed {
		q.fastLimit = q.options.Capacity
		if q.options.WhenFull == RejectOverShare {
			q.fastLimit = share.Matters(q.options.Capacity)
		}
	}
	for _, w := range q.watches {
		q.fastLimit = min(q.fastLimit, w.level-1)
	}
}

// disarmDueLocked disarms the watches that are due, and defers the calls of their functions. It is
// called after everything that can increase the demand.
func (q *FairQueue[K, V]) disarmDueLocked(d *deferred[K, V]) {
	for i := len(q.watches) - 1; i >= 0; i-- {
		w := q.watches[i]
		switch {
		case q.demandLocked() < w.level && !q.closed:
			continue
		case d.due == nil:
			d.due = w
		default:
			d.moreDue = append(d.moreDue, w)
		}
		q.disarmLocked(w)
	}
}
