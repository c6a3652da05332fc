package fairq

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"
)

// FairQueue is a [Queue] for many goroutines: with a capacity, with waiting for room and for items, and with an end. Its zero
// value is not usable; [New] makes one. All methods may be called at any time by any goroutine. Keys that are not equal to
// themselves are all one key, as in a Queue.
type FairQueue[K comparable, V any] struct {
	key     func(V) K
	options Options[K, V]
	epoch   time.Time // waiting times are counted from here

	// mu protects all that follows. No code of the user's runs under it: keys are computed and hashed, and weights asked for,
	// before it is taken; waiters are woken and evicted items handed over after it is released.
	mu sync.Mutex

	queue  Queue[K, V]
	closed bool
	roomy  int   // with fewer items than this a push need not look at anything but consumers; see roomyAgainLocked
	counts Stats // of this the counters only

	// Consumers wait only while the queue is empty. They are served first come, first served: a queue of one key.
	consumers Queue[struct{}, *waiter[K, V]]

	// Producers wait only while the queue is full, unless their key is. They are admitted in rounds by key as room comes free.
	// One whose turn comes when its key is at its capacity goes to barred until an item of the key leaves, and then takes a
	// new turn.
	producers Queue[K, *waiter[K, V]]
	barred    Queue[K, *waiter[K, V]]

	watches []*Watch[K, V] // those that are armed

	now     time.Time      // of the call that is being made, if the clock is needed
	counter *KeyCounter[K] // nil if nothing is counted by key

	waiters sync.Pool // *waiter[K, V] to be used again
}

// waiter is a goroutine that waits. Whoever takes it out of its line, under the lock, writes item or err, and when the
// lock is released sends on ready.
type waiter[K comparable, V any] struct {
	label[K]
	item   V                        // what a producer pushes, or a consumer gets
	err    error                    // nil if the item was handed over
	line   *Queue[K, *waiter[K, V]] // a producer's line
	ticket Ticket                   // the place in the line
	ready  chan struct{}
	next   *waiter[K, V] // in the list of those to be woken
}

// New returns an empty queue. The function key tells which key an item belongs to; it is called once for each item pushed,
// without the lock held, so calls may overlap. nil options are the defaults. New panics if key is nil or the options do
// not make sense.
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
	q := &FairQueue[K, V]{
		key:     key,
		options: o,
		epoch:   time.Now(),
	}
	q.waiters.New = func() any { return &waiter[K, V]{ready: make(chan struct{}, 1)} }
	q.roomyAgainLocked()
	q.queue.Newcomers = o.Newcomers
	if o.TrackWait {
		q.queue.waits = new(waits)
	}
	if o.CountKeys > 0 {
		q.counter = NewKeyCounter[K](o.CountKeys)
	}
	return q
}

// Push queues an item, and does not wait. It returns a [*FullError] if there is no room, [ErrClosed] or [ErrWeight].
func (q *FairQueue[K, V]) Push(item V) error {
	// This is q.label written out: the call, or one for the lines under the lock, makes a push and a pop a tenth slower.
	l := label[K]{key: q.key(item), weight: 1}
	l.hash = hashOf(l.key)
	if q.options.Weight != nil {
		if err := l.weigh(q.options.Weight); err != nil {
			return err
		}
	}
	q.mu.Lock()
	if q.roomyLocked() {
		q.queue.push(&l, item)
		q.counts.Pushed++
		q.mu.Unlock()
		return nil
	}
	q.tickLocked()
	var after aftermath[K, V]
	err := q.pushLocked(&l, item, nil, &after)
	q.mu.Unlock()
	q.finish(&after)
	return err
}

// Add is Push, and returns a ticket for [FairQueue.Remove] and [FairQueue.Position]. It does not wait for room: an item that
// PushWait has queued can only be removed together with its key's others.
func (q *FairQueue[K, V]) Add(item V) (ticket Ticket, err error) {
	l, err := q.label(q.key(item))
	if err != nil {
		return Ticket{}, err
	}
	var after aftermath[K, V]
	q.lock()
	err = q.pushLocked(&l, item, &ticket, &after)
	q.mu.Unlock()
	q.finish(&after)
	return ticket, err
}

