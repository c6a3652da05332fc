package fairq

import "math/bits"

// Idle keys have no items, and the queue remembers them nevertheless: for what they have used of the
// rounds to come, so that a key gets no more by pushing its next item when its last one has left;
// and under ThisRound, for having been served in the current one.

// maxIdle is how many idle keys an empty queue keeps at most.
const maxIdle = 64

// idleKeys are the idle keys, by how far their account was ahead of the current round when they
// became idle: list i has those with 2^(i-1) to 2^i-1 rounds, list 0 those with none. In each, they
// are in the order in which they became idle, linked by oldest, to the one before, and newest, to
// the next one. So whoever can be forgotten before the first one of a list can wait until that can
// be too: it is kept no more than twice as long as need be.
type idleKeys struct {
	lists [18]struct{ first, last uint32 }
	next  uint8  // the list to be looked at next
	len   uint32 // in all lists
	reach uint64 // no idle key's account has a Round beyond this one
}

// isOverdrawn tells whether a key has used rounds that have not begun.
func (q *Queue[K, V]) isOverdrawn(s *keyState[K]) bool { return s.round > q.rounds.current }

// isInRound tells whether a key was served in the current round, or has used some of its share.
func (q *Queue[K, V]) isInRound(s *keyState[K]) bool {
	return q.rounds.open && (s.servedRound == q.rounds.current || q.costs != nil && s.round == q.rounds.current)
}

// addIdle remembers a key without items.
func (q *Queue[K, V]) addIdle(s *keyState[K], slot uint32) {
	s.idleList = uint8(bits.Len64(s.round - q.rounds.current))
	list := &q.idle.lists[s.idleList]
	s.oldest, s.newest = list.last, 0
	if list.last == 0 {
		list.first = slot
	} else {
		q.keys.at(list.last).newest = slot
	}
	list.last = slot
	q.idle.len++
	q.idle.reach = max(q.idle.reach, s.round)
}

// removeIdle takes a key out of the list that it is in.
func (q *Queue[K, V]) removeIdle(s *keyState[K]) {
	list := &q.idle.lists[s.idleList]
	if s.oldest == 0 {
		list.first = s.newest
	} else {
		q.keys.at(s.oldest).newest = s.newest
	}
	if s.newest == 0 {
		list.last = s.oldest
	} else {
		q.keys.at(s.newest).oldest = s.oldest
	}
	s.oldest, s.newest, s.idleList = 0, 0, 0
	q.idle.len--
}

// forgetIdle forgets up to two idle keys which need not be remembered any longer. A call adds one at
// most, so there are ever fewer of them. If the list it looks at has none, the next call looks at
// the next one.
func (q *Queue[K, V]) forgetIdle() {
	for range 2 {
		slot := q.idle.lists[q.idle.next].first
		if slot == 0 || q.isOverdrawn(q.keys.at(slot)) || q.isInRound(q.keys.at(slot)) {
			q.idle.next = (q.idle.next + 1) % uint8(len(q.idle.lists))
			return
		}
		q.removeIdle(q.keys.at(slot))
		q.keys.remove(slot)
	}
}

// forgetAccounts is called when the queue is empty: nobody has waited for what the idle keys have
// used. So the queue moves on to where their accounts are void.
func (q *Queue[K, V]) forgetAccounts() {
	if q.keys.count > maxIdle {
		// A round that ever new keys join would never be over, nor would a queue that is drained
		// again and again give its memory back. So the round ends here.
		q.rounds.open = false
		q.keys = keyTable[K]{}
		q.idle = idleKeys{}
	}
	if q.idle.reach > q.rounds.current {
		q.rounds.moveTo(q.idle.reach)
		q.rounds.open = false
	}
}
