package fairq

import (
	"fmt"
	"math/bits"
)

// check walks the whole queue, and returns the first broken invariant.
func (q *Queue[K, V]) check() error {
	seen := map[uint32]bool{} // nodes
	turns := map[uint32]int{} // by key
	owned := map[uint32][]uint32{}
	rounds := map[uint32]map[uint64]int{}
	if q.rounds.last < q.rounds.current {
		return fmt.Errorf("the furthest round %d is before the current one %d",
			q.rounds.last, q.rounds.current)
	}
	if err := q.rounds.check(!q.costs.areOn()); err != nil {
		return err
	}
	for r := range q.rounds.all() {
		tail := *q.ring(r)
		first := q.links.at(tail).nextTurn
		for n, prev := first, tail; ; {
			if seen[n] {
				return fmt.Errorf("node %d is in two places", n)
			}
			seen[n] = true
			l := q.links.at(n)
			if n != first && l.prevTurn != prev {
				return fmt.Errorf("round %d: prevTurn of node %d is %d, not %d", r, n, l.prevTurn, prev)
			}
			slot := l.key & keyMask
			if opens := l.key&firstOfRound != 0; !q.costs.areOn() && opens != (rounds[slot][r] == 0) &&
				!(r == q.rounds.current && !opens) {
				return fmt.Errorf("round %d: node %d of key %d is its turn %d there, opens is %v", r, n, slot,
					rounds[slot][r], opens)
			}
			if rounds[slot] == nil {
				rounds[slot] = map[uint64]int{}
			}
			rounds[slot][r]++
			turns[slot]++
			owned[slot] = append(owned[slot], n)
			if n == tail {
				break
			}
			prev, n = n, l.nextTurn
		}
	}
	items, keys, active, nodes := 0, 0, 0, map[uint32]bool{}
	for b := range q.keys.size {
		for slot := *q.keys.buckets.at(b); slot != 0; slot = q.keys.at(slot).nextInBucket {
			if at := q.keys.bucket(q.keys.at(slot).hash); at != q.keys.buckets.at(b) {
				return fmt.Errorf("key %d is in a wrong bucket", slot)
			}
			keys++
			s := q.keys.at(slot)
			if s.len == 0 {
				continue // an idle key, see checkIdle
			}
			active++
			want := s.len
			switch {
			case q.shares != nil:
				want = 0
			case q.costs.oneTurn:
				want = 1
			}
			if turns[slot] != int(want) {
				return fmt.Errorf("key %d has %d turns and %d items", slot, turns[slot], s.len)
			}
			if q.shares != nil && s.lastTurn != s.newest {
				return fmt.Errorf("key %d: the last turn is %d, not %d", slot, s.lastTurn, s.newest)
			}
			if r := q.lastRound(s); r > q.rounds.current && rounds[slot][r] == 0 {
				return fmt.Errorf("key %d has no turns in its last round %d", slot, r)
			}
			if n := rounds[slot][s.round]; !q.costs.areOn() && s.round > q.rounds.current &&
				int(s.used) != n {
				return fmt.Errorf("key %d has %d turns in its last round %d, not %d", slot, n, s.round, s.used)
			}
			n, err := q.checkList(slot, s, owned[slot], nodes)
			if err != nil {
				return fmt.Errorf("key %d: %w", slot, err)
			}
			items += n
		}
	}
	for n := range seen {
		if !nodes[n] {
			return fmt.Errorf("the turn of node %d is in no list", n)
		}
	}
	if items != q.len {
		return fmt.Errorf("len is %d, there are %d items", q.len, items)
	}
	if keys != int(q.keys.count) || active != q.active {
		return fmt.Errorf("%d keys, %d of them with items; counted %d and %d", q.keys.count,
			q.active, keys, active)
	}
	if q.keys.size > 0 && (q.keys.size-1 > q.keys.mask || q.keys.size-1 <= q.keys.mask>>1) {
		return fmt.Errorf("the mask of %d buckets is %#x", q.keys.size, q.keys.mask)
	}
	if err := q.checkIdle(keys - q.active); err != nil {
		return err
	}
	if err := q.checkForgotten(); err != nil {
		return err
	}
	if err := q.checkCosts(); err != nil {
		return err
	}
	if err := q.checkWaits(); err != nil {
		return err
	}
	if keys == 0 && q.keys.slots.chunkCount > 1 || items == 0 && q.nodes.chunkCount > 1 {
		return fmt.Errorf("an empty queue keeps %d chunks of keys and %d of nodes",
			q.keys.slots.chunkCount, q.nodes.chunkCount)
	}
	if err := q.nodes.check(len(nodes)); err != nil {
		return fmt.Errorf("nodes: %w", err)
	}
	if err := q.keys.slots.check(keys); err != nil {
		return fmt.Errorf("keys: %w", err)
	}
	return nil
}

