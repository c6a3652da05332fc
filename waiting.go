package fairq

import (
	"context"
	"errors"
	"time"

	"github.com/fairq/fairq/internal/keycount"
	"github.com/fairq/fairq/internal/share"
	"github.com/fairq/fairq/internal/waitlist"
)

// deferred is what a call does after it has released the lock: it calls the user's functions,
// which may be slow and may call the queue, and wakes other goroutines. Most calls defer nothing,
// or one thing, so the first victim and the first watch are not in a slice.
type deferred[K comparable, V any] struct {
	woken       waitlist.Woken[waiting[K, V]]
	hasVictim   bool // victim was evicted, and OnEvict has not had it
	victim      entry[K, V]
	moreVictims []entry[K, V]  // further victims
	due         *Watch[K, V]   // a watch whose function must be called
	moreDue     []*Watch[K, V] // further ones
}

// entry is an item with its key.
type entry[K comparable, V any] struct {
	key  K
	item V
}

// wake defers waking a waiter that was taken out of its wait queue. Its call returns err.
func (d *deferred[K, V]) wake(w *waiter[K, V], err error) {
	w.Data.err = err
	d.woken.Add(w)
}

// evict defers the call of OnEvict.
func (d *deferred[K, V]) evict(key K, item V) {
	if d.hasVictim {
		d.moreVictims = append(d.moreVictims, entry[K, V]{key, item})
	} else {
		d.hasVictim, d.victim = true, entry[K, V]{key, item}
	}
}

// unlock gives waiting consumers and watches what the call has made due, releases the lock, and
// then does the deferred work.
func (q *FairQueue[K, V]) unlock(d *deferred[K, V]) {
	if q.consumers.Len() > 0 {
		q.handOverLocked(d)
	}
	if len(q.watches) > 0 {
		q.disarmDueLocked(d)
	}
	q.mu.Unlock()
	d.woken.Wake()
	switch {
	case d.hasVictim && len(d.moreVictims) == 0 && d.due == nil:
		// the usual case: callUser would make it 5 % slower
		q.options.OnEvict(d.victim.key, d.victim.item)
	case d.hasVictim || d.due != nil:
		q.callUser(d)
	}
}

// callUser calls the user's functions. If one of them panics, or ends the goroutine, callUser
// still calls the others. Nobody else would do so: no other call has these victims, and the
// watches that are due are disarmed already.
func (q *FairQueue[K, V]) callUser(d *deferred[K, V]) {
	defer func() {
		if d.hasVictim || d.due != nil {
			q.callUser(d)
		}
	}()
	for d.hasVictim {
		v := d.victim
		if d.hasVictim = len(d.moreVictims) > 0; d.hasVictim {
			d.victim, d.moreVictims = d.moreVictims[0], d.moreVictims[1:]
		}
		q.options.OnEvict(v.key, v.item)
	}
	for d.due != nil {
		f := d.due.f
		if d.due = nil; len(d.moreDue) > 0 {
			d.due, d.moreDue = d.moreDue[0], d.moreDue[1:]
		}
		f()
	}
}

// unlockWaiting is unlock for a call that has put w into a wait queue, and is about to wait. If a
// function of the user's panics, the call ends here and does not wait, so w leaves its queue.
func (q *FairQueue[K, V]) unlockWaiting(d *deferred[K, V], w *waiter[K, V]) {
	returned := false
	defer func() {
		if !returned {
			q.withdraw(w)
		}
	}()
	q.unlock(d)
	returned = true
}

// itemKey computes and hashes the key of an item, and asks for its weight and its cost.
func (q *FairQueue[K, V]) itemKey(item V) (k itemKey[K], err error) {
	k = itemKey[K]{key: q.key(item), weight: 1, cost: 1}
	k.hash = hashOf(k.key)
	return k, rate(&k, item, q.options.Weight, q.options.Cost, q.options.Quantum)
}

