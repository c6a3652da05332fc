package fairq

import (
	"context"
	"errors"
	"time"
)

// aftermath is what a call has still to do when the lock is released.
type aftermath[K comparable, V any] struct {
	woken   *waiter[K, V] // waiters to be woken
	evicted bool
	victim  entry[K, V]
	others  []entry[K, V]  // further victims, which there are rarely
	alerted *Watch[K, V]   // a watch that is due
	more    []*Watch[K, V] // if there are several, the others
}

// entry is an item with its key.
type entry[K comparable, V any] struct {
	key  K
	item V
}

// wake settles a waiter that has been taken out of its line.
func (a *aftermath[K, V]) wake(w *waiter[K, V], err error) {
	w.err, w.next, a.woken = err, a.woken, w
}

func (a *aftermath[K, V]) evict(key K, item V) {
	if a.evicted {
		a.others = append(a.others, entry[K, V]{key, item})
	} else {
		a.evicted, a.victim = true, entry[K, V]{key, item}
	}
}

// finish does what is left to do. The lock is not held.
func (q *FairQueue[K, V]) finish(a *aftermath[K, V]) {
	for w := a.woken; w != nil; {
		next := w.next // from the send on w is its goroutine's
		w.ready <- struct{}{}
		w = next
	}
	switch {
	case a.evicted && len(a.others) == 0 && a.alerted == nil: // as a rule, and a deferred call would cost a twentieth
		q.options.OnEvict(a.victim.key, a.victim.item)
	case a.evicted || a.alerted != nil:
		q.tell(a)
	}
}

// tell calls the user's functions. If one of them panics, or ends the goroutine, the others are called
// nevertheless: each victim is handed out only here, and each watch is disarmed already.
func (q *FairQueue[K, V]) tell(a *aftermath[K, V]) {
	defer func() {
		if a.evicted || a.alerted != nil {
			q.tell(a)
		}
	}()
	for a.evicted {
		v := a.victim
		if a.evicted = len(a.others) > 0; a.evicted {
			a.victim, a.others = a.others[0], a.others[1:]
		}
		q.options.OnEvict(v.key, v.item)
	}
	for a.alerted != nil {
		f := a.alerted.f
		if a.alerted = nil; len(a.more) > 0 {
			a.alerted, a.more = a.more[0], a.more[1:]
		}
		f()
	}
}

// finishInLine is finish for a call that has put w into a line, and is about to wait. If a function of
// the user's panics, nobody will wait, so w leaves the line.
func (q *FairQueue[K, V]) finishInLine(a *aftermath[K, V], w *waiter[K, V]) {
	returned := false
	defer func() {
		if !returned {
			q.withdraw(w)
		}
	}()
	q.finish(a)
	returned = true
}

// label finds out what the queue must know of a key.
func (q *FairQueue[K, V]) label(key K) (l label[K], err error) {
	l = label[K]{key, hashOf(key), 1}
	if q.options.Weight != nil {
		err = l.weigh(q.options.Weight)
	}
	return l, err
}

// labelAll fills in the labels of items, and returns how many are valid. In a run of one key only the first is computed.
func (q *FairQueue[K, V]) labelAll(labels []label[K], items []V) (n int, err error) {
	for i, item := range items {
		l := &labels[i]
		l.key = q.key(item)
		if i > 0 && l.key == labels[i-1].key {
			l.hash, l.weight = labels[i-1].hash, labels[i-1].weight
			continue
		}
		l.hash, l.weight = hashOf(l.key), 1
		if q.options.Weight != nil {
			if err := l.weigh(q.options.Weight); err != nil {
				return i, err
			}
		}
	}
	return len(items), nil
}

// lock takes the lock, and reads the clock if that is needed.
func (q *FairQueue[K, V]) lock() {
	q.mu.Lock()
	q.tickLocked()
}

func (q *FairQueue[K, V]) tickLocked() {
	if q.queue.waits != nil || q.counter != nil {
		q.now = time.Now()
	}
	if q.queue.waits != nil {
		q.queue.waits.now = q.now.Sub(q.epoch)
	}
}

// roomyLocked tells whether an item can be pushed without more ado: there is room for any key, nobody waits for it or for
// room, and no clock is to be read.
func (q *FairQueue[K, V]) roomyLocked() bool {
	return q.queue.len < q.roomy && q.consumers.len+q.barred.len == 0
}

// freeLocked tells whether an item can be popped without more ado: there is one, nobody waits for its place, and no clock
// is to be read.
func (q *FairQueue[K, V]) freeLocked() bool {
	return q.queue.len > 0 && q.producers.len+q.barred.len == 0 && q.queue.waits == nil && q.counter == nil
}

