package fairq

import (
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/fairq/fairq/internal/fairshare"
)

// With Options.ShareTime the rule of package fairshare chooses the next key. There are no rounds,
// so no item has a turn. A request there is an item here, and a held permit is an item that a
// consumer has popped and not ended. All items have tickets, which number them in the order of
// their pushes.

// sharing is the state of a queue with ShareTime.
type sharing[K comparable] struct {
	fairshare.Shares[K, keyShare]
	epoch time.Time
	taken int // items in hand
}

type sharingKey[K comparable] = fairshare.Key[K, keyShare]

// keyShare is the state of a key beyond the rule.
type keyShare struct {
	slot uint32 // of the key while it has items
	next uint32 // in a copy for orderShared: the item that leaves next
}

func (s *sharing[K]) now() time.Duration { return time.Since(s.epoch) }

// copy returns a copy whose order can be played: see Shares.Copy.
func (s *sharing[K]) copy() *sharing[K] {
	return &sharing[K]{Shares: s.Copy(true), epoch: s.epoch}
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
	s.taken--
	s.Release(k, 0, now)
	return true
}

// share returns the state of a key in the rule, nil if it has none. slot is the key's place in the
// table of keys, or 0. Looking there is faster than in the map of Shares, so keys without items
// stay in the table for a while.
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
	if q.shares.Len() == 0 || q.shares.IsBehind(k) {
		now = q.shares.now()
	}
	q.shares.Wait(k, *q.tickets.at(s.oldest), now)
}

// takeShared takes out the item of a node, and returns the number of the key's next item.
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

// popShared is pop with ShareTime.
func (q *Queue[K, V]) popShared() V {
	now := q.shares.now()
	k := q.shares.Next()
	slot := k.Data.slot
	if q.waitTimes != nil {
		q.keys.addWait(slot, q.waitTimes.deliver(q.nextShared()))
	}
	value, first := q.takeShared(slot, q.keys.at(slot).oldest)
	q.shares.Admit(k, first, now)
	q.shares.taken++
	return value
}

// ready returns how many items may be taken now. The keys of the others are at their
// MaxInFlightPerKey.
func (q *Queue[K, V]) ready() int {
	if q.shares != nil {
		return q.shares.Ready()
	}
	return q.len
}

// nextShared returns the node of the item that popShared takes.
func (q *Queue[K, V]) nextShared() uint32 { return q.keys.at(q.shares.Next().Data.slot).oldest }

// orderShared is order if no held item ends: of all items, or of the ones to be taken before a
// Done.
func (q *Queue[K, V]) orderShared(all bool) iter.Seq2[uint64, uint32] {
	return func(yield func(round uint64, node uint32) bool) {
		shares := q.shares.Copy(all)
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
}

// done is called when an item of a key has ended. It returns false if none is held.
func (q *Queue[K, V]) done(k *itemKey[K]) bool {
	return q.shares.release(q.share(q.find(k).slot, k.key))
}

var errNotShared = errors.New("fairq: Done: nothing is held, because Options.ShareTime is false")

// Done ends a popped item of a queue with [Options].ShareTime: its key no longer holds it, and
// pays for it. Done calls the key function. All items of a key are alike, so they may end in any
// order. An item that MaxInFlightPerKey has kept back may now be taken: the first waiting consumer
// gets it. Done returns an error if the key holds no item, or without ShareTime. It is O(log
// keys).
func (q *FairQueue[K, V]) Done(item V) error {
	if !q.options.ShareTime {
		return errNotShared
	}
	k := hashed(q.key(item))
	var d deferred[K, V]
	q.lock()
	ok := q.queue.done(&k)
	q.unlock(&d)
	if !ok {
		return fmt.Errorf("fairq: Done: no item of key %#v is held", k.key)
	}
	return nil
}
