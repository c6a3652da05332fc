package fairq

// This is about items that leave out of turn, and those behind them, which move up: see Queue.

// Remove takes out the item that the ticket stands for. What is queued behind it under the same key moves up one turn.
// If the item is no longer queued, ok is false.
func (q *Queue[K, V]) Remove(t Ticket) (value V, ok bool) {
	if !q.valid(t) {
		return value, false
	}
	return q.remove(t.node), true
}

// RemoveKey takes out all items of a key and returns them in the order in which they were queued. It is O(items
// returned).
func (q *Queue[K, V]) RemoveKey(key K) []V {
	return q.removeKey(key, hashOf(key))
}

// RemoveNewest takes out the newest item of a key. If it has none, ok is false.
func (q *Queue[K, V]) RemoveNewest(key K) (value V, ok bool) {
	_, s := q.keys.find(key, hashOf(key))
	if s == nil || s.len == 0 {
		return value, false
	}
	return q.remove(s.newest), true
}

// RemoveOldest takes out the oldest item of a key. What is queued behind it under the same key moves up one turn. If it has
// none, ok is false.
func (q *Queue[K, V]) RemoveOldest(key K) (value V, ok bool) {
	_, s := q.keys.find(key, hashOf(key))
	if s == nil || s.len == 0 {
		return value, false
	}
	return q.remove(s.first), true
}

// Evict takes out the newest item of a key whose backlog reaches furthest, counted in rounds: the last item of the furthest
// round. If the queue is empty, ok is false.
func (q *Queue[K, V]) Evict() (key K, value V, ok bool) {
	if q.len == 0 {
		return key, value, false
	}
	s := q.heaviest()
	key = s.key
	return key, q.remove(s.newest), true
}

// EvictOldest takes out the oldest item of the key that Evict would choose. What is queued behind it under that key moves up
// one turn. If the queue is empty, ok is false.
func (q *Queue[K, V]) EvictOldest() (key K, value V, ok bool) {
	if q.len == 0 {
		return key, value, false
	}
	s := q.heaviest()
	key = s.key
	return key, q.remove(s.first), true
}

// heaviest returns a key with the longest backlog. The queue must not be empty.
func (q *Queue[K, V]) heaviest() *keyState[K] {
	return q.keys.at(q.links.at(*q.rounds.at(q.rounds.last)).key & keyMask)
}

// remove takes out the item of a node. The key gives up its last turn.
func (q *Queue[K, V]) remove(node uint32) V {
	if q.waits != nil {
		q.waits.leave(node)
	}
	value := q.takeValue(node)
	row := q.links.at(node).key & keyMask
	s := q.keys.at(row)
	wasFirst := node == s.first
	if wasFirst && s.len > 1 {
		s.first = q.itemAfter(node)
	}
	turn := s.turn
	q.dropTurn(s)
	if turn != node && q.links.at(turn).key&gone != 0 {
		// Unless all turns are older than the oldest item, turn is the end of a run of gone nodes.
		if s.len > 1 && q.links.at(s.first).after != 0 {
			q.shortenGone(turn)
		}
		q.unlink(s, turn)
		q.freeNode(turn)
	}
	if q.release(s, node) && !wasFirst {
		q.leaveGone(node)
	}
	q.len--
	s.len--
	q.deactivate(s, row)
	return value
}

func (q *Queue[K, V]) removeKey(key K, hash uint32) []V {
	_, s := q.keys.find(key, hash)
	if s == nil || s.len == 0 {
		return nil
	}
	values := make([]V, s.len)
	for i := len(values) - 1; i >= 0; i-- {
		values[i] = q.remove(s.newest)
	}
	return values
}