// checkList walks the list of a key, whose turns are owned, in this order.
func (q *Queue[K, V]) checkList(
	slot uint32, s *keyState[K], owned []uint32, nodes map[uint32]bool,
) (items int, err error) {
	first := s.oldest
	if len(owned) > 0 {
		first = owned[0]
	}
	run := []uint32{} // gone nodes behind the first item
	begun, i := false, 0
	for n, prev := first, uint32(0); n != 0; {
		l := q.links.at(n)
		if nodes[n] {
			return 0, fmt.Errorf("node %d is in two places", n)
		}
		nodes[n] = true
		if n != first && l.prevItem != prev {
			return 0, fmt.Errorf("prevItem of node %d is %d, not %d", n, l.prevItem, prev)
		}
		if l.key&keyMask != slot {
			return 0, fmt.Errorf("node %d belongs to key %d", n, l.key&keyMask)
		}
		if l.nextTurn != 0 {
			if i >= len(owned) || owned[i] != n {
				return 0, fmt.Errorf("turn %d of the list, node %d, is another one by the rounds", i, n)
			}
			i++
			if i == len(owned) && s.lastTurn != n {
				return 0, fmt.Errorf("the last turn is %d, not %d", n, s.lastTurn)
			}
		} else if i < len(owned) {
			return 0, fmt.Errorf("node %d has no turn, and is before nodes that have one", n)
		}
		if l.key&itemGone == 0 {
			items++
			if !begun && n != s.oldest {
				return 0, fmt.Errorf("the first item is %d, not %d", n, s.oldest)
			}
			begun = true
		} else if l.nextTurn == 0 {
			return 0, fmt.Errorf("node %d has neither turn nor item", n)
		}
		if l.key&itemGone != 0 && begun {
			run = append(run, n)
		} else if len(run) > 0 {
			a, b := run[0], run[len(run)-1]
			if *q.tickets.at(a) != runEnd|uint64(b) || *q.tickets.at(b) != runEnd|uint64(a) {
				return 0, fmt.Errorf("the run %d..%d is not marked", a, b)
			}
			run = run[:0]
		}
		if l.nextItem == 0 && s.newest != n {
			return 0, fmt.Errorf("the newest item is %d, not %d", n, s.newest)
		}
		prev, n = n, l.nextItem
	}
	if items != int(s.len) || len(run) > 0 {
		return 0, fmt.Errorf("%d items are in the list, not %d; gone at its end: %v", items, s.len, run)
	}
	return items, nil
}

// check compares the bitmaps of the rounds with their rings.
func (r *rounds) check(consecutive bool) error {
	furthest := r.current
	for i, c := range r.dir {
		if c == nil {
			continue
		}
		number := r.current>>roundBits + (uint64(i)-r.current>>roundBits)&uint64(len(r.dir)-1)
		used := 0
		for at, ring := range c.rings {
			round := number<<roundBits | uint64(at)
			if has := c.used[at>>6]>>(at&63)&1 == 1; has != (ring != 0) || has && round <= r.current {
				return fmt.Errorf("round %d, current is %d: its bit is %v, its ring %d", round,
					r.current, has, ring)
			}
			if ring != 0 {
				furthest = max(furthest, round)
				used++
			}
		}
		if used == 0 && number != r.current>>roundBits {
			return fmt.Errorf("chunk %d has no turns", number)
		}
	}
	if furthest != r.last {
		return fmt.Errorf("the furthest round is %d, not %d", furthest, r.last)
	}
	n := 0
	for round := range r.all() {
		if round > r.current {
			n++
		}
	}
	if consecutive && n != int(r.last-r.current) {
		return fmt.Errorf("%d rounds of %d..%d have turns", n, r.current+1, r.last)
	}
	return nil
}

func (q *Queue[K, V]) checkIdle(want int) error {
	if idle := int(q.keys.count) - q.active; idle != want {
		return fmt.Errorf("%d keys are idle, counted %d", want, idle)
	}
	for b := range q.keys.size {
		for slot := *q.keys.buckets.at(b); slot != 0; slot = q.keys.at(slot).nextInBucket {
			if s := q.keys.at(slot); s.len == 0 && s.round > max(q.reach, q.rounds.current) {
				return fmt.Errorf("idle key %d has used round %d, none beyond %d was expected",
					slot, s.round, q.reach)
			}
		}
	}
	return nil
}

// checkCosts compares the costs of a key's items, and all of them, with their sums.
func (q *Queue[K, V]) checkCosts() error {
	if !q.costs.areOn() {
		return nil
	}
	byKey, all := map[uint32]uint64{}, uint64(0)
	for _, node := range q.order(true) {
		cost := uint64(q.turnCosts.at(node).cost)
		byKey[q.links.at(node).key&keyMask] += cost
		all += cost
	}
	for slot, cost := range byKey {
		if c := q.keys.costs.at(slot).queued; c != cost {
			return fmt.Errorf("the items of key %d cost %d, not %d", slot, cost, c)
		}
	}
	if all != q.costs.queued {
		return fmt.Errorf("all items cost %d, not %d", all, q.costs.queued)
	}
	return nil
}

