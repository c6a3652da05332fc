package fairq

// levels orders keys by how many items they have for their weight, rounded up: their level. It
// takes the place of the furthest round, where the rounds of most items are not known.
type levels struct {
	heads []uint32           // by level: the slot of the key that has come there last; the last is not 0
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

// levels returns the levels of all keys. The first call sorts them in, which is O(keys); from then
// on they are kept.
func (q *Queue[K, V]) levels() *levels {
	if q.costs.levels == nil {
		q.costs.levels = new(levels)
		for slot, s := range q.keys.states.all() {
			if s.len > 0 {
				q.costs.setLevel(q.keys.costs.at(slot), slot, s.len)
			}
		}
	}
	return q.costs.levels
}

// setLevel is called when the number of a key's items has changed. It does nothing if no levels are
// kept.
func (c *costs) setLevel(k *keyCost, slot, items uint32) {
	if c.levels != nil {
		c.moveLevel(k, slot, items)
	}
}

// moveLevel is not in setLevel, so that this can be inlined.
func (c *costs) moveLevel(k *keyCost, slot, items uint32) { c.levels.set(slot, c.level(k, items)) }

func (c *costs) level(k *keyCost, items uint32) uint32 {
	weight := uint32(k.share / c.quantum)
	return (items + weight - 1) / weight
}
