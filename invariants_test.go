package fairq

import (
	"fmt"
	"math/bits"
)

// check walks the whole queue and returns the first thing that is not as it must be.
func (q *Queue[K, V]) check() error {
	seen := map[uint32]bool{} // nodes
	turns := map[uint32]int{} // by key
	owned := map[uint32][]uint32{}
	rounds := map[uint32]map[uint64]int{}
	if q.rounds.last < q.rounds.cur {
		return fmt.Errorf("the furthest round %d is before the current one %d", q.rounds.last, q.rounds.cur)
	}
	for r := q.rounds.cur; r <= q.rounds.last; r++ {
		tail := *q.ring(r)
		if tail == 0 {
			if r > q.rounds.cur {
				return fmt.Errorf("round %d of %d..%d is empty", r, q.rounds.cur, q.rounds.last)
			}
			continue
		}
		first := q.links.at(tail).after
		for n, prev := first, tail; ; {
			if seen[n] {
				return fmt.Errorf("node %d is in two places", n)
			}
			seen[n] = true
			l := q.links.at(n)
			if n != first && l.before != prev {
				return fmt.Errorf("round %d: before of node %d is %d, not %d", r, n, l.before, prev)
			}
			row := l.key & keyMask
			if opens := l.key&opens != 0; opens != (rounds[row][r] == 0) && !(r == q.rounds.cur && !opens) {
				return fmt.Errorf("round %d: node %d of key %d is its turn %d there, opens is %v", r, n, row, rounds[row][r], opens)
			}
			if rounds[row] == nil {
				rounds[row] = map[uint64]int{}
			}
			rounds[row][r]++
			turns[row]++
			owned[row] = append(owned[row], n)
			if n == tail {
				break
			}
			prev, n = n, l.after
		}
	}
	items, keys, nodes := 0, 0, map[uint32]bool{}
	for b := range q.keys.size {
		for row := *q.keys.buckets.at(b); row != 0; row = q.keys.at(row).chain {
			if at := q.keys.bucket(q.keys.at(row).hash); at != q.keys.buckets.at(b) {
				return fmt.Errorf("key %d is in a wrong bucket", row)
			}
			keys++
			s := q.keys.at(row)
			if s.len == 0 {
				continue // it rests, see checkResting
			}
			if turns[row] != int(s.len) {
				return fmt.Errorf("key %d has %d turns and %d items", row, turns[row], s.len)
			}
			if s.last > q.rounds.cur && int(s.count) != rounds[row][s.last] {
				return fmt.Errorf("key %d has %d turns in its last round %d, not %d", row, rounds[row][s.last], s.last, s.count)
			}
			n, err := q.checkList(row, s, owned[row], nodes)
			if err != nil {
				return fmt.Errorf("key %d: %w", row, err)
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
	if keys != int(q.keys.count) || len(turns) != q.active {
		return fmt.Errorf("%d keys, %d of them with items; counted %d and %d", q.keys.count, q.active, keys, len(turns))
	}
	if q.keys.size > 0 && (q.keys.size-1 > q.keys.mask || q.keys.size-1 <= q.keys.mask>>1) {
		return fmt.Errorf("the mask of %d buckets is %#x", q.keys.size, q.keys.mask)
	}
	if err := q.checkResting(keys - q.active); err != nil {
		return err
	}
	if err := q.checkForgotten(); err != nil {
		return err
	}
	if err := q.checkWaits(); err != nil {
		return err
	}
	if keys == 0 && q.keys.rows.live > 1 || items == 0 && q.nodes.live > 1 {
		return fmt.Errorf("an empty queue keeps %d chunks of keys and %d of nodes", q.keys.rows.live, q.nodes.live)
	}
	if err := q.nodes.check(len(nodes)); err != nil {
		return fmt.Errorf("nodes: %w", err)
	}
	if err := q.keys.rows.check(keys); err != nil {
		return fmt.Errorf("keys: %w", err)
	}
	return nil
}

// checkList walks the list of a key, whose turns are owned, in this order.
func (q *Queue[K, V]) checkList(row uint32, s *keyState[K], owned []uint32, nodes map[uint32]bool) (items int, err error) {
	first := owned[0]
	run := []uint32{} // gone nodes behind the first item
	begun, i := false, 0
	for n, prev := first, uint32(0); n != 0; {
		l := q.links.at(n)
		if nodes[n] {
			return 0, fmt.Errorf("node %d is in two places", n)
		}
		nodes[n] = true
		if n != first && l.prev != prev {
			return 0, fmt.Errorf("prev of node %d is %d, not %d", n, l.prev, prev)
		}
		if l.key&keyMask != row {
			return 0, fmt.Errorf("node %d belongs to key %d", n, l.key&keyMask)
		}
		if l.after != 0 {
			if i >= len(owned) || owned[i] != n {
				return 0, fmt.Errorf("turn %d of the list, node %d, is another one by the rounds", i, n)
			}
			i++
			if i == len(owned) && s.turn != n {
				return 0, fmt.Errorf("the last turn is %d, not %d", n, s.turn)
			}
		} else if i < len(owned) {
			return 0, fmt.Errorf("node %d has no turn, and is before nodes that have one", n)
		}
		if l.key&gone == 0 {
			items++
			if !begun && n != s.first {
				return 0, fmt.Errorf("the first item is %d, not %d", n, s.first)
			}
			begun = true
		} else if l.after == 0 {
			return 0, fmt.Errorf("node %d has neither turn nor item", n)
		}
		if l.key&gone != 0 && begun {
			run = append(run, n)
		} else if len(run) > 0 {
			a, b := run[0], run[len(run)-1]
			if *q.tickets.at(a) != runEnd|uint64(b) || *q.tickets.at(b) != runEnd|uint64(a) {
				return 0, fmt.Errorf("the run %d..%d is not marked", a, b)
			}
			run = run[:0]
		}
		if l.next == 0 && s.newest != n {
			return 0, fmt.Errorf("the newest item is %d, not %d", n, s.newest)
		}
		prev, n = n, l.next
	}
	if items != int(s.len) || len(run) > 0 {
		return 0, fmt.Errorf("%d items are in the list, not %d; gone at its end: %v", items, s.len, run)
	}
	return items, nil
}

func (q *Queue[K, V]) checkResting(want int) error {
	n, prev, served := 0, uint32(0), uint64(0)
	for row := q.resting.first; row != 0; row = q.keys.at(row).newest {
		s := q.keys.at(row)
		if s.len > 0 || s.first != prev || s.served < served {
			return fmt.Errorf("resting key %d behind %d, served in %d: %+v", row, prev, served, *s)
		}
		prev, served = row, s.served
		n++
	}
	if n != want || q.resting.last != prev {
		return fmt.Errorf("%d keys rest up to %d, counted %d up to %d", want, q.resting.last, n, prev)
	}
	return nil
}

// checkForgotten makes sure that nothing is left of keys and items that are gone.
func (q *Queue[K, V]) checkForgotten() error {
	used, zero := map[uint32]bool{}, keyState[K]{}
	for b := range q.keys.size {
		for row := *q.keys.buckets.at(b); row != 0; row = q.keys.at(row).chain {
			if used[row] = true; q.keys.at(row).len == 0 && q.keys.wait(row) != nil {
				return fmt.Errorf("key %d has no items, and a histogram", row)
			}
		}
	}
	for row, s := range q.keys.states.all() {
		if !used[row] && (*s != zero || q.keys.wait(row) != nil) {
			return fmt.Errorf("key %d is gone, and this is left: %+v", row, *s)
		}
	}
	for i, c := range q.keys.waits.far {
		if c != nil && q.keys.states.far[i] == nil {
			return fmt.Errorf("chunk %d of keys is gone, and their histograms are left", i)
		}
	}
	if n := q.keys.nan; n != 0 && (!used[n] || q.keys.at(n).key == q.keys.at(n).key) {
		return fmt.Errorf("key %d is not in use, or equal to itself", n)
	}
	return nil
}

// checkWaits walks the list of all items by age.
func (q *Queue[K, V]) checkWaits() error {
	if q.waits == nil {
		return nil
	}
	n, older := 0, uint32(0)
	for node := q.waits.oldest; node != 0; node = q.waits.stamps.at(node).newer {
		if s := q.waits.stamps.at(node); s.older != older || q.waits.age(node) > q.waits.age(q.waits.oldest) {
			return fmt.Errorf("node %d is behind %d in the list by age: %+v", node, older, *s)
		}
		older = node
		n++
	}
	if n != q.len || q.waits.newest != older {
		return fmt.Errorf("%d items are in the list by age, up to %d; there are %d, up to %d", n, older, q.len, q.waits.newest)
	}
	return nil
}

// check compares the free rows with the number of rows in use.
func (r *rows) check(want int) error {
	used, open, live := 0, 0, 0
	for i, c := range r.chunks {
		if c == nil {
			if i < r.gap {
				return fmt.Errorf("chunk %d is missing below the gap %d", i, r.gap)
			}
			continue
		}
		free := 0
		live++
		for w, word := range c.free {
			free += bits.OnesCount64(word)
			if (word != 0) != (c.words>>w&1 == 1) {
				return fmt.Errorf("chunk %d: word %d is %#x, words is %#x", i, w, word, c.words)
			}
		}
		size := chunkRows
		if i == 0 {
			size = int(r.first)
		}
		if int(c.used)+free != size || (i > 0 && c.used == 0) != (c == r.empty) {
			return fmt.Errorf("chunk %d: %d used and %d free of %d", i, c.used, free, size)
		}
		used += int(c.used)
		if c.words != 0 {
			open++
		}
	}
	if live != r.live || r.empty != nil && r.chunks[r.empty.number] != r.empty {
		return fmt.Errorf("%d chunks, counted %d; the empty one is %v", r.live, live, r.empty)
	}
	for c := r.open; c != nil; c = c.next {
		open--
	}
	if open != 0 {
		return fmt.Errorf("the list of open chunks has %d too few", open)
	}
	if len(r.chunks) > 0 {
		used-- // row 0
	}
	used -= int(r.n)
	if used != want {
		return fmt.Errorf("%d rows are in use, %d are needed", used, want)
	}
	return nil
}
