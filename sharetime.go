package fairq

import (
	"errors"
	"fmt"
	"time"

	"github.com/fairq/fairq/internal/fairshare"
)

// With Options.ShareTime the rule of package fairshare says which key is next, and the rounds only
// how far a backlog reaches: no round begins. What waits for a permit there is an item here, and
// who holds a permit is a consumer that has taken an item and not told its end. Tickets, which all
// items have then, number them in the order in which they came.

// sharing is what a queue knows of its keys then.
type sharing[K comparable] struct {
	fairshare.Shares[K, keyShare]
	epoch time.Time
}

type sharingKey[K comparable] = fairshare.Key[K, keyShare]

// keyShare is what it knows of a key beyond the rule. Which of the key's items has ended makes no
// difference to what it is charged for all of them, so their begins are not kept: the end of one of
// n is charged with an n-th of the time for which items of the key are held and that is not charged.
type keyShare struct {
	slot uint32 // of the key while it has items
	next uint32 // in a copy for orderShared: the item that leaves next
	time float64
	at   time.Duration // by the clock of Shares, when time was right
}

func (s *sharing[K]) now() time.Duration { return time.Since(s.epoch) }

// copy is for those who want to know the order: see Shares.Copy.
func (s *sharing[K]) copy() *sharing[K] { return &sharing[K]{s.Copy(), s.epoch} }

// count counts the time for which items of a key were held.
func (s *sharing[K]) count(k *sharingKey[K], now time.Duration) {
	d, clock := &k.Data, s.Clock(now)
	d.time += float64(k.Held()) * float64(clock-d.at)
	d.at = clock
}

// release is called when an item of a key has ended. It returns false if none is held.
func (s *sharing[K]) release(key K) bool {
	k := s.Find(key)
	if k == nil || k.Held() == 0 {
		return false
	}
	now := time.Duration(0)
	if s.NeedsNow(k) {
		now = s.now()
	}
	s.count(k, now)
	charge := k.Data.time / float64(k.Held())
	k.Data.time -= charge
	s.Release(k, charge, now)
	return true
}

// enterShared is called when an item was queued, the newest one of its key.
func (q *Queue[K, V]) enterShared(slot uint32, s *keyState[K], item *itemKey[K]) {
	q.issue(s.newest)
	now := time.Duration(0)
	if q.len == 1 {
		now = q.shares.now()
	}
	q.keys.shares.reach(slot)
	k := q.keys.shares.at(slot)
	if *k == nil {
		*k = q.shares.Find(item.key)
	}
	*k = q.shares.Add(*k, item.key, int(item.weight))
	(*k).Data.slot = slot
	q.shares.Wait(*k, *q.tickets.at(s.oldest), now)
}

// leaveShared is called when an item is about to leave. It returns its key, and the number of the
// key's oldest item after that.
func (q *Queue[K, V]) leaveShared(node uint32) (k *sharingKey[K], first uint64) {
	slot := q.links.at(node).key & keyMask
	at, next := q.keys.shares.at(slot), q.keys.at(slot).oldest
	k = *at
	if node == next {
		next = q.itemAfter(node)
	}
	if next == 0 {
		*at = nil
		return k, 0
	}
	return k, *q.tickets.at(next)
}

// popShared is pop.
func (q *Queue[K, V]) popShared() V {
	k, node := q.shares.Next(), q.nextShared()
	if q.waitTimes != nil {
		q.keys.addWait(k.Data.slot, q.waitTimes.deliver(node))
	}
	_, first := q.leaveShared(node) // the key may be another one, because q.shares may be a copy
	value := q.take(node)
	now := q.shares.now()
	q.shares.count(k, now)
	q.shares.Admit(k, first, now)
	return value
}

// nextShared returns the node of the item that popShared takes.
func (q *Queue[K, V]) nextShared() uint32 { return q.keys.at(q.shares.Next().Data.slot).oldest }

// orderShared is order, as it is if nothing that is held ends.
func (q *Queue[K, V]) orderShared(yield func(round uint64, node uint32) bool) {
	shares := q.shares.Copy()
	for k := shares.Next(); k != nil; k = shares.Next() {
		node, first := k.Data.next, uint64(0)
		if node == 0 {
			node = q.keys.at(k.Data.slot).oldest
		}
		if !yield(q.rounds.current+1, node) {
			return
		}
		if k.Data.next = q.itemAfter(node); k.Data.next != 0 {
			first = *q.tickets.at(k.Data.next)
		}
		shares.Admit(k, first, 0)
	}
}

var errNotShared = errors.New("fairq: Done: nothing is held, because Options.ShareTime is false")

// Done tells that an item has ended that was popped, for a queue with [Options].ShareTime: its key
// holds it no longer, and is charged for it. The key function tells which key that is, and all of
// its items are alike: so it does not matter in which order they end. Done returns an error if no
// item of the key is held, or without ShareTime. It is O(log keys).
func (q *FairQueue[K, V]) Done(item V) error {
	if !q.options.ShareTime {
		return errNotShared
	}
	key := q.key(item)
	hashOf(key) // here, for it may panic
	q.mu.Lock()
	ok := q.queue.shares.release(key)
	q.mu.Unlock()
	if !ok {
		return fmt.Errorf("fairq: Done: no item of key %#v is held", key)
	}
	return nil
}
