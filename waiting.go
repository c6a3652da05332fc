package fairq

import (
	"context"
	"hash/maphash"
	"time"
)

// aftermath is what a call has still to do when the lock is released.
type aftermath[K comparable, V any] struct {
	woken   *waiter[K, V] // waiters to be woken
	evicted bool
	victim  eviction[K, V]
}

type eviction[K comparable, V any] struct {
	key  K
	item V
}

// wake settles a waiter that has been taken out of its line.
func (a *aftermath[K, V]) wake(w *waiter[K, V], err error) {
	w.err, w.next, a.woken = err, a.woken, w
}

// finish does what is left to do. The lock is not held.
func (q *FairQueue[K, V]) finish(a *aftermath[K, V]) {
	for w := a.woken; w != nil; {
		next := w.next // from the send on w is its goroutine's
		w.ready <- struct{}{}
		w = next
	}
	if a.evicted {
		q.options.OnEvict(a.victim.key, a.victim.item)
	}
}

// handOut gives all victims to OnEvict, the rest too if it panics at one.
func (q *FairQueue[K, V]) handOut(victims []eviction[K, V]) {
	done := 0
	defer func() {
		if done < len(victims) {
			q.handOut(victims[done:])
		}
	}()
	for _, v := range victims {
		done++
		q.options.OnEvict(v.key, v.item)
	}
}

func (q *FairQueue[K, V]) hash(key K) uint32 { return uint32(maphash.Comparable(q.seed, key)) }

// label finds out what the queue must know of an item. It runs the functions of the user.
func (q *FairQueue[K, V]) label(item V) (l label[K], err error) {
	l.key = q.key(item)
	l.hash = q.hash(l.key)
	l.weight = 1
	if q.options.Weight != nil {
		l.weight, err = weigh(q.options.Weight, l.key)
	}
	return l, err
}

// lock takes the lock, and tells the time to what measures it.
func (q *FairQueue[K, V]) lock() {
	if q.options.TrackWait {
		q.lockTimed()
	} else {
		q.mu.Lock()
	}
}

func (q *FairQueue[K, V]) lockTimed() {
	now := time.Since(q.epoch)
	q.mu.Lock()
	q.queue.waits.now = max(now, q.queue.waits.now) // somebody may have read the clock earlier and come here later
}

// roomyLocked tells whether an item of any key can be queued, and nothing else is to be done.
func (q *FairQueue[K, V]) roomyLocked() bool {
	return !q.closed && q.consumers.len == 0 && q.queue.len < q.options.Capacity && q.options.KeyCapacity == q.options.Capacity
}

// pushLocked queues an item if there is room for it, or can be made.
func (q *FairQueue[K, V]) pushLocked(l *label[K], item V, ticket *Ticket, after *aftermath[K, V]) error {
	if err := q.makeRoomLocked(l, after); err != nil {
		q.counts.Refused++
		return err
	}
	q.enterLocked(l, item, ticket, after)
	return nil
}

// makeRoomLocked returns nil if an item can be queued, after evicting another one if need be.
func (q *FairQueue[K, V]) makeRoomLocked(l *label[K], after *aftermath[K, V]) error {
	switch {
	case q.closed:
		return ErrClosed
	case q.options.KeyCapacity < q.options.Capacity && q.queue.keyLen(l.key, l.hash) >= q.options.KeyCapacity:
		return q.keyFull
	case q.queue.len < q.options.Capacity:
		return nil
	case q.options.WhenFull != EvictHeaviest || q.queue.isHeaviest(l.key, l.hash):
		return q.full
	}
	s := q.queue.heaviest()
	victim := label[K]{key: s.key, hash: s.hash}
	after.evicted, after.victim = true, eviction[K, V]{s.key, q.queue.remove(s.newest)}
	q.counts.Evicted++
	q.unbarLocked(&victim)
	return nil
}

// enterLocked queues an item for which there is room. If a consumer waits for it, it leaves again at once.
func (q *FairQueue[K, V]) enterLocked(l *label[K], item V, ticket *Ticket, after *aftermath[K, V]) {
	node := q.queue.push(l.key, l.hash, l.weight, item)
	q.counts.Pushed++
	if ticket != nil {
		*ticket = q.queue.issue(node)
	}
	if q.consumers.len > 0 {
		w := q.consumers.pop()
		w.item = q.queue.pop()
		q.counts.Popped++
		after.wake(w, nil)
	}
}

func (q *FairQueue[K, V]) popLocked(after *aftermath[K, V]) V {
	q.counts.Popped++
	if q.producers.len+q.barred.len == 0 {
		return q.queue.pop()
	}
	l := q.labelLocked(q.queue.links.at(q.queue.next()).key & keyMask)
	item := q.queue.pop()
	q.leftLocked(&l, after)
	return item
}

// labelLocked returns the label of the key in a row.
func (q *FairQueue[K, V]) labelLocked(row uint32) label[K] {
	s := q.queue.keys.at(row)
	return label[K]{key: s.key, hash: s.hash}
}

// leftLocked lets producers use the room that an item of a key has left.
func (q *FairQueue[K, V]) leftLocked(l *label[K], after *aftermath[K, V]) {
	q.unbarLocked(l)
	q.admitLocked(after)
}

// unbarLocked lets the first of a key's barred producers take a turn.
//
// It is called whenever an item of the key leaves the queue, and whenever a producer of the key leaves the line, so if
// there are barred producers, the key's items and its producers in the line are together as many as its capacity.
func (q *FairQueue[K, V]) unbarLocked(l *label[K]) {
	if _, s := q.barred.keys.find(l.key, l.hash); s != nil {
		q.lineUpLocked(&q.producers, q.barred.remove(s.first))
	}
}

// admitLocked queues what waiting producers have brought, as far as there is room. So as long as there is room, none is in
// the line.
func (q *FairQueue[K, V]) admitLocked(after *aftermath[K, V]) {
	for q.producers.len > 0 && q.queue.len < q.options.Capacity {
		w := q.producers.pop()
		if q.queue.keyLen(w.key, w.hash) >= q.options.KeyCapacity {
			q.lineUpLocked(&q.barred, w)
			continue
		}
		q.enterLocked(&w.label, w.item, nil, after)
		after.wake(w, nil)
	}
}

// lineUpLocked puts a producer at the end of a line.
func (q *FairQueue[K, V]) lineUpLocked(line *Queue[K, *waiter[K, V]], w *waiter[K, V]) {
	w.line = line
	w.ticket = line.issue(line.push(w.key, w.hash, w.weight, w))
}

// await waits until w has been served, or ctx is done and it has not.
func (q *FairQueue[K, V]) await(ctx context.Context, w *waiter[K, V]) (item V, err error) {
	select {
	case <-w.ready:
	case <-ctx.Done():
		if q.withdraw(w) {
			w.err = ctx.Err()
		} else {
			<-w.ready // it was served at the same moment, and what was handed over is not taken back
		}
	}
	item, err = w.item, w.err
	*w = waiter[K, V]{ready: w.ready}
	q.waiters.Put(w)
	return item, err
}

// withdraw takes a waiter out of its line, and returns false if it is in none any more.
func (q *FairQueue[K, V]) withdraw(w *waiter[K, V]) (ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.line == nil {
		_, ok = q.consumers.Remove(w.ticket)
		return ok
	}
	if _, ok = w.line.Remove(w.ticket); ok && w.line == &q.producers {
		q.unbarLocked(&w.label)
	}
	return ok
}