// itemKeys is itemKey for several items. It returns the number of items before the first item with
// an invalid weight or cost. If successive items have the same key, it hashes that and asks for
// the weight once.
func (q *FairQueue[K, V]) itemKeys(keys []itemKey[K], items []V) (n int, err error) {
	for i, item := range items {
		k, weight := &keys[i], q.options.Weight
		k.key, k.weight, k.cost = q.key(item), 1, 1
		if i > 0 && k.key == keys[i-1].key {
			k.hash, k.weight, weight = keys[i-1].hash, keys[i-1].weight, nil
		} else {
			k.hash = hashOf(k.key)
		}
		if err := rate(k, item, weight, q.options.Cost, q.options.Quantum); err != nil {
			return i, err
		}
	}
	return len(items), nil
}

// lock takes the lock, and reads the clock if the queue needs it.
func (q *FairQueue[K, V]) lock() {
	q.mu.Lock()
	q.readClockLocked()
}

func (q *FairQueue[K, V]) readClockLocked() {
	if q.needsClock {
		q.now = time.Now()
		q.queue.setTime(q.now.Sub(q.epoch))
	}
}

// canPushFastLocked reports whether pushing an item changes only the queue: it has room for any
// key, no consumer waits for the item, no producer waits for its key, no watch becomes due, and
// the clock is not needed.
func (q *FairQueue[K, V]) canPushFastLocked() bool {
	return q.queue.Len() < q.fastLimit && q.consumers.Len()+q.keyBlocked.Len() == 0
}

// canPopFastLocked reports whether popping an item changes only the queue: it has an item, no
// producer waits, and the clock is not needed.
func (q *FairQueue[K, V]) canPopFastLocked() bool {
	return q.queue.ready() > 0 && q.producers.Len()+q.keyBlocked.Len() == 0 && !q.needsClock
}

// popAndUnlock takes out the next item, if there is one, and releases the lock.
func (q *FairQueue[K, V]) popAndUnlock() (item V, ok bool) {
	q.readClockLocked()
	var d deferred[K, V]
	if ok = q.queue.ready() > 0; ok {
		item = q.popLocked(&d)
	}
	q.unlock(&d)
	return item, ok
}

// pushLocked queues an item if there is room for it, or an eviction makes some.
func (q *FairQueue[K, V]) pushLocked(
	k *itemKey[K], item V, ticket *Ticket, d *deferred[K, V],
) error {
	at, err := q.makeRoomLocked(k, d)
	if err != nil {
		return q.refuseLocked(k, err)
	}
	node := q.insertLocked(at, k, item)
	if ticket != nil {
		*ticket = q.queue.issue(node)
	}
	q.pushedLocked(d)
	return nil
}

// pushedLocked is called after an item was queued. If another item was evicted for it, a producer
// of that item's key may no longer have to wait for its key. With EvictOldest it need not wait for
// room either, but waiting consumers come first.
func (q *FairQueue[K, V]) pushedLocked(d *deferred[K, V]) {
	if q.handOverLocked(d); q.options.WhenFull == EvictOldest {
		q.admitLocked(d)
	}
}

// pushRunLocked queues items while canPushFastLocked is true, and returns their number.
func (q *FairQueue[K, V]) pushRunLocked(keys []itemKey[K], items []V) (n int) {
	var at keyRef[K]
	for n < len(keys) && q.canPushFastLocked() {
		k := &keys[n]
		if !at.is(k) {
			at = q.queue.find(k)
		}
		q.queue.pushTo(at, k, items[n])
		n++
	}
	q.counts.Pushed += uint64(n)
	return n
}

// refuseLocked counts a push that makeRoomLocked has refused with err, and returns its error.
func (q *FairQueue[K, V]) refuseLocked(k *itemKey[K], err error) error {
	if q.closed {
		return err
	}
	q.counts.Refused++
	q.countLocked(k.key, keycount.Counts{Refused: 1})
	if errors.Is(err, ErrKeyFull) {
		return &FullError{Len: q.queue.find(k).len(), Limit: q.keyLimitLocked(k), PerKey: true}
	}
	return &FullError{Len: q.queue.Len(), Limit: q.options.Capacity}
}

