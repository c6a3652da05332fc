package fairq

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/fairq/fairq/internal/account"
	"github.com/fairq/fairq/internal/keycount"
	"github.com/fairq/fairq/internal/waitlist"
)

// FairQueue is a [Queue] for many goroutines. It has a capacity, its callers can wait for room and
// for items, and it can be closed. [New] makes one; the zero value is not usable. All methods are
// safe for concurrent use. Keys that are not equal to themselves are all one key, as in a Queue.
type FairQueue[K comparable, V any] struct {
	key     func(V) K
	options Options[K, V]
	epoch   time.Time // waiting times are counted from here

	// mu protects all fields that follow. No code of the user's runs under it: a call computes and
	// hashes keys and asks for weights before it locks, and runs deferred work after it unlocks.
	//
	// Three invariants hold whenever mu is free. So no wake-up is lost:
	//
	//  1. If consumers wait, no item may be taken: the queue is empty, or the keys of all items
	//     are at their MaxInFlightPerKey. If it is empty it is not closed.
	//  2. If producers wait for room, the queue is full.
	//  3. If producers wait for their key, its items and its producers that wait for room
	//     are together at least its capacity, or with RejectOverShare at least one.
	mu sync.Mutex

	queue      Queue[K, V]
	closed     bool
	passesOn   bool  // see passOnAndUnlock; it never changes, nor does the next one
	needsClock bool  // each call needs the time, to measure waits or to count by key
	fastLimit  int   // with fewer items only waiters make a push slow; see setFastLimitLocked
	counts     Stats // only its counters are used

	// Consumers wait only while no item may be taken. They are served first come, first served.
	consumers waitlist.List[waiting[K, V]]

	// Producers wait here, each a *waiter[K, V]. The type is any, so that the compiler does not make
	// the code of these queues again for each type of items.
	//
	// Producers wait for room in the first queue, and are admitted in rounds by key. So that a full
	// key does not hold up the others, its producers wait in keyBlocked. When an item of the key
	// leaves, one of them takes a new turn in the first queue.
	producers  Queue[K, any]
	keyBlocked Queue[K, any]

	watches []*Watch[K, V] // that are armed

	now     time.Time            // of the call that holds mu, if the clock is needed
	counter *keycount.Counter[K] // nil if nothing is counted by key

	waiterPool sync.Pool // of *waiter[K, V]
}

// waiter is a goroutine that waits. The goroutine that takes it out of its wait queue, under the
// lock, writes item or err, and wakes it after it has released the lock.
type waiter[K comparable, V any] = waitlist.Waiter[waiting[K, V]]

type waiting[K comparable, V any] struct {
	itemKey[K]
	item    V              // that a producer pushes, or a consumer gets
	err     error          // nil if the item was handed over
	waitsIn *Queue[K, any] // producers or keyBlocked; nil for a consumer
	ticket  Ticket         // the place in that
}

// New returns an empty queue. The function key returns the key of an item. The queue calls it once
// for each push, without the lock held, so calls may overlap. nil options mean the defaults. New
// panics if key is nil or [Options.Validate] returns an error.
func New[K comparable, V any](key func(V) K, options *Options[K, V]) *FairQueue[K, V] {
	if key == nil {
		panic("fairq: New: the key function is nil")
	}
	var o Options[K, V]
	if options != nil {
		o = *options
	}
	if err := o.complete(); err != nil {
		panic(err)
	}
	q := &FairQueue[K, V]{key: key, options: o, epoch: time.Now()}
	q.counter = keycount.New[K](o.CountKeys)
	q.waiterPool.New = func() any {
		w := new(waiter[K, V])
		w.Arm()
		return w
	}
	q.needsClock = o.TrackWait || o.CountKeys > 0
	q.passesOn = o.Quantum == 0 && !q.needsClock && !o.ShareTime
	q.setFastLimitLocked()
	q.queue.configure(&o, q.epoch)
	return q
}

// Push queues an item, and does not wait. It returns a [*FullError] if there is no room,
// [ErrClosed], [ErrWeight] or [ErrCost].
func (q *FairQueue[K, V]) Push(item V) error {
	// This is q.itemKey and itemKey.price written out. Calling them, or a function for the part under
	// the lock, makes a push and a pop 10 % slower.
	k := itemKey[K]{key: q.key(item), weight: 1, cost: 1}
	k.hash = hashOf(k.key)
	if q.options.Weight != nil {
		if err := k.weigh(q.options.Weight); err != nil {
			return err
		}
	}
	if q.options.Cost != nil {
		cost := q.options.Cost(item)
		if k.cost = uint32(cost); !account.IsCost(cost, q.options.Quantum) {
			return k.price(cost, q.options.Quantum)
		}
	}
	q.mu.Lock()
	if q.canPushFastLocked() {
		q.queue.pushTo(q.queue.find(&k), &k, item)
		q.counts.Pushed++
		q.mu.Unlock()
		return nil
	}
	if q.consumers.Len() > 0 && q.passesOn {
		q.passOnAndUnlock(item)
		return nil
	}
	q.readClockLocked()
	var d deferred[K, V]
	err := q.pushLocked(&k, item, nil, &d)
	q.unlock(&d)
	return err
}

