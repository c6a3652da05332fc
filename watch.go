package fairq

import (
	"slices"

	"github.com/fairq/fairq/internal/share"
)

// Watch calls a function when a queue has a number of items, so that a program can start workers
// when they are needed and none has to wait in PopWait. [FairQueue.Watch] makes one. All methods
// are safe for concurrent use, and the function may call them.
type Watch[K comparable, V any] struct {
	queue *FairQueue[K, V]
	f     func()
	level int // 0 if it is not armed; protected by queue.mu
}

// Watch returns a Watch that is not armed yet. The push that makes it due calls its function,
// after it has released the lock. The function delays that push, so it should be quick. If the
// function panics, the pushed item is queued all the same. Only a PushWait that would have to wait
// does not queue its item then.
func (q *FairQueue[K, V]) Watch(f func()) *Watch[K, V] {
	return &Watch[K, V]{queue: q, f: f}
}

// Arm makes the watch call its function, once, as soon as there are n items to take, at least 1,
// or the queue is closed. If that is so already, Arm returns false, and the watch is not armed.
// Arming it again replaces n.
//
// Items that wait in PushWait count, if an item may be taken before them. Items that are handed to
// a waiting consumer do not count, nor do items that [Options].MaxInFlightPerKey keeps back. If a
// closed queue has only items of the latter sort, the watch waits until one may be taken, or none
// is left.
func (w *Watch[K, V]) Arm(n int) (armed bool) {
	q := w.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	q.disarmLocked(w)
	if q.isDueLocked(n) {
		return false
	}
	w.level = n
	q.watches = append(q.watches, w)
	q.setFastLimitLocked()
	return true
}

// Disarm undoes Arm. The function may still be running, or about to be called.
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

// isDueLocked reports whether a watch of a level is due.
func (q *FairQueue[K, V]) isDueLocked(level int) bool {
	demand := q.queue.ready()
	if q.closed && (demand > 0 || q.queue.Len() == 0) {
		return true
	}
	if demand > 0 {
		demand += q.producers.Len() + q.keyBlocked.Len()
	}
	return demand >= level
}

// setFastLimitLocked computes fastLimit. It is called whenever closed or the watches have changed.
// A queue with fewer items has room for every key, and the push makes no watch due.
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
// called after every change that can make one due.
func (q *FairQueue[K, V]) disarmDueLocked(d *deferred[K, V]) {
	for i := len(q.watches) - 1; i >= 0; i-- {
		w := q.watches[i]
		switch {
		case !q.isDueLocked(w.level):
			continue
		case d.due == nil:
			d.due = w
		default:
			d.moreDue = append(d.moreDue, w)
		}
		q.disarmLocked(w)
	}
}