// makeRoomLocked makes sure that an item can be queued, and evicts another one if it must. It
// returns the place of the key, to save another look-up. The error is ErrClosed, ErrFull or
// ErrKeyFull.
func (q *FairQueue[K, V]) makeRoomLocked(
	k *itemKey[K], d *deferred[K, V],
) (at keyRef[K], err error) {
	if q.closed {
		return at, ErrClosed
	}
	if q.keyBlocked.Len() > 0 {
		// The key's share may have grown since its last item left. Waiting producers come first.
		q.itemLeftLocked(k, d)
	}
	at = q.queue.find(k)
	switch limit := q.keyLimitLocked(k); {
	case at.len() >= limit && limit < q.options.Capacity:
		return at, ErrKeyFull
	case q.queue.Len() < q.options.Capacity:
		return at, nil
	case q.options.WhenFull < EvictHeaviest,
		q.options.WhenFull == EvictHeaviest && at.len() > 0 && q.queue.isHeaviest(at):
		return at, ErrFull
	}
	if q.evictLocked(at, d); at.len() == 0 {
		at = q.queue.find(k) // evicting its only item, or being idle, may have removed the key
	}
	return at, nil
}

// evictLocked evicts an item to make room for one of the given key, which matters to EvictOldest.
func (q *FairQueue[K, V]) evictLocked(at keyRef[K], d *deferred[K, V]) {
	victim, item := q.queue.evict(at, q.options.WhenFull == EvictOldest)
	d.evict(victim.key, item)
	q.counts.Evicted++
	q.countLocked(victim.key, keycount.Counts{Evicted: 1})
	if q.keyBlocked.Len() > 0 {
		q.unblockLocked(&victim)
	}
}

// insertLocked queues an item, for which there must be room.
func (q *FairQueue[K, V]) insertLocked(at keyRef[K], k *itemKey[K], item V) (node uint32) {
	q.counts.Pushed++
	return q.queue.pushTo(at, k, item)
}

// handOverLocked hands items to the waiting consumers as long as some may be taken. When the queue
// is closed and empty the consumers get ErrClosed.
func (q *FairQueue[K, V]) handOverLocked(d *deferred[K, V]) {
	for q.consumers.Len() > 0 {
		switch {
		case q.queue.ready() > 0:
			w := q.consumers.Pop()
			w.Data.item = q.popLocked(d)
			d.wake(w, nil)
		case q.closed && q.queue.Len() == 0:
			d.wake(q.consumers.Pop(), ErrClosed)
		default:
			return
		}
	}
}

// passOnAndUnlock gives an item to the first waiting consumer without queueing it, and releases
// the lock. Queueing it would have the same result: the queue is empty, so it has room for any
// key, no producer waits, and the item would be the next one. That is false if an item leaves a
// trace: a cost, a time, a count by key. Then passesOn is false.
func (q *FairQueue[K, V]) passOnAndUnlock(item V) {
	q.counts.Pushed++
	q.counts.Popped++
	w := q.consumers.Pop()
	q.mu.Unlock()
	w.Data.item = item
	w.Wake()
}

// popLocked takes out the next item. The queue must be ready.
func (q *FairQueue[K, V]) popLocked(d *deferred[K, V]) V {
	q.counts.Popped++
	if q.producers.Len()+q.keyBlocked.Len() == 0 && q.counter == nil {
		return q.queue.pop()
	}
	k, item, cost := q.queue.popWithKey()
	q.countLocked(k.key, keycount.Counts{Served: 1, Cost: cost})
	q.itemLeftLocked(&k, d)
	return item
}

// countLocked counts an event of a key, if the queue counts by key.
func (q *FairQueue[K, V]) countLocked(key K, c keycount.Counts) {
	if q.counter != nil {
		q.counter.Add(key, c, q.now)
	}
}