// popAndUnlock takes out the next item, if there is one, and releases the lock.
func (q *FairQueue[K, V]) popAndUnlock() (item V, ok bool) {
	q.tickLocked()
	var after aftermath[K, V]
	if ok = q.queue.len > 0; ok {
		item = q.popLocked(&after)
	}
	q.mu.Unlock()
	q.finish(&after)
	return item, ok
}

// pushLocked queues an item if there is room for it, or can be made.
func (q *FairQueue[K, V]) pushLocked(l *label[K], item V, ticket *Ticket, after *aftermath[K, V]) error {
	row, s, err := q.makeRoomLocked(l, after)
	if err != nil {
		return q.refuseLocked(l, err)
	}
	node := q.enterLocked(l, row, s, item)
	if ticket != nil {
		*ticket = q.queue.issue(node)
	}
	q.handOverLocked(after)
	return nil
}

// pushRunLocked queues items as long as there is room for any key and nobody waits for them, and returns how many.
func (q *FairQueue[K, V]) pushRunLocked(labels []label[K], items []V) (n int) {
	var row uint32
	var s *keyState[K]
	for n < len(labels) && q.roomyLocked() {
		l := &labels[n]
		if s == nil || s.hash != l.hash || s.key != l.key {
			row, s = q.queue.keys.find(l.key, l.hash)
		}
		q.queue.pushTo(row, s, l, items[n])
		n++
	}
	q.counts.Pushed += uint64(n)
	return n
}

// refuseLocked returns what a push that does not wait returns for an error of makeRoomLocked, and counts it.
func (q *FairQueue[K, V]) refuseLocked(l *label[K], err error) error {
	if q.closed {
		return err
	}
	q.counts.Refused++
	q.countLocked(l.key, Counts{Refused: 1})
	if errors.Is(err, ErrKeyFull) {
		return &FullError{Len: q.queue.keyLen(l.key, l.hash), Limit: q.keyLimitLocked(l), Key: true}
	}
	return &FullError{Len: q.queue.len, Limit: q.options.Capacity}
}

// makeRoomLocked returns nil if an item can be queued, after evicting another one if need be, and what it found out about
// its key: row and s are 0 and nil if that has nothing queued. Otherwise it returns ErrClosed, ErrFull or ErrKeyFull.
func (q *FairQueue[K, V]) makeRoomLocked(l *label[K], after *aftermath[K, V]) (row uint32, s *keyState[K], err error) {
	if q.closed {
		return 0, nil, ErrClosed
	}
	if q.barred.len > 0 {
		q.leftLocked(l, after) // the key's share may have grown, and who waits comes first
	}
	items := 0
	if row, s = q.queue.keys.find(l.key, l.hash); s != nil {
		items = int(s.len)
	}
	if items == 0 {
		row, s = 0, nil // it may rest, and eviction may end that
	}
	switch limit := q.keyLimitLocked(l); {
	case items >= limit && limit < q.options.Capacity:
		return 0, nil, ErrKeyFull
	case q.queue.len < q.options.Capacity:
		return row, s, nil
	case q.options.WhenFull < EvictHeaviest,
		q.options.WhenFull == EvictHeaviest && items > 0 && s.last == q.queue.rounds.last:
		return 0, nil, ErrFull
	}
	q.evictLocked(s, after)
	if items == 1 && q.queue.keyLen(l.key, l.hash) == 0 {
		row, s = 0, nil // it has evicted its only item
	}
	return row, s, nil
}

// evictLocked evicts an item for one of a key. s is nil if that has nothing queued; with EvictHeaviest it is not looked at.
func (q *FairQueue[K, V]) evictLocked(s *keyState[K], after *aftermath[K, V]) {
	h := q.queue.heaviest()
	node := h.newest
	if q.options.WhenFull == EvictOldest {
		if s != nil && s.last == q.queue.rounds.last {
			h = s
		}
		node = h.first
	}
	victim := label[K]{key: h.key, hash: h.hash} // h is not valid any more if it loses its only item
	after.evict(victim.key, q.queue.remove(node))
	q.counts.Evicted++
	q.countLocked(victim.key, Counts{Evicted: 1})
	if q.barred.len > 0 {
		q.unbarLocked(&victim)
	}
}

// enterLocked queues an item for which there is room.
func (q *FairQueue[K, V]) enterLocked(l *label[K], row uint32, s *keyState[K], item V) (node uint32) {
	q.counts.Pushed++
	if s == nil {
		return q.queue.push(l, item)
	}
	return q.queue.pushTo(row, s, l, item)
}

