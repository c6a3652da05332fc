package fairq

import (
	"iter"

	"github.com/fairq/fairq/internal/account"
)

// Position returns how many items leave before the item of a ticket. If the item has left the
// queue, ok is false. Position is O(position).
func (q *Queue[K, V]) Position(t Ticket) (position int, ok bool) {
	if !q.valid(t) {
		return 0, false
	}
	for _, node := range q.order(true) {
		if node == t.node {
			return position, true
		}
		position++
	}
	panic("fairq: a queued item has no turn")
}

// Order iterates over the items in the order in which they will leave if nothing else is pushed or
// removed. The queue must not change during the iteration.
func (q *Queue[K, V]) Order() iter.Seq[UpcomingItem[K, V]] {
	return func(yield func(UpcomingItem[K, V]) bool) {
		for round, node := range q.order(false) {
			item := UpcomingItem[K, V]{
				Key: q.itemKey(node).key, Item: *q.values.at(node), Round: int(round - q.rounds.current),
			}
			if q.costs.areOn() {
				item.Cost = uint64(q.turnCosts.at(node).cost)
			}
			if w := q.waitTimes; w != nil {
				item.Age = w.age(node)
			}
			if !yield(item) {
				return
			}
		}
	}
}

// order iterates over the rounds and the nodes of items in the order in which they will leave.
// Unless all is true, it leaves out the items that a limit of their key keeps back.
//
// A turn delivers the oldest item of its key that no earlier turn delivers. While no item of the
// key has moved up, that is the item of the turn's own node.
func (q *Queue[K, V]) order(all bool) iter.Seq2[uint64, uint32] {
	if q.shares != nil {
		return q.orderShared(all)
	}
	if q.costs.oneTurn {
		return q.orderAhead
	}
	return func(yield func(uint64, uint32) bool) {
		moved := map[uint32]uint32{} // of keys whose items have moved up: the next item
		for round := range q.rounds.all() {
			for turn := range q.turns(round) {
				node, slot := turn, q.links.at(turn).key&keyMask
				if s := q.keys.at(slot); s.lastTurn != s.newest {
					next, ok := moved[slot]
					if !ok {
						next = s.oldest
					}
					node, moved[slot] = next, q.itemAfter(next)
				}
				if !yield(round, node) {
					return
				}
			}
		}
	}
}

// turns iterates over the turns of a round.
func (q *Queue[K, V]) turns(round uint64) iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		tail := q.rounds.tailOf(round)
		if tail == 0 {
			return
		}
		turn := q.links.at(tail).nextTurn
		if round == q.rounds.current {
			turn = q.rounds.head // nextTurn of its tail may be stale, see ring
		}
		for ; yield(turn) && turn != tail; turn = q.links.at(turn).nextTurn {
		}
	}
}

// With SettleCosts only the first item of a key has a turn; the others have no round yet. So
// orderAhead plays the future pops: each one pays for its item and gives the key its next turn.

// forecast is the future state of a key.
type forecast struct {
	account.Account
	item uint32 // the next item
	cost uint32 // of item
	len  uint32
}

// orderAhead is order for a queue whose keys have one turn ahead.
func (q *Queue[K, V]) orderAhead(yield func(uint64, uint32) bool) {
	keys := map[uint32]*forecast{}
	given := map[uint64][]uint32{} // by round, the slots of keys that will get a turn in it

	// later has the same rounds, in order.
	later := rounds{current: q.rounds.current, last: q.rounds.current}
	serve := func(round uint64, slot uint32) bool {
		k := keys[slot]
		if k == nil {
			s := q.keys.at(slot)
			k = &forecast{s.account(), s.oldest, q.turnCosts.at(s.oldest).cost, s.len}
			keys[slot] = k
		}
		if k.Round <= round { // a later Round means that the key pays off a debt first
			if !yield(round, k.item) {
				return false
			}
			if !q.foresee(slot, k) {
				return true
			}
		}
		turn := turnOf(k.Round, round)
		if turn > round {
			*later.add(turn) = 1
		}
		given[turn] = append(given[turn], slot)
		return true
	}
	for round := q.rounds.current; ; round = later.current {
		for turn := range q.turns(round) {
			if !serve(round, q.links.at(turn).key&keyMask) {
				return
			}
		}
		for i := 0; i < len(given[round]); i++ { // serve may append to it
			if !serve(round, given[round][i]) {
				return
			}
		}
		delete(given, round)
		switch {
		case round < q.rounds.last &&
			(round == later.last || q.rounds.after(round) < later.after(round)):
			later.moveTo(q.rounds.after(round))
		case round < later.last:
			later.advance()
		default:
			return
		}
	}
}

// foresee makes a key pay for its item, and moves on to its next item. It returns false if there
// is none.
func (q *Queue[K, V]) foresee(slot uint32, k *forecast) bool {
	c := q.keys.costs.at(slot)
	k.Account = k.Pay(uint64(k.cost), c.share).Next(0, c.share)
	if k.len == 1 {
		return false
	}
	k.len--
	k.item = q.itemAfter(k.item)
	k.cost = q.turnCosts.at(k.item).cost
	return true
}
