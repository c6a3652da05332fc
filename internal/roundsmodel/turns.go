// Package roundsmodel is a naive model of rounds, with which tests compare queues. Whenever a
// round is used up, a snapshot of every key's first turns, sorted by age, becomes the next round.
// It shares no code with the queues, and it is slow.
package roundsmodel

import "slices"

// Turns has the turns of all keys, one for each item.
type Turns[K comparable] struct {
	keys  map[K]*turns
	round []turn[K] // the rest of the current round: first turns of their keys
	clock int
}

// turns is those of a key.
type turns struct {
	given  []int // when each was given
	weight int   // as of the last push
}

type turn[K comparable] struct {
	key   K
	given int
}

// Push gives a key another turn.
func (t *Turns[K]) Push(key K, weight int) {
	if t.keys == nil {
		t.keys = map[K]*turns{}
	}
	k := t.keys[key]
	if k == nil {
		k = &turns{}
		t.keys[key] = k
	}
	k.weight = weight
	t.clock++
	k.given = append(k.given, t.clock)
}

// Pop takes the next turn, and returns its key. There must be one.
func (t *Turns[K]) Pop() (key K) {
	if len(t.round) == 0 {
		t.begin()
	}
	key, t.round = t.round[0].key, t.round[1:]
	t.drop(key, 0)
	return key
}

// begin begins the next round.
func (t *Turns[K]) begin() {
	for key, k := range t.keys {
		for _, given := range k.given[:min(len(k.given), k.weight)] {
			t.round = append(t.round, turn[K]{key, given})
		}
	}
	slices.SortFunc(t.round, func(a, b turn[K]) int { return a.given - b.given })
}

// RemoveLast takes its last turn from a key.
func (t *Turns[K]) RemoveLast(key K) {
	last := t.Len(key) - 1
	lost := turn[K]{key, t.keys[key].given[last]}
	t.round = slices.DeleteFunc(t.round, func(u turn[K]) bool { return u == lost })
	t.drop(key, last)
}

func (t *Turns[K]) drop(key K, i int) {
	k := t.keys[key]
	if k.given = slices.Delete(k.given, i, i+1); len(k.given) == 0 {
		delete(t.keys, key)
	}
}

// Len returns how many turns a key has.
func (t *Turns[K]) Len(key K) int {
	if k := t.keys[key]; k != nil {
		return len(k.given)
	}
	return 0
}

// Left returns how many turns are left of the current round.
func (t *Turns[K]) Left() int { return len(t.round) }

// Clone returns a copy.
func (t *Turns[K]) Clone() *Turns[K] {
	c := *t
	c.round, c.keys = slices.Clone(t.round), map[K]*turns{}
	for key, k := range t.keys {
		c.keys[key] = &turns{slices.Clone(k.given), k.weight}
	}
	return &c
}

// Future returns the keys of all turns in order, round by round.
func (t *Turns[K]) Future() (rounds [][]K) {
	for c := t.Clone(); len(c.keys) > 0; {
		if len(c.round) == 0 {
			c.begin()
		}
		var round []K
		for len(c.round) > 0 {
			round = append(round, c.Pop())
		}
		rounds = append(rounds, round)
	}
	return rounds
}
