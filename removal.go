package fairq

import "slices"

// Items that leave out of turn. The items behind them in their key move up: see Queue.

// Remove takes out the item of a ticket. The items behind it under the same key move up one turn.
// If the item has left the queue, ok is false.
func (q *Queue[K, V]) Remove(t Ticket) (value V, ok bool) {
	_, value, ok = q.removeTicket(t)
	return value, ok
}

// removeTicket is Remove, and returns the key.
func (q *Queue[K, V]) removeTicket(t Ticket) (k itemKey[K], value V, ok bool) {
	if !q.valid(t) {
		return k, value, false
	}
	k = q.itemKey(t.node)
	return k, q.remove(t.node), true
}

// RemoveKey takes out all items of a key and returns them in the order in which they were queued.
// It is O(items returned).
func (q *Queue[K, V]) RemoveKey(key K) []V {
	k := hashed(key)
	return q.removeKey(&k)
}

// RemoveOldest takes out the oldest item of a key. The items behind it under the same key move up
// one turn. If it has none, ok is false.
func (q *Queue[K, V]) RemoveOldest(key K) (value V, ok bool) {
	k := hashed(key)
	at := q.find(&k)
	if at.len() == 0 {
		return value, false
	}
	return q.remove(at.state.oldest), true
}

// Evict takes out the newest item of a key whose backlog reaches furthest, counted in rounds: the
// last item of the furthest round. If the queue is empty, ok is false.
func (q *Queue[K, V]) Evict() (key K, value V, ok bool) {
	if q.len == 0 {
		return key, value, false
	}
	k, value := q.evict(keyRef[K]{}, false)
	return k.key, value, true
}

// evict takes out the newest or the oldest item of a heaviest key; the oldest one of the given
// key, if that is among them. The queue must not be empty.
func (q *Queue[K, V]) evict(own keyRef[K], oldest bool) (k itemKey[K], value V) {
	s := q.heaviest()
	if oldest && own.len() > 0 && q.isHeaviest(own) {
		s = own.state
	}
	node := s.newest
	if oldest {
		node = s.oldest
	}
	k = q.itemKey(node) // now, because s is void if the key loses its only item
	return k, q.remove(node)
}

// heaviest returns a key whose backlog reaches furthest. If all items have turns, it is the key
// with the last turn of the furthest round; otherwise a key with the most items for its weight.
// The queue must not be empty.
func (q *Queue[K, V]) heaviest() *keyState[K] {
	if q.lacksTurns() {
		return q.keys.at(q.keepLevels().top())
	}
	return q.keys.at(q.links.at(q.rounds.tailOf(q.rounds.last)).key & keyMask)
}

// isHeaviest reports whether no backlog reaches further than that of a key, which has items.
func (q *Queue[K, V]) isHeaviest(at keyRef[K]) bool {
	if q.lacksTurns() {
		return int(q.level(at.slot, at.state.len)) >= len(q.keepLevels().heads)-1
	}
	return q.lastRound(at.state) == q.rounds.last
}

// lastRound returns the round of a key's last turn.
func (q *Queue[K, V]) lastRound(s *keyState[K]) uint64 {
	switch {
	case !q.costs.areOn():
		return s.round
	case q.costs.oneTurn:
		return q.rounds.current + uint64(q.turnCosts.at(s.lastTurn).rounds-uint32(q.rounds.current))
	}
	return s.round - q.turnCosts.at(s.lastTurn).ahead()
}

// remove takes out the item of a node. The key gives up its last turn, unless another of its items
// has none.
func (q *Queue[K, V]) remove(node uint32) V {
	slot := q.links.at(node).key & keyMask
	s := q.keys.at(slot)
	if q.waitTimes != nil {
		q.waitTimes.leave(node)
		if s.len == 1 {
			q.keys.dropHistogram(slot)
		}
	}
	if q.shares != nil {
		k := *q.keys.shares.at(slot)
		value, first := q.takeShared(slot, node)
		q.shares.Leave(k, first, q.shares.now())
		return value
	}
	value := q.takeValue(node)
	if q.costs.areOn() {
		q.leaveCost(q.keys.costs.at(slot), node)
		q.setLevel(slot, s.len-1)
	}
	wasFirst := node == s.oldest
	if wasFirst && s.len > 1 {
		s.oldest = q.itemAfter(node)
	}
	turn := s.lastTurn
	hasAll := !q.costs.oneTurn || s.len == 1 // the key has as many turns as items
	if hasAll {
		q.dropTurn(s)
	}
	if hasAll && turn != node && q.links.at(turn).key&itemGone != 0 {
		// This node has lost its item and now its turn: it is free. It ends a run if it is behind
		// the oldest item's node, which then has a turn, because nodes with turns come first.
		if s.len > 1 && q.links.at(s.oldest).nextTurn != 0 {
			q.shortenRun(turn)
		}
		q.unlink(s, turn)
		q.freeNode(turn)
	}
	if q.release(s, node) && !wasFirst {
		q.addToRun(node)
	}
	q.len--
	s.len--
	if s.len == 0 {
		q.deactivate(s, slot)
	}
	q.tidy()
	return value
}

