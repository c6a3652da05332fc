package fairq

import (
	"math"
	"slices"

	"github.com/fairq/fairq/internal/roundsmodel"
)

// model is the queue as one would first write it: each key has its items, and as many turns. All
// that it does is slow.
type model struct {
	weights map[int]int
	pricing pricing
	keys    map[int][]int // the items of each key, oldest first
	turns   turns
	n       int           // items
	rounds  [][]modelItem // what future has found out; nil if something has changed since
}

type modelItem struct{ key, item int }

// turns says which key is next.
type turns interface {
	push(key, weight, cost int)
	Pop() int
	RemoveLast(key int)
	Left() int
	Future() [][]int
	rounds(key int) int // until the last turn of a key
	setThisRound(bool)
}

// counted are turns without costs, and paid are those with costs.
type (
	counted struct{ *roundsmodel.Turns[int] }
	paid    struct{ *roundsmodel.Accounts[int] }
)

func (c counted) push(key, weight, _ int) { c.Push(key, weight) }
func (c counted) setThisRound(this bool)  { c.ThisRound = this }
func (p paid) push(key, weight, cost int) { p.Push(key, weight, cost) }
func (p paid) setThisRound(this bool)     { p.ThisRound = this }
func (p paid) rounds(key int) int         { return p.Rounds(key) }

func (c counted) rounds(key int) (n int) {
	for round, keys := range c.Future() {
		if slices.Contains(keys, key) {
			n = round
		}
	}
	if c.Left() == 0 {
		n++
	}
	return n
}

// pricing tells what items cost. The zero value stands for a queue without costs.
type pricing struct{ quantum, most int }

// pricings are those of the regimes of tests: without costs; with equal costs, which changes nothing;
// and with items that cost a part of the quantum, about as much, some ten times as much, and up to
// the limit.
var pricings = []pricing{{}, {1, 1}, {100, 10}, {50, 100}, {10, 200}, {1, maxQuanta}}

func (p pricing) cost(item int) int { return 1 + item*7919%p.most }

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

func newModel(newcomers Newcomers, weights map[int]int, p pricing) *model {
	m := &model{weights: weights, pricing: p, keys: map[int][]int{}, turns: counted{new(roundsmodel.Turns[int])}}
	if p.most > 1 {
		m.turns = paid{&roundsmodel.Accounts[int]{Quantum: p.quantum}}
	}
	m.turns.setThisRound(newcomers == ThisRound)
	return m
}

func (m *model) weight(key int) int { return max(1, m.weights[key]) }

func (m *model) push(key, item int) {
	m.keys[key] = append(m.keys[key], item)
	cost := 1
	if m.pricing.most > 0 {
		cost = m.pricing.cost(item)
	}
	m.turns.push(key, m.weight(key), cost)
	m.n++
	m.rounds = nil
}

func (m *model) pop() (key, item int, ok bool) {
	if m.n == 0 {
		return 0, 0, false
	}
	key = m.turns.Pop()
	item = m.keys[key][0]
	m.drop(key, 0)
	return key, item, true
}

// remove takes out an item. The key gives up its last turn.
func (m *model) remove(item int) (ok bool) {
	for key, items := range m.keys {
		if i := slices.Index(items, item); i >= 0 {
			m.turns.RemoveLast(key)
			m.drop(key, i)
			return true
		}
	}
	return false
}

func (m *model) drop(key, i int) {
	m.n--
	m.rounds = nil
	if m.keys[key] = slices.Delete(m.keys[key], i, i+1); len(m.keys[key]) == 0 {
		delete(m.keys, key)
	}
}

func (m *model) keyLen(key int) int { return len(m.keys[key]) }

// items returns those of a key, oldest first.
func (m *model) items(key int) []int { return slices.Clone(m.keys[key]) }

func (m *model) len() int { return m.n }

// future returns the keys and items of each round, in the order in which they will leave.
func (m *model) future() [][]modelItem {
	if m.rounds != nil {
		return m.rounds
	}
	m.rounds = [][]modelItem{}
	left := map[int]int{} // how many items of a key have left
	for _, turns := range m.turns.Future() {
		var round []modelItem
		for _, key := range turns {
			round = append(round, modelItem{key, m.keys[key][left[key]]})
			left[key]++
		}
		m.rounds = append(m.rounds, round)
	}
	return m.rounds
}

// order is future without the rounds.
func (m *model) order() []modelItem { return slices.Concat(m.future()...) }

// position returns how many items leave before one.
func (m *model) position(item int) (n int, ok bool) {
	n = slices.IndexFunc(m.order(), func(t modelItem) bool { return t.item == item })
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
		items := m.keys[t.key]
		newest, oldest = items[len(items)-1], items[0]
	}
	return keys, newest, oldest
}
