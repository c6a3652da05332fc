package fairq

import (
	"math"
	"slices"
)

// model is the queue as one would first write it: each key has its items and its turns, and
// whenever the current round is used up, a snapshot of every key's first turns, sorted by age,
// becomes the next one. It knows nothing of tags, and everything it does is slow.
type model struct {
	newcomers Newcomers
	weights   map[int]int
	keys      map[int]*modelKey
	// what is left of the current round; these are also the first turns of their keys
	round  []modelTurn
	begun  bool // a round has been begun
	served map[int]bool
	clock  int
	n      int           // items
	rounds [][]modelTurn // what future has found out; nil if something has changed since
}

type modelKey struct {
	items []int
	turns []int // when each was given; as many as items
}

type modelTurn struct{ key, given int }

// keyOf returns the key that the model calls by its number. A queue of these may call the first
// one NaN.
func keyOf(number int, nan bool) float64 {
	if nan && number == 0 {
		return math.NaN()
	}
	return float64(number)
}

func numberOf(key float64) int {
	if math.IsNaN(key) {
		return 0
	}
	return int(key)
}

func newModel(newcomers Newcomers, weights map[int]int) *model {
	return &model{newcomers: newcomers, weights: weights, keys: map[int]*modelKey{}, served: map[int]bool{}}
}

func (m *model) weight(key int) int { return max(1, m.weights[key]) }

func (m *model) inRound(key int) (n int) {
	for _, t := range m.round {
		if t.key == key {
			n++
		}
	}
	return n
}

func (m *model) push(key, item int) {
	m.clock++
	m.n++
	m.rounds = nil
	k := m.keys[key]
	if k == nil {
		k = &modelKey{}
		m.keys[key] = k
	}
	in := m.inRound(key)
	if m.newcomers == ThisRound && m.begun && !m.served[key] && in == len(k.turns) && in < m.weight(key) {
		m.round = append(m.round, modelTurn{key, m.clock})
	}
	k.items = append(k.items, item)
	k.turns = append(k.turns, m.clock)
}

func (m *model) refill() {
	m.begun = true
	m.served = map[int]bool{}
	for key, k := range m.keys {
		for _, given := range k.turns[:min(len(k.turns), m.weight(key))] {
			m.round = append(m.round, modelTurn{key, given})
		}
	}
	slices.SortFunc(m.round, func(a, b modelTurn) int { return a.given - b.given })
}

func (m *model) pop() (key, item int, ok bool) {
	if m.len() == 0 {
		return 0, 0, false
	}
	if len(m.round) == 0 {
		m.refill()
	}
	key = m.round[0].key
	m.round = m.round[1:]
	m.n--
	m.rounds = nil
	m.served[key] = true
	k := m.keys[key]
	item = k.items[0]
	k.items, k.turns = k.items[1:], k.turns[1:]
	m.tidy(key)
	return key, item, true
}

// remove takes out an item. The key gives up its last turn.
func (m *model) remove(item int) (ok bool) {
	for key, k := range m.keys {
		if i := slices.Index(k.items, item); i >= 0 {
			last := modelTurn{key, k.turns[len(k.turns)-1]}
			m.round = slices.DeleteFunc(m.round, func(t modelTurn) bool { return t == last })
			k.items = slices.Delete(k.items, i, i+1)
			k.turns = k.turns[:len(k.turns)-1]
			m.n--
			m.rounds = nil
			m.tidy(key)
			return true
		}
	}
	return false
}

func (m *model) tidy(key int) {
	if len(m.keys[key].items) > 0 {
		return
	}
	delete(m.keys, key)
	if m.newcomers == NextRound {
		delete(m.served, key) // a key without items is remembered only under ThisRound
	}
}

func (m *model) keyLen(key int) int {
	if k := m.keys[key]; k != nil {
		return len(k.items)
	}
	return 0
}

// items returns those of a key, oldest first.
func (m *model) items(key int) []int {
	if k := m.keys[key]; k != nil {
		return slices.Clone(k.items)
	}
	return nil
}

func (m *model) len() int { return m.n }

// future pops a copy until it is empty, and returns the keys and items of each round.
func (m *model) future() [][]modelTurn {
	if m.rounds != nil {
		return m.rounds
	}
	c := newModel(m.newcomers, m.weights)
	c.round = slices.Clone(m.round)
	for key, k := range m.keys {
		c.keys[key] = &modelKey{slices.Clone(k.items), slices.Clone(k.turns)}
	}
	rounds := [][]modelTurn{}
	for c.n = m.n; c.n > 0; {
		if len(c.round) == 0 {
			c.refill()
		}
		var round []modelTurn
		for len(c.round) > 0 {
			key, item, _ := c.pop()
			round = append(round, modelTurn{key, item})
		}
		rounds = append(rounds, round)
	}
	m.rounds = rounds
	return rounds
}

// order is future without the rounds.
func (m *model) order() []modelTurn { return slices.Concat(m.future()...) }

// position returns how many items leave before one.
func (m *model) position(item int) (n int, ok bool) {
	n = slices.IndexFunc(m.order(), func(t modelTurn) bool { return t.given == item })
	return max(n, 0), n >= 0
}

// heaviest returns the keys that have items in the furthest round, and the newest and the oldest
// item of the last one of these.
func (m *model) heaviest() (keys map[int]bool, newest, oldest int) {
	rounds := m.future()
	keys = map[int]bool{}
	if len(rounds) == 0 {
		return keys, 0, 0
	}
	for _, t := range rounds[len(rounds)-1] {
		keys[t.key] = true
		items := m.keys[t.key].items
		newest, oldest = items[len(items)-1], items[0]
	}
	return keys, newest, oldest
}