// PushBatch pushes items one after the other under one lock, until one is refused. It returns how many were queued, and if
// these are not all, the error that Push would have returned for the next. Later items may evict earlier ones of the same
// batch. It allocates if there are more than 64.
func (q *FairQueue[K, V]) PushBatch(items []V) (n int, err error) {
	var space [64]label[K]
	labels := space[:]
	if len(items) > len(labels) {
		labels = make([]label[K], len(items))
	}
	valid, invalid := q.labelAll(labels, items)
	var after aftermath[K, V]
	q.lock()
	for n < valid {
		n += q.pushRunLocked(labels[n:valid], items[n:valid])
		if n == valid {
			break
		}
		if err = q.pushLocked(&labels[n], items[n], nil, &after); err != nil {
			break
		}
		n++
	}
	q.mu.Unlock()
	q.finish(&after)
	if err == nil {
		err = invalid
	}
	return n, err
}

// PushWait is Push, but if there is no room, it waits for it. (With EvictHeaviest, that is if the key is among the
// heaviest, or at its KeyCapacity; with EvictOldest, only if it is at its KeyCapacity.) Producers who wait are admitted in
// rounds by key. If ctx is done first, or when the call is made, PushWait returns its error, and the item is not queued.
func (q *FairQueue[K, V]) PushWait(ctx context.Context, item V) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	done := ctx.Done() // before there is anything that could be lost, should it panic
	l, err := q.label(q.key(item))
	if err != nil {
		return err
	}
	q.mu.Lock()
	if q.roomyLocked() {
		q.queue.push(&l, item)
		q.counts.Pushed++
		q.mu.Unlock()
		return nil
	}
	q.tickLocked()
	var after aftermath[K, V]
	row, s, err := q.makeRoomLocked(&l, &after)
	if err == nil {
		q.enterLocked(&l, row, s, item)
		q.handOverLocked(&after)
	}
	if !errors.Is(err, ErrFull) {
		q.mu.Unlock()
		q.finish(&after)
		return err
	}
	w := q.waiters.Get().(*waiter[K, V])
	w.label, w.item = l, item
	if q.keyRoomLocked(&l) {
		q.lineUpLocked(&q.producers, w)
	} else {
		q.lineUpLocked(&q.barred, w)
	}
	q.alertLocked(&after)
	q.mu.Unlock()
	q.finishInLine(&after, w)
	_, err = q.await(ctx, done, w)
	return err
}

// Pop takes out the next item in fair order, and does not wait. If there is none, ok is false.
func (q *FairQueue[K, V]) Pop() (item V, ok bool) {
	q.mu.Lock()
	if q.freeLocked() {
		item = q.queue.pop()
		q.counts.Popped++
		q.mu.Unlock()
		return item, true
	}
	return q.popAndUnlock()
}

// PopBatch fills items with the next ones in fair order, as many as there are, under one lock. It returns how many.
func (q *FairQueue[K, V]) PopBatch(items []V) (n int) {
	var after aftermath[K, V]
	q.lock()
	for ; n < len(items) && q.freeLocked(); n++ {
		items[n] = q.queue.pop()
	}
	q.counts.Popped += uint64(n)
	for ; n < len(items) && q.queue.len > 0; n++ {
		items[n] = q.popLocked(&after)
	}
	q.mu.Unlock()
	q.finish(&after)
	return n
}

// PopWait is Pop, but if there is no item, it waits for one. Consumers who wait are served first come, first served. It
// returns [ErrClosed] when the queue is closed and nothing is left. If ctx is done first, or when the call is made, it
// returns its error; but an item that was handed over to the waiting call by then is returned.
func (q *FairQueue[K, V]) PopWait(ctx context.Context) (item V, err error) {
	if err := ctx.Err(); err != nil {
		return item, err
	}
	done := ctx.Done()
	q.mu.Lock()
	if q.queue.len > 0 {
		item, _ = q.popAndUnlock()
		return item, nil
	}
	if q.closed {
		q.mu.Unlock()
		return item, ErrClosed
	}
	w := q.waiters.Get().(*waiter[K, V])
	w.ticket = q.consumers.Add(struct{}{}, w)
	q.mu.Unlock()
	return q.await(ctx, done, w)
}