func (q *Queue[K, V]) removeKey(k *itemKey[K]) []V {
	at := q.find(k)
	if at.len() == 0 {
		return nil
	}
	values := make([]V, at.len())
	for i := range slices.Backward(values) {
		values[i] = q.remove(at.state.newest)
	}
	return values
}

// dropTurn takes a key's last turn out of its round. The node stays in the list of its key.
func (q *Queue[K, V]) dropTurn(s *keyState[K]) {
	turn, round := s.lastTurn, q.lastRound(s)
	l := q.links.at(turn)
	tail := q.ring(round)
	switch end := q.links.at(*tail); {
	case l.nextTurn == turn: // the only turn of the round
		*tail = 0
		if round > q.rounds.current {
			q.rounds.end(round)
		}
	case end.nextTurn == turn: // the first one
		end.nextTurn = l.nextTurn
	default:
		q.links.at(l.prevTurn).nextTurn = l.nextTurn
		if *tail == turn {
			*tail = l.prevTurn
		} else {
			q.links.at(l.nextTurn).prevTurn = l.prevTurn
		}
	}
	if turn == q.rounds.head {
		q.rounds.head = l.nextTurn
	}
	if q.rounds.tail == 0 {
		q.rounds.head = 0
	}
	l.nextTurn = 0
	s.lastTurn = l.prevItem
	isFirst := l.key&firstOfRound != 0
	l.key &^= firstOfRound
	switch {
	case q.costs.oneTurn:
		return // the key pays only when the turn is served
	case q.costs.areOn():
		s.round, s.used = q.turnCosts.at(turn).before(round)
		return
	case !isFirst:
		s.used--
		return
	}
	s.round--
	s.used, s.turnsBefore = uint32(s.turnsBefore), 0
	if s.used > 0 {
		return
	}
	// The number of turns that the key has in its new last round is not known, so count them: at most
	// MaxWeight. If the weight stays the same, the next count comes only after as many calls.
	s.used = 1
	t := s.lastTurn
	for ; s.used < s.len-1 && q.links.at(t).key&firstOfRound == 0; t = q.links.at(t).prevItem {
		s.used++
	}
}

// moveUp is the part of pop for a key that has items without a turn. Either some items have moved
// up after a removal, so that an item leaves at another node's turn, or, with SettleCosts, only
// the first item has a turn.
func (q *Queue[K, V]) moveUp(s *keyState[K], slot, node, turn uint32) {
	if s.len > 1 {
		s.oldest = q.itemAfter(node)
	}
	if node != turn {
		q.release(s, node)
	}
	if !q.costs.oneTurn || s.len == 1 {
		return
	}
	// The key's next item gets its turn, in this round if the key has some of its share left. It was
	// queued already, so it need not wait for the next round like a newcomer.
	s.set(s.account().Next(0, q.keys.costs.at(slot).share))
	q.giveTurn(s, s.oldest, turnOf(s.round, q.rounds.current))
}

// release frees a node whose item has left. If the node holds a turn, release only marks the item
// as gone.
func (q *Queue[K, V]) release(s *keyState[K], node uint32) (isGone bool) {
	l := q.links.at(node)
	if l.nextTurn == 0 {
		q.unlink(s, node)
		q.freeNode(node)
		return false
	}
	l.key |= itemGone
	q.voidTicket(node)
	return true
}

// itemAfter returns the node of the key's next item, 0 if there is none. It skips a run in one
// step.
func (q *Queue[K, V]) itemAfter(node uint32) uint32 {
	next := q.links.at(node).nextItem
	if next != 0 && q.links.at(next).key&itemGone != 0 {
		next = q.links.at(uint32(*q.tickets.at(next))).nextItem
	}
	return next
}

// addToRun records that the item of a node is gone. The node is behind the key's oldest item.
// Neighbours without items are a run. The first and the last node of a run name each other, so
// that itemAfter skips the run in one step. The names are stored in place of the tickets of these
// nodes, because only items with tickets can be removed from there.
func (q *Queue[K, V]) addToRun(node uint32) {
	first, last := node, node
	l := q.links.at(node)
	if q.links.at(l.prevItem).key&itemGone != 0 {
		first = uint32(*q.tickets.at(l.prevItem))
	}
	if l.nextItem != 0 && q.links.at(l.nextItem).key&itemGone != 0 {
		last = uint32(*q.tickets.at(l.nextItem))
	}
	q.markRun(first, last)
}

// shortenRun records that the last node of a run is about to be freed.
func (q *Queue[K, V]) shortenRun(last uint32) {
	if first := uint32(*q.tickets.at(last)); first != last {
		q.markRun(first, q.links.at(last).prevItem)
	}
}

func (q *Queue[K, V]) markRun(first, last uint32) {
	*q.tickets.at(first) = runEnd | uint64(last)
	*q.tickets.at(last) = runEnd | uint64(first)
}

// unlink takes a node without a turn out of the list of its key. The first node of the list always
// has a turn, except when the key's last item leaves: then the whole list is void.
func (q *Queue[K, V]) unlink(s *keyState[K], node uint32) {
	if s.len == 1 {
		return
	}
	l := q.links.at(node)
	q.links.at(l.prevItem).nextItem = l.nextItem
	if l.nextItem == 0 {
		s.newest = l.prevItem
	} else {
		q.links.at(l.nextItem).prevItem = l.prevItem
	}
}
