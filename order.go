package fairq

import (
	"iter"

	"github.com/fairq/fairq/internal/account"
)

// Position returns how many items leave before the one that the ticket stands for. If that is no
// longer queued, ok is false. It is O(items that leave before).
func (q *Queue[K, V]) Position(t Ticket) (position int, ok bool) {
	if !q.valid(t) {
		return 0, false
	}
	for _, node := range q.order(nil) {
		if node == t.node {
			return position, true
		}
		position++
	}
	panic("fairq: a queued item has no turn")
}

// Order iterates over what is queued, in the order in which it will leave if nothing else is
// pushed or removed. The queue must not be changed meanwhile.
func (q *Queue[K, V]) Order() iter.Seq[UpcomingItem[K, V]] { return q.OrderWith(nil) }

// OrderWith is Order for a queue with SettleCosts that holds only the next item of a key, because its
// caller pushes another one whenever that is about to be popped. When such an item was yielded,
// next tells whether another one follows, and its Cost.
func (q *Queue[K, V]) OrderWith(next func(V) (cost int64, ok bool)) iter.Seq[UpcomingItem[K, V]] {
	return func(yield func(UpcomingItem[K, V]) bool) {
		for round, node := range q.order(next) {
			item := UpcomingItem[K, V]{
				Key: q.keys.at(q.links.at(node).key & keyMask).key, Item: *q.values.at(node), Round: int(round - q.rounds.current),
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

// order iterates over the nodes of all items in the order in which they will leave, with the
// rounds in which they will. A turn delivers the oldest item of its key that no earlier turn
// delivers. As long as no item of the key has moved up, that is the one of the turn's own node.
// Only orderAhead asks what is next.
func (q *Queue[K, V]) order(next func(V) (cost int64, ok bool)) iter.Seq2[uint64, uint32] {
	if q.shares != nil {
		return q.orderShared
	}
	if q.costs.oneTurn {
		return q.orderAhead(next)
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

// Where keys have one turn ahead, the order of their other items follows from what happens until
// these get theirs.

// forecast is what will be of a key.
type forecast struct {
	account.Account
	item uint32 // the next one that leaves
	cost uint32 // of that
	len  uint32
}

// orderAhead is order for a queue whose keys have one turn ahead.
func (q *Queue[K, V]) orderAhead(next func(V) (cost int64, ok bool)) iter.Seq2[uint64, uint32] {
	return func(yield func(uint64, uint32) bool) {
		keys := map[uint32]*forecast{}
		given := map[uint64][]uint32{}                                     // turns that keys will have been given, as slots of keys, by round
		later := rounds{current: q.rounds.current, last: q.rounds.current} // these rounds, each with one turn
		serve := func(round uint64, slot uint32) bool {
			k := keys[slot]
			if k == nil {
				s := q.keys.at(slot)
				k = &forecast{s.account(), s.oldest, q.turnCosts.at(s.oldest).cost, s.len}
				keys[slot] = k
			}
			if k.Round <= round { // else it owes further rounds, and is not served
				if !yield(round, k.item) {
					return false
				}
				if !q.foresee(slot, k, next) {
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
			for i := 0; i < len(given[round]); i++ { // it may become longer
				if !serve(round, given[round][i]) {
					return
				}
			}
			delete(given, round)
			switch {
			case round < q.rounds.last && (round == later.last || q.rounds.after(round) < later.after(round)):
				later.moveTo(q.rounds.after(round))
			case round < later.last:
				later.advance()
			default:
				return
			}
		}
	}
}

// foresee has a key pay for its item, and gives the next one its turn. It returns false if there is
// none.
func (q *Queue[K, V]) foresee(slot uint32, k *forecast, next func(V) (cost int64, ok bool)) bool {
	c := q.keys.costs.at(slot)
	k.Account = k.Pay(uint64(k.cost), c.share).Next(0, c.share)
	switch {
	case k.len > 1:
		k.len--
		k.item = q.itemAfter(k.item)
		k.cost = q.turnCosts.at(k.item).cost
	case next == nil:
		return false
	default:
		cost, ok := next(*q.values.at(k.item))
		if k.cost = uint32(cost); !ok {
			return false
		}
	}
	if q.costs.prior > 0 {
		k.cost = q.costs.estimate(c)
	}
	return true
}