// checkForgotten makes sure that nothing is left of keys and items that are gone.
func (q *Queue[K, V]) checkForgotten() error {
	used, zero := map[uint32]bool{}, keyState[K]{}
	for b := range q.keys.size {
		for slot := *q.keys.buckets.at(b); slot != 0; slot = q.keys.at(slot).nextInBucket {
			if used[slot] = true; q.keys.at(slot).len == 0 && q.keys.histogram(slot) != nil {
				return fmt.Errorf("key %d has no items, and a histogram", slot)
			}
		}
	}
	for slot, s := range q.keys.states.all() {
		if !used[slot] && (*s != zero || q.keys.histogram(slot) != nil) {
			return fmt.Errorf("key %d is gone, and this is left: %+v", slot, *s)
		}
	}
	for i, chunk := range q.keys.buckets.far {
		if chunk != nil && i<<chunkBits >= int(q.keys.size) {
			return fmt.Errorf("chunk %d is left of %d buckets", i, q.keys.size)
		}
	}
	for what, stray := range map[string]bool{
		"links": q.links.strays(&q.nodes), "values": q.values.strays(&q.nodes),
		"tickets":    q.tickets.strays(&q.nodes),
		"stamps":     q.waitTimes != nil && q.waitTimes.stamps.strays(&q.nodes),
		"turns":      q.costs.areOn() && q.turnCosts.strays(&q.nodes),
		"histograms": q.keys.histograms.strays(&q.keys.slots),
		"costs":      q.keys.costs.strays(&q.keys.slots),
		"states":     q.keys.states.strays(&q.keys.slots),
	} {
		if stray {
			return fmt.Errorf("a chunk is gone, and its %s are left", what)
		}
	}
	if n := q.keys.nan; n != 0 && (!used[n] || q.keys.at(n).key == q.keys.at(n).key) {
		return fmt.Errorf("key %d is not in use, or equal to itself", n)
	}
	return nil
}

// strays reports whether the column keeps a chunk that the allocator has given back.
func (c *column[T]) strays(a *allocator) bool {
	for i, chunk := range c.far {
		if chunk != nil && a.chunks[i] == nil {
			return true
		}
	}
	return false
}

// checkWaits walks the list of all items by age.
func (q *Queue[K, V]) checkWaits() error {
	if q.waitTimes == nil {
		return nil
	}
	n, older := 0, uint32(0)
	for node := q.waitTimes.oldest; node != 0; node = q.waitTimes.stamps.at(node).newer {
		if s := q.waitTimes.stamps.at(node); s.older != older ||
			q.waitTimes.age(node) > q.waitTimes.age(q.waitTimes.oldest) {
			return fmt.Errorf("node %d is behind %d in the list by age: %+v", node, older, *s)
		}
		older = node
		n++
	}
	if n != q.len || q.waitTimes.newest != older {
		return fmt.Errorf("%d items are in the list by age, up to %d; there are %d, up to %d", n, older,
			q.len, q.waitTimes.newest)
	}
	return nil
}

// check compares the free slots with the number of slots in use.
func (a *allocator) check(want int) error {
	used, open, live := 0, 0, 0
	for i, c := range a.chunks {
		if c == nil {
			if i < a.missing {
				return fmt.Errorf("chunk %d is missing below %d", i, a.missing)
			}
			continue
		}
		free := 0
		live++
		for w, word := range c.free {
			free += bits.OnesCount64(word)
			if (word != 0) != (c.freeWords>>w&1 == 1) {
				return fmt.Errorf("chunk %d: word %d is %#x, words is %#x", i, w, word, c.freeWords)
			}
		}
		size := chunkSlots
		if i == 0 {
			size = int(a.firstLen)
		}
		if int(c.used)+free != size || (i > 0 && c.used == 0) != (c == a.emptyChunk) {
			return fmt.Errorf("chunk %d: %d used and %d free of %d", i, c.used, free, size)
		}
		used += int(c.used)
		if c.freeWords != 0 {
			open++
		}
	}
	if live != a.chunkCount || a.emptyChunk != nil && a.chunks[a.emptyChunk.number] != a.emptyChunk {
		return fmt.Errorf("%d chunks, counted %d; the empty one is %v", a.chunkCount, live, a.emptyChunk)
	}
	for c := a.withFree; c != nil; c = c.next {
		open--
	}
	if open != 0 {
		return fmt.Errorf("the list of chunks with free slots has %d too few", open)
	}
	if len(a.chunks) > 0 {
		used-- // slot 0
	}
	used -= int(a.cached)
	if used != want {
		return fmt.Errorf("%d rows are in use, %d are needed", used, want)
	}
	return nil
}