// All returns an iterator over PopWait. It ends when the queue is closed and nothing is left, or when ctx is done; what is
// queued then stays queued.
func (q *FairQueue[K, V]) All(ctx context.Context) iter.Seq[V] {
	return func(yield func(V) bool) {
		for {
			item, err := q.PopWait(ctx)
			if err != nil || !yield(item) {
				return
			}
		}
	}
}

// Remove takes out the item that the ticket stands for. What is queued behind it under the same key moves up one turn.
// If the item is no longer queued, ok is false: somebody else has it, for each item leaves the queue exactly once.
func (q *FairQueue[K, V]) Remove(t Ticket) (item V, ok bool) {
	var after aftermath[K, V]
	q.lock()
	if ok = q.queue.valid(t); ok {
		l := q.labelLocked(q.queue.links.at(t.node).key & keyMask)
		item = q.queue.remove(t.node)
		q.counts.Removed++
		q.leftLocked(&l, &after)
	}
	q.mu.Unlock()
	q.finish(&after)
	return item, ok
}

// RemoveKey takes out all items of a key and returns them in the order in which they were queued. It is O(items
// returned), with the lock held.
func (q *FairQueue[K, V]) RemoveKey(key K) []V {
	l := label[K]{key: key, hash: hashOf(key)}
	var after aftermath[K, V]
	q.lock()
	items := q.queue.removeKey(key, l.hash)
	q.counts.Removed += uint64(len(items))
	for range items {
		q.leftLocked(&l, &after)
	}
	q.mu.Unlock()
	q.finish(&after)
	return items
}

// Position returns how many items leave before the one that the ticket stands for, as the queue stands now. If that is no longer
// queued, ok is false. It is O(items that leave before), some nanoseconds for each, with the lock held.
func (q *FairQueue[K, V]) Position(t Ticket) (position int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.queue.Position(t)
}

// Len returns the number of items queued.
func (q *FairQueue[K, V]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.queue.len
}

// Keys returns the number of keys that have items queued.
func (q *FairQueue[K, V]) Keys() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.queue.active
}

// KeyLen returns the number of items queued under a key.
func (q *FairQueue[K, V]) KeyLen(key K) int {
	hash := hashOf(key)
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.queue.keyLen(key, hash)
}

// Close makes all further pushes and all waiting ones fail with [ErrClosed]. Pops deliver what is queued, and fail with
// ErrClosed after that. Closing a closed queue does nothing. It is O(goroutines that wait).
func (q *FairQueue[K, V]) Close() {
	var after aftermath[K, V]
	q.mu.Lock()
	q.closed = true
	for q.consumers.len > 0 {
		after.wake(q.consumers.pop(), ErrClosed)
	}
	for q.producers.len > 0 {
		after.wake(q.producers.pop(), ErrClosed)
	}
	for q.barred.len > 0 {
		after.wake(q.barred.pop(), ErrClosed)
	}
	q.alertLocked(&after)
	q.roomyAgainLocked()
	q.mu.Unlock()
	q.finish(&after)
}

// Drain takes out all items and returns them in fair order. Tickets of these are no longer valid. Producers who wait are
// admitted to the empty queue; usually one closes a queue before draining it. The lock is not held while the items are
// gathered.
func (q *FairQueue[K, V]) Drain() []V {
	var after aftermath[K, V]
	q.lock()
	rest := q.queue
	q.queue = Queue[K, V]{Newcomers: rest.Newcomers, issued: rest.issued}
	if rest.waits != nil {
		q.queue.waits = &waits{now: rest.waits.now, total: rest.waits.total}
		rest.waits = nil
	}
	q.counts.Drained += uint64(rest.len)
	for q.barred.len > 0 {
		q.lineUpLocked(&q.producers, q.barred.pop())
	}
	q.admitLocked(&after)
	q.mu.Unlock()
	q.finish(&after)
	items := make([]V, 0, rest.len)
	for rest.len > 0 {
		items = append(items, rest.pop())
	}
	return items
}
