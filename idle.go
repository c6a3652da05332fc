package fairq

// Idle keys have no items, and the queue remembers them nevertheless: for what they have used of
// the rounds to come, so that a key gets no more by pushing its next item when its last one has
// left; under ThisRound, for having been served in the current one; and for what was learned of
// their costs.

const (
	maxIdle  = 64      // idle keys that an empty queue keeps at most, but for learned costs
	maxKnown = 1 << 14 // idle keys that are kept for learned costs alone
)

// idleKeys are the idle keys, by how far their account was ahead of the current round when they
// became idle: list i has those with 2^(i-1) to 2^i-1 rounds, list 0 those with none. In each, they
// are in the order in which they became idle, linked by oldest, to the one before, and newest, to
// the next one. So whoever can be forgotten before the first one of a list can wait until that can
// be too: it is kept no more than twice as long as need be.
type idleKeys struct {
	lists [19]struct{ first, last uint32 }
	known uint32 // how many there are in the last list, of those that are kept for learned costs
	len   uint32 // how many there are in the others
	next  uint8  // the list to be looked at next
	reach uint64 // no idle key's account has a Round beyond this one
}

const knownList = uint8(len(idleKeys{}.lists) - 1)

// isOverdrawn tells whether a key has used rounds that have not begun.
func (q *Queue[K, V]) isOverdrawn(s *keyState[K]) bool { return s.round > q.rounds.current }

// isInRound tells whether a key was served in the current round, or has used some of its share.
func (q *Queue[K, V]) isInRound(s *keyState[K]) bool {
	return q.rounds.open && (s.servedRound == q.rounds.current || q.costs != nil && s.round == q.rounds.current)
}

// addIdle puts a key without items into one of the lists.
func (q *Queue[K, V]) addIdle(s *keyState[K], slot uint32, number uint8) {
	s.idleList = number
	list := &q.idle.lists[number]
	s.oldest, s.newest = list.last, 0
	if list.last == 0 {
		list.first = slot
	} else {
		q.keys.at(list.last).newest = slot
	}
	list.last = slot
	if number == knownList {
		q.idle.known++
		return
	}
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
	if s.idleList == knownList {
		q.idle.known--
	} else {
		q.idle.len--
	}
	s.oldest, s.newest, s.idleList = 0, 0, 0
}

// forgetIdle forgets up to two idle keys which need not be remembered any longer. A call adds one
// at most, so there are ever fewer of them. If the list it looks at has none, the next call looks
// at the next one.
func (q *Queue[K, V]) forgetIdle() {
	for range 2 {
		slot := q.idle.lists[q.idle.next].first
		s := q.keys.at(slot)
		if slot == 0 || q.isOverdrawn(s) || q.isInRound(s) {
			q.idle.next = (q.idle.next + 1) % knownList
			return
		}
		q.removeIdle(s)
		q.forget(s, slot)
	}
}

// forget forgets a key that is in no list of idle ones, unless something was learned of its costs.
// Then another one may be forgotten, whose last item left earliest.
func (q *Queue[K, V]) forget(s *keyState[K], slot uint32) {
	if q.costs != nil && q.keys.costs.at(slot).mean > 0 {
		q.addIdle(s, slot, knownList)
		if q.idle.known <= maxKnown {
			return
		}
		slot = q.idle.lists[knownList].first
		q.removeIdle(q.keys.at(slot))
	}
	q.keys.remove(slot)
}

// forgetAccounts is called when the queue is empty: nobody has waited for what the idle keys have
// used. So the queue moves on to where their accounts are void.
func (q *Queue[K, V]) forgetAccounts() {
	if q.idle.len > maxIdle {
		// A round that ever new keys join would never be over, nor would a queue that is drained
		// again and again give its memory back. So the round ends here.
		q.rounds.open = false
		if q.costs == nil || q.costs.prior == 0 {
			q.keys = keyTable[K]{}
			q.idle = idleKeys{}
		}
	}
	if q.idle.reach > q.rounds.current {
		q.rounds.moveTo(q.idle.reach)
		q.rounds.open = false
	}
}
