package fairq

// Idle keys have no items, but stay in the table. With costs, a key may have used its shares of
// rounds to come: it must not gain by pushing its next item only when its last one has left. With
// ShareTime, keys are found faster in the table than in the map of Shares.
//
// If there are many idle keys, each call forgets some, by a hand that goes round the table
// (Corbató's clock, 1968). So a key that comes and goes costs no more than a key that stays.

const (
	idleShare = 3      // for each active key, this number of idle ones may stay
	maxIdle   = 1 << 8 // and this number besides
	handSpan  = 4      // buckets that a call looks at: one or two keys, two while the table grows
)

// isNeeded reports whether a key has used some of its share of a round that is not over.
func (q *Queue[K, V]) isNeeded(s *keyState[K]) bool { return s.round >= q.earliest() }

// hasManyIdle reports whether there are more idle keys than may stay.
func (q *Queue[K, V]) hasManyIdle() bool {
	return int(q.keys.count) > (1+idleShare)*q.active+maxIdle
}

// rest makes a key idle if it has no items left. The processor cannot predict whether it has some,
// so no branch depends on that: rest computes both results and chooses one.
func (q *Queue[K, V]) rest(s *keyState[K]) {
	active, reach := q.active, q.reach
	reached := max(reach, s.round)
	if s.len == 0 {
		active, reach = active-1, reached
	}
	q.active, q.reach = active, reach
}

// tidy is called when an item has left. It frees memory if the queue is empty or has many idle
// keys.
func (q *Queue[K, V]) tidy() {
	if q.len == 0 {
		if q.nodes.chunkCount > 1 {
			q.nodes.clear(q.dropChunk)
		}
		if q.keys.count > 0 {
			q.forgetAccounts()
		}
	}
	if q.hasManyIdle() {
		q.forgetIdle()
	}
}

// forgetIdle looks at the next few keys of the table, and forgets the idle ones that are not
// needed. A call adds at most one key, and looks at two while the table grows.
func (q *Queue[K, V]) forgetIdle() {
	for range handSpan {
		if q.hand++; q.hand >= q.keys.size {
			q.hand = 0
		}
		for at := q.keys.buckets.at(q.hand); *at != 0; {
			slot := *at
			s := q.keys.at(slot)
			if s.len > 0 || q.isNeeded(s) {
				at = &s.nextInBucket
				continue
			}
			if q.shares != nil {
				*q.keys.shares.at(slot) = nil
			}
			q.keys.remove(slot)
		}
	}
}

// forgetAccounts is called when the queue is empty: no key had to wait for the shares that the
// idle keys have used. So the queue moves on to the round in which their accounts are void.
func (q *Queue[K, V]) forgetAccounts() {
	if q.hasManyIdle() {
		q.keys = keyTable[K]{} // else an empty queue would keep the memory
	}
	if q.reach > q.rounds.current {
		q.rounds.moveTo(q.reach)
		q.rounds.open = false
	}
}