// Add is Push, and returns a ticket for [FairQueue.Remove] and [FairQueue.Position]. There is no
// Add that waits: items of PushWait can only be removed by [FairQueue.RemoveKey].
func (q *FairQueue[K, V]) Add(item V) (ticket Ticket, err error) {
	k, err := q.itemKey(item)
	if err != nil {
		return Ticket{}, err
	}
	var d deferred[K, V]
	q.lock()
	err = q.pushLocked(&k, item, &ticket, &d)
	q.unlock(&d)
	return ticket, err
}

// PushBatch pushes items one after the other under one lock, until one is refused. It returns the
// number of queued items, and the error of Push for the first refused one. Later items may evict
// earlier ones of the same batch. PushBatch allocates if there are more than 64 items.
func (q *FairQueue[K, V]) PushBatch(items []V) (n int, err error) {
	var space [64]itemKey[K]
	keys := space[:]
	if len(items) > len(keys) {
		keys = make([]itemKey[K], len(items))
	}
	valid, invalid := q.itemKeys(keys, items)
	var d deferred[K, V]
	q.lock()
	for n < valid {
		n += q.pushRunLocked(keys[n:valid], items[n:valid])
		if n == valid {
			break
		}
		if err = q.pushLocked(&keys[n], items[n], nil, &d); err != nil {
			break
		}
		n++
	}
	q.unlock(&d)
	if err == nil {
		err = invalid
	}
	return n, err
}

// PushWait is Push that waits for room. Waiting producers are admitted in rounds by key. With
// EvictHeaviest a push waits only if its key is among the heaviest, or at its KeyCapacity. With
// EvictOldest it waits only if its key is at its KeyCapacity. If ctx is done before the item is
// queued, PushWait returns the error of ctx, and the item is not queued.
func (q *FairQueue[K, V]) PushWait(ctx context.Context, item V) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	done := ctx.Done() // now, because nothing is lost yet if the caller's context panics
	k, err := q.itemKey(item)
	if err != nil {
		return err
	}
	q.mu.Lock()
	if q.canPushFastLocked() {
		q.queue.push(&k, item)
		q.counts.Pushed++
		q.mu.Unlock()
		return nil
	}
	if q.consumers.Len() > 0 && q.passesOn {
		q.passOnAndUnlock(item)
		return nil
	}
	q.readClockLocked()
	var d deferred[K, V]
	at, err := q.makeRoomLocked(&k, &d)
	if err == nil {
		q.insertLocked(at, &k, item)
		q.pushedLocked(&d)
	}
	if !errors.Is(err, ErrFull) {
		q.unlock(&d)
		return err
	}
	w := q.waiterPool.Get().(*waiter[K, V])
	w.Data.itemKey, w.Data.item = k, item
	if q.keyHasRoomLocked(&k) {
		q.enqueueLocked(&q.producers, w)
	} else {
		q.enqueueLocked(&q.keyBlocked, w)
	}
	q.unlockWaiting(&d, w)
	_, err = q.await(ctx, done, w)
	return err
}

// Pop takes out the next item in fair order, and does not wait. If there is none, ok is false.
func (q *FairQueue[K, V]) Pop() (item V, ok bool) {
	q.mu.Lock()
	if q.canPopFastLocked() {
		item = q.queue.pop()
		q.counts.Popped++
		q.mu.Unlock()
		return item, true
	}
	return q.popAndUnlock()
}

// PopBatch fills items with the next ones in fair order, under one lock, and returns their number.
func (q *FairQueue[K, V]) PopBatch(items []V) (n int) {
	var d deferred[K, V]
	q.lock()
	for ; n < len(items) && q.canPopFastLocked(); n++ {
		items[n] = q.queue.pop()
	}
	q.counts.Popped += uint64(n)
	for ; n < len(items) && q.queue.ready() > 0; n++ {
		items[n] = q.popLocked(&d)
	}
	q.unlock(&d)
	return n
}

