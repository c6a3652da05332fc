package fairq

// Idle keys have no items, and the queue remembers them nevertheless: for what they have used of
// the rounds to come, so that a key gets no more by pushing its next item when its last one has
// left; under ThisRound, for having been served in the current one; for what was learned of
// their costs; and with ShareTime to be found faster. They stay where they are in the table. If
// there are many, each call looks at some keys for those that can be forgotten, by a hand that goes
// round the table (Corbató's clock, 1968): so a key that comes and goes costs no more than one that
// stays.

const (
	idleShare = 3       // idle keys for each active one that may stay without a reason
	maxIdle   = 1 << 8  // as many more may
	maxKnown  = 1 << 14 // the same, if costs are learned
	handSpan  = 4       // buckets that a call looks at: one or two keys, two as long as the table grows
)

// isNeeded tells whether a key was served in the current round, or has used some of its share, or
// of later rounds.
func (q *Queue[K, V]) isNeeded(s *keyState[K]) bool {
	return s.round > q.rounds.current ||
		q.rounds.open && (s.servedRound == q.rounds.current || q.costs.areOn() && s.round == q.rounds.current)
}

// hasManyIdle tells whether there are more idle keys than may stay: as many as are allowed, beside
// those for each active one.
func (q *Queue[K, V]) hasManyIdle(allowed int) bool {
	return int(q.keys.count) > (1+idleShare)*q.active+allowed
}

// rest makes a key idle if it has no items left. Whether it has some is as good as random, so no
// branch depends on it: all is read first, and what changes is a choice between two values.
func (q *Queue[K, V]) rest(s *keyState[K]) {
	active, reach := q.active, q.reach
	reached := max(reach, s.round)
	if s.len == 0 {
		active, reach = active-1, reached
	}
	q.active, q.reach = active, reach
}

// tidy is called when an item has left. It does something if the queue is empty, or has many idle
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
	if q.hasManyIdle(maxIdle) {
		q.forgetIdle()
	}
}

// forgetIdle looks at the next few keys of the table, and forgets those that are idle and not
// needed. A call adds one key at most, and looks at two as long as there are ever more of them. Of
// whose costs something was learned is forgotten when the hand passes again, so it looks at twice
// as many.
func (q *Queue[K, V]) forgetIdle() {
	span, learns := handSpan, q.costs.prior > 0
	if learns {
		if !q.hasManyIdle(maxKnown) {
			return
		}
		span *= 2
	}
	for range span {
		if q.hand++; q.hand >= q.keys.size {
			q.hand = 0
		}
		for at := q.keys.buckets.at(q.hand); *at != 0; {
			slot := *at
			s := q.keys.at(slot)
			switch {
			case s.len > 0 || q.isNeeded(s):
			case learns && !s.passed:
				s.passed = true
			default:
				if q.shares != nil {
					*q.keys.shares.at(slot) = nil
				}
				q.keys.remove(slot)
				continue
			}
			at = &s.nextInBucket
		}
	}
}

// forgetAccounts is called when the queue is empty: nobody has waited for what the idle keys have
// used. So the queue moves on to where their accounts are void.
func (q *Queue[K, V]) forgetAccounts() {
	if q.hasManyIdle(maxIdle) {
		// A round that ever new keys join would never be over, nor would a queue that is drained
		// again and again give its memory back. So the round ends here.
		q.rounds.open = false
		if q.costs.prior == 0 {
			q.keys = keyTable[K]{}
		}
	}
	if q.reach > q.rounds.current {
		q.rounds.moveTo(q.reach)
		q.rounds.open = false
	}
}