// dropTurn takes a key's last turn out of its round.
func (q *Queue[K, V]) dropTurn(s *keyState[K]) {
	turn := s.turn
	l := q.links.at(turn)
	tail := q.ring(s.last)
	switch end := q.links.at(*tail); {
	case l.after == turn: // the only turn of the round
		*tail = 0
		if s.last > q.rounds.cur && s.last == q.rounds.last {
			q.rounds.retreat()
		}
	case end.after == turn: // the first one
		end.after = l.after
	default:
		q.links.at(l.before).after = l.after
		if *tail == turn {
			*tail = l.before
		} else {
			q.links.at(l.after).before = l.before
		}
	}
	if turn == q.rounds.head {
		q.rounds.head = l.after
	}
	if q.rounds.now == 0 {
		q.rounds.head = 0
	}
	l.after = 0
	s.turn = l.prev
	if l.key&opens == 0 {
		s.count--
		return
	}
	l.key &^= opens
	s.last--
	s.count, s.before = s.before, 0
	if s.count > 0 {
		return
	}
	// Count the turns that the key has in that round, MaxWeight at most. Where weights do not change, this happens once in as
	// many calls.
	s.count = 1
	for t := s.turn; uint32(s.count) < s.len-1 && q.links.at(t).key&opens == 0; t = q.links.at(t).prev {
		s.count++
	}
}

// moveUp does what is to be done when an item leaves at a turn of a key whose items have moved up.
func (q *Queue[K, V]) moveUp(s *keyState[K], node, turn uint32) {
	if s.len > 1 {
		s.first = q.itemAfter(node)
	}
	if node == turn {
		return
	}
	q.release(s, node)
}

// release frees a node whose item has left, unless its turn is still needed; then it is gone.
func (q *Queue[K, V]) release(s *keyState[K], node uint32) (isGone bool) {
	l := q.links.at(node)
	if l.after == 0 {
		q.unlink(s, node)
		q.freeNode(node)
		return false
	}
	l.key |= gone
	q.voidTicket(node)
	return true
}

// passTurn gives the turn of a new node to the first node of the key that has none.
func (q *Queue[K, V]) passTurn(s *keyState[K], node uint32) (turn uint32, l *link) {
	turn = q.links.at(s.turn).next
	n, l := q.links.at(node), q.links.at(turn)
	l.key |= n.key & opens
	n.key &^= opens
	n.after = 0
	return turn, l
}

// itemAfter returns the node of the next item of the key, 0 if there is none.
func (q *Queue[K, V]) itemAfter(node uint32) uint32 {
	next := q.links.at(node).next
	if next != 0 && q.links.at(next).key&gone != 0 {
		next = q.links.at(uint32(*q.tickets.at(next))).next
	}
	return next
}

// leaveGone records that a node behind the key's first item is gone. Runs of such nodes are skipped in one step, because
// the first node of a run names the last one and the other way round, where their tickets were. (They had tickets, or
// they could not have been removed.)
func (q *Queue[K, V]) leaveGone(node uint32) {
	first, last := node, node
	l := q.links.at(node)
	if q.links.at(l.prev).key&gone != 0 {
		first = uint32(*q.tickets.at(l.prev))
	}
	if l.next != 0 && q.links.at(l.next).key&gone != 0 {
		last = uint32(*q.tickets.at(l.next))
	}
	q.markRun(first, last)
}

// shortenGone records that the last node of a run is about to be freed.
func (q *Queue[K, V]) shortenGone(last uint32) {
	if first := uint32(*q.tickets.at(last)); first != last {
		q.markRun(first, q.links.at(last).prev)
	}
}

func (q *Queue[K, V]) markRun(first, last uint32) {
	*q.tickets.at(first) = runEnd | uint64(last)
	*q.tickets.at(last) = runEnd | uint64(first)
}

// unlink takes a node without a turn out of the list of its key. It is not the first one there, unless the key has no
// turn left and the list is forgotten anyway.
func (q *Queue[K, V]) unlink(s *keyState[K], node uint32) {
	if s.len == 1 {
		return
	}
	l := q.links.at(node)
	q.links.at(l.prev).next = l.next
	if l.next == 0 {
		s.newest = l.prev
	} else {
		q.links.at(l.next).prev = l.prev
	}
}
