package fairq

import (
	"errors"
	"fmt"
	"time"

	"github.com/fairq/fairq/internal/fairshare"
)

// With Options.ShareTime the rule of package fairshare says which key is next. There are no rounds,
// so no item has a turn. What waits for a permit there is an item here, and who holds a permit is a
// consumer that has taken an item and not told its end. Tickets, which all items have then, number
// them in the order in which they came.

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
func (s *sharing[K]) release(k *sharingKey[K]) bool {
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

// share returns what the rule knows of a key, nil if that is nothing. The key's slot, which may be 0,
// is faster than the map of Shares: so keys without items stay in the table of keys for a while.
func (q *Queue[K, V]) share(slot uint32, key K) *sharingKey[K] {
	if slot != 0 {
		if k := *q.keys.shares.at(slot); k != nil && !k.Forgotten() {
			return k
		}
	}
	return q.shares.Find(key)
}

// enterShared is called when an item was queued, the newest one of its key.
func (q *Queue[K, V]) enterShared(slot uint32, s *keyState[K], item *itemKey[K]) {
	q.issue(s.newest)
	k := q.shares.Add(q.share(slot, item.key), item.key, int(item.weight))
	if s.len == 1 {
		k.Data.slot = slot
		*q.keys.shares.at(slot) = k
	}
	q.setLevel(slot, s.len)
	now := time.Duration(0)
	if q.len == 1 {
		now = q.shares.now()
	}
	q.shares.Wait(k, *q.tickets.at(s.oldest), now)
}

// takeShared takes out the item of a node, and returns the number of the key's oldest item after that.
func (q *Queue[K, V]) takeShared(slot, node uint32) (value V, first uint64) {
	value = q.takeValue(node)
	s := q.keys.at(slot)
	if node == s.oldest {
		s.oldest = q.links.at(node).nextItem
	} else {
		q.unlink(s, node)
		s.lastTurn = s.newest
	}
	q.freeNode(node)
	q.len--
	s.len--
	q.setLevel(slot, s.len)
	if s.len > 0 {
		return value, *q.tickets.at(s.oldest)
	}
	q.rest(s)
	q.tidy()
	return value, 0
}

// popShared is pop.
func (q *Queue[K, V]) popShared() V {
	now := q.shares.now()
	k := q.shares.Next()
	slot := k.Data.slot
	if q.waitTimes != nil {
		q.keys.addWait(slot, q.waitTimes.deliver(q.nextShared()))
	}
	value, first := q.takeShared(slot, q.keys.at(slot).oldest)
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

// done is called when an item of a key has ended. It returns false if none is held.
func (q *Queue[K, V]) done(k *itemKey[K]) bool {
	return q.shares.release(q.share(q.find(k).slot, k.key))
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
	k := hashed(q.key(item))
	q.mu.Lock()
	ok := q.queue.done(&k)
	q.mu.Unlock()
	if !ok {
		return fmt.Errorf("fairq: Done: no item of key %#v is held", k.key)
	}
	return nil
}