// itemLeftLocked is called after an item of a key has left. It lets producers use the room. Each
// item that they queue makes the key's share smaller, so each iteration computes the share again.
func (q *FairQueue[K, V]) itemLeftLocked(k *itemKey[K], d *deferred[K, V]) {
	for q.unblockLocked(k) {
		q.admitLocked(d)
	}
	q.admitLocked(d)
}

// unblockLocked moves the first producer that waits for a key to the producers that wait for room,
// if the key has room for one more. It is called whenever an item or a producer of the key leaves.
// By invariant 3 of FairQueue there is such an item or producer while a producer waits for the
// key, so no producer waits forever.
func (q *FairQueue[K, V]) unblockLocked(k *itemKey[K]) bool {
	at := q.keyBlocked.find(k)
	if at.len() == 0 {
		return false
	}
	w := q.keyBlocked.oldest(at).(*waiter[K, V])
	if !q.keyHasRoomLocked(&w.Data.itemKey) {
		return false
	}
	q.keyBlocked.Remove(w.Data.ticket)
	q.enqueueLocked(&q.producers, w)
	return true
}

// keyLimitLocked returns how many items of a key the queue may hold now, at least 1. With
// RejectOverShare that depends on the number of free places: see docs/design.md, "Fair when full".
func (q *FairQueue[K, V]) keyLimitLocked(k *itemKey[K]) int {
	limit := q.options.KeyCapacity
	if q.options.WhenFull == RejectOverShare {
		limit = int(min(int64(limit), share.Limit(int(k.weight), q.options.Capacity-q.queue.Len())))
	}
	return limit
}

// keyHasRoomLocked reports whether a key has room for one more item, beside its queued items and
// those of its producers that wait for room.
func (q *FairQueue[K, V]) keyHasRoomLocked(k *itemKey[K]) bool {
	limit := q.keyLimitLocked(k)
	return limit == q.options.Capacity || limit > q.queue.find(k).len()+q.producers.find(k).len()
}

// admitLocked queues the items of producers that wait for room, in fair order, while there is room
// or EvictOldest makes some. A producer whose key has become full waits for its key instead, and
// does not hold up the others.
func (q *FairQueue[K, V]) admitLocked(d *deferred[K, V]) {
	for q.producers.Len() > 0 &&
		(q.queue.Len() < q.options.Capacity || q.options.WhenFull == EvictOldest) {
		w := q.producers.pop().(*waiter[K, V])
		k := &w.Data.itemKey
		at := q.queue.find(k)
		if at.len() >= q.keyLimitLocked(k) {
			q.enqueueLocked(&q.keyBlocked, w)
			continue
		}
		if q.queue.Len() >= q.options.Capacity {
			q.evictLocked(at, d)
			at = q.queue.find(k)
		}
		q.insertLocked(at, k, w.Data.item)
		d.wake(w, nil)
	}
}

// enqueueLocked makes a producer wait: in q.producers for room, or in q.keyBlocked for its key.
func (q *FairQueue[K, V]) enqueueLocked(waitQueue *Queue[K, any], w *waiter[K, V]) {
	w.Data.waitsIn = waitQueue
	w.Data.ticket = waitQueue.issue(waitQueue.push(&w.Data.itemKey, w))
}

// await waits until w is woken, or ctx is done first. An item that was handed over stays handed
// over.
func (q *FairQueue[K, V]) await(
	ctx context.Context, done <-chan struct{}, w *waiter[K, V],
) (item V, err error) {
	if w.Wait(done, q.withdraw) {
		item, err = w.Data.item, w.Data.err
	} else {
		err = ctx.Err()
	}
	w.Data = waiting[K, V]{}
	q.waiterPool.Put(w)
	return item, err
}

// withdraw takes a waiter out of its wait queue. It returns false if another goroutine has done
// so.
func (q *FairQueue[K, V]) withdraw(w *waiter[K, V]) (ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	from := w.Data.waitsIn
	if from == nil { // a consumer
		return q.consumers.Remove(w)
	}
	if _, ok = from.Remove(w.Data.ticket); ok && from == &q.producers {
		q.unblockLocked(&w.Data.itemKey)
	}
	return ok
}