// handOverLocked gives an item that was just queued to a consumer, if one waits. If others had to make room for it, it lets in
// those that may follow.
func (q *FairQueue[K, V]) handOverLocked(after *aftermath[K, V]) {
	if q.consumers.len > 0 {
		w := q.consumers.pop()
		w.item = q.popLocked(after)
		after.wake(w, nil)
	}
	if q.options.WhenFull == EvictOldest {
		q.admitLocked(after)
	}
	q.alertLocked(after)
}

func (q *FairQueue[K, V]) popLocked(after *aftermath[K, V]) V {
	q.counts.Popped++
	if q.producers.len+q.barred.len == 0 && q.counter == nil {
		return q.queue.pop()
	}
	l := q.labelLocked(q.queue.links.at(q.queue.next()).key & keyMask)
	item := q.queue.pop()
	q.countLocked(l.key, Counts{Served: 1})
	q.leftLocked(&l, after)
	return item
}

func (q *FairQueue[K, V]) countLocked(key K, c Counts) {
	if q.counter != nil {
		q.counter.Add(key, c, q.now)
	}
}

// labelLocked returns the label of the key in a row.
func (q *FairQueue[K, V]) labelLocked(row uint32) label[K] {
	s := q.queue.keys.at(row)
	return label[K]{key: s.key, hash: s.hash}
}

// leftLocked lets producers use the room that an item of a key has left. Each that enters changes its key's share.
func (q *FairQueue[K, V]) leftLocked(l *label[K], after *aftermath[K, V]) {
	for q.unbarLocked(l) {
		q.admitLocked(after)
	}
	q.admitLocked(after)
}

// unbarLocked lets the first of a key's barred producers take a turn, if there is room for it.
//
// A producer is barred only while its key has items, or other producers in the line. This is called whenever one of these
// leaves, so no producer is left behind.
func (q *FairQueue[K, V]) unbarLocked(l *label[K]) bool {
	_, s := q.barred.keys.find(l.key, l.hash)
	if s == nil || !q.keyRoomLocked(&(*q.barred.values.at(s.first)).label) {
		return false
	}
	q.lineUpLocked(&q.producers, q.barred.remove(s.first))
	return true
}

// keyLimitLocked returns how many items of a key the queue may hold as it is now.
func (q *FairQueue[K, V]) keyLimitLocked(l *label[K]) int {
	limit := q.options.KeyCapacity
	if q.options.WhenFull == RejectOverShare {
		share := int64(l.weight) * int64(q.options.Capacity-q.queue.len-1)
		limit = int(min(int64(limit), max(share, 1)))
	}
	return limit
}

// keyRoomLocked tells whether a key has room for an item, those of its producers in the line counted in.
func (q *FairQueue[K, V]) keyRoomLocked(l *label[K]) bool {
	limit := q.keyLimitLocked(l)
	return limit == q.options.Capacity || limit > q.queue.keyLen(l.key, l.hash)+q.producers.keyLen(l.key, l.hash)
}

// admitLocked queues what waiting producers have brought, as far as there is room or may be made. So as long as there is
// room, none is in the line.
func (q *FairQueue[K, V]) admitLocked(after *aftermath[K, V]) {
	for q.producers.len > 0 && (q.queue.len < q.options.Capacity || q.options.WhenFull == EvictOldest) {
		w := q.producers.pop()
		if q.queue.keyLen(w.key, w.hash) >= q.keyLimitLocked(&w.label) {
			q.lineUpLocked(&q.barred, w)
			continue
		}
		if q.queue.len >= q.options.Capacity {
			_, s := q.queue.keys.find(w.key, w.hash)
			if s != nil && s.len == 0 {
				s = nil
			}
			q.evictLocked(s, after)
		}
		q.enterLocked(&w.label, 0, nil, w.item)
		after.wake(w, nil)
	}
}

// lineUpLocked puts a producer at the end of a line.
func (q *FairQueue[K, V]) lineUpLocked(line *Queue[K, *waiter[K, V]], w *waiter[K, V]) {
	w.line = line
	w.ticket = line.issue(line.push(&w.label, w))
}

// await waits until w has been served, or ctx is done and it has not.
func (q *FairQueue[K, V]) await(ctx context.Context, done <-chan struct{}, w *waiter[K, V]) (item V, err error) {
	select {
	case <-w.ready:
	case <-done:
		if q.withdraw(w) {
			w.err = ctx.Err()
			break
		}
		<-w.ready // it was served at the same moment, and what was handed over is not taken back
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
