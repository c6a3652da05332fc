package fairq

// levels orders keys by their level: the number of items divided by the weight, rounded up. With
// SettleCosts and ShareTime most items have no turns, so there the highest level, and not the
// furthest round, says whose backlog reaches furthest.
type levels struct {
	heads []uint32           // by level: the slot of the key that came there last; the last is not 0
	links column[levelLinks] // by slot
}

// levelLinks is a key's place in the list of its level; a key without items is in none.
type levelLinks struct{ level, prev, next uint32 }

// set moves a key to a level, 0 if it has no items.
func (l *levels) set(slot, level uint32) {
	l.links.reach(slot)
	k := l.links.at(slot)
	if k.level == level {
		return
	}
	if k.level > 0 {
		if k.prev == 0 {
			l.heads[k.level] = k.next
		} else {
			l.links.at(k.prev).next = k.next
		}
		if k.next != 0 {
			l.links.at(k.next).prev = k.prev
		}
	}
	*k = levelLinks{level: level}
	if level > 0 {
		for int(level) >= len(l.heads) {
			l.heads = append(l.heads, 0)
		}
		if k.next = l.heads[level]; k.next != 0 {
			l.links.at(k.next).prev = slot
		}
		l.heads[level] = slot
	}
	for len(l.heads) > 0 && l.heads[len(l.heads)-1] == 0 {
		l.heads = l.heads[:len(l.heads)-1]
	}
}

// top returns the key that has come last to the highest level. There must be one.
func (l *levels) top() uint32 { return l.heads[len(l.heads)-1] }

// lacksTurns reports whether there can be items without a turn. Then levels say which key is the
// heaviest.
func (q *Queue[K, V]) lacksTurns() bool { return q.shares != nil || q.costs.oneTurn }

// keepLevels returns the levels of all keys. The first call sorts them in, which is O(keys); from
// then on they are kept.
func (q *Queue[K, V]) keepLevels() *levels {
	if q.levels == nil {
		q.levels = new(levels)
		for slot, s := range q.keys.states.all() {
			if s.len > 0 {
				q.setLevel(slot, s.len)
			}
		}
	}
	return q.levels
}

// setLevel is called when the number of a key's items has changed. It does nothing unless levels
// are kept.
func (q *Queue[K, V]) setLevel(slot, items uint32) {
	if q.levels != nil {
		q.moveLevel(slot, items)
	}
}

// moveLevel is not in setLevel, so that this can be inlined.
func (q *Queue[K, V]) moveLevel(slot, items uint32) { q.levels.set(slot, q.level(slot, items)) }

// level returns the level of a key with a number of items.
func (q *Queue[K, V]) level(slot, items uint32) uint32 {
	var weight uint32 // as of the last push
	if q.shares != nil {
		weight = uint32((*q.keys.shares.at(slot)).Weight())
	} else {
		weight = uint32(q.keys.costs.at(slot).share / q.costs.quantum)
	}
	return (items + weight - 1) / weight
}