// PopWait is Pop that waits for an item. Waiting consumers are served first come, first served.
// PopWait returns [ErrClosed] when the queue is closed and empty. If ctx is done first, it returns
// the error of ctx, unless the queue has already handed it an item: then it returns the item.
func (q *FairQueue[K, V]) PopWait(ctx context.Context) (item V, err error) {
	if err := ctx.Err(); err != nil {
		return item, err
	}
	done := ctx.Done()
	q.mu.Lock()
	switch {
	case q.canPopFastLocked():
		item = q.queue.pop()
		q.counts.Popped++
		q.mu.Unlock()
		return item, nil
	case q.queue.ready() > 0:
		item, _ = q.popAndUnlock()
		return item, nil
	case q.closed && q.queue.Len() == 0:
		q.mu.Unlock()
		return item, ErrClosed
	}
	w := q.waiterPool.Get().(*waiter[K, V])
	q.consumers.Add(w)
	q.mu.Unlock()
	return q.await(ctx, done, w)
}

// All returns an iterator over PopWait. It ends when the queue is closed and empty, or when ctx is
// done; items then stay queued. With [Options].ShareTime it calls [FairQueue.Done] for an item
// when the loop asks for the next one or ends, even by a panic.
func (q *FairQueue[K, V]) All(ctx context.Context) iter.Seq[V] {
	return func(yield func(V) bool) {
		for {
			item, err := q.PopWait(ctx)
			if err != nil || !q.yield(item, yield) {
				return
			}
		}
	}
}

func (q *FairQueue[K, V]) yield(item V, yield func(V) bool) bool {
	if q.options.ShareTime {
		defer func() { _ = q.Done(item) }()
	}
	return yield(item)
}

// Remove takes out the item of a ticket. The items behind it under the same key move up one turn.
// If the item has left the queue, ok is false: another call has got it, because each item leaves
// exactly once.
func (q *FairQueue[K, V]) Remove(t Ticket) (item V, ok bool) {
	var d deferred[K, V]
	q.lock()
	var k itemKey[K]
	k, item, ok = q.queue.removeTicket(t)
	if ok {
		q.counts.Removed++
		q.itemLeftLocked(&k, &d)
	}
	q.unlock(&d)
	return item, ok
}

// RemoveKey takes out all items of a key and returns them in the order in which they were queued.
// It is O(items returned), with the lock held.
func (q *FairQueue[K, V]) RemoveKey(key K) []V {
	k := hashed(key)
	var d deferred[K, V]
	q.lock()
	items := q.queue.removeKey(&k)
	q.counts.Removed += uint64(len(items))
	if len(items) > 0 {
		q.itemLeftLocked(&k, &d)
	}
	q.unlock(&d)
	return items
}

// Position returns how many items leave before the item of a ticket if nothing else is pushed or
// removed. If the item has left the queue, ok is false. Position is O(position), some nanoseconds
// for each item, with the lock held.
func (q *FairQueue[K, V]) Position(t Ticket) (position int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.queue.Position(t)
}

// Len returns the number of items queued.
func (q *FairQueue[K, V]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.queue.Len()
}

// Close makes all later pushes and all waiting ones fail with [ErrClosed]. Pops deliver the queued
// items, and then fail with ErrClosed. Closing a closed queue does nothing. Close is O(waiting
// goroutines).
func (q *FairQueue[K, V]) Close() {
	var d deferred[K, V]
	q.mu.Lock()
	q.closed = true
	for q.producers.Len() > 0 {
		d.wake(q.producers.pop().(*waiter[K, V]), ErrClosed)
	}
	for q.keyBlocked.Len() > 0 {
		d.wake(q.keyBlocked.pop().(*waiter[K, V]), ErrClosed)
	}
	q.setFastLimitLocked()
	q.unlock(&d)
}

// Drain takes out all items and returns them in fair order; their tickets become invalid. Waiting
// producers are admitted to the empty queue, so a program usually closes a queue before it drains
// it. Drain gathers the items without the lock.
func (q *FairQueue[K, V]) Drain() []V {
	var d deferred[K, V]
	q.lock()
	rest := q.queue.takeAll()
	q.counts.Removed += uint64(rest.Len())
	for q.keyBlocked.Len() > 0 {
		q.enqueueLocked(&q.producers, q.keyBlocked.pop().(*waiter[K, V]))
	}
	q.admitLocked(&d)
	q.unlock(&d)
	items := make([]V, 0, rest.Len())
	for rest.Len() > 0 {
		items = append(items, rest.pop())
	}
	return items
}

// ReportCost reports the true cost of a popped item, in units, to settle the account of its key:
// see [Options].SettleCosts. Call it at most once for each item. It computes the item's key,
// weight and cost again, which must be those of the push. A cost above [MaxCost] is lowered to
// that. ReportCost returns [ErrCost] if the cost is negative. It returns the error of Push if the
// item's weight or declared cost is out of range, and an error if costs are not settled.
func (q *FairQueue[K, V]) ReportCost(item V, cost int64) error {
	k, err := q.itemKey(item)
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.queue.reportCost(&k, cost)
}
