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
	keys    map[int][]int // the items of each key, oldest first
	turns   *roundsmodel.Turns[int]
	n       int           // items
	rounds  [][]modelItem // what future has found out; nil if something has changed since
}

type modelItem struct{ key, item int }

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
	turns := &roundsmodel.Turns[int]{ThisRound: newcomers == ThisRound}
	return &model{weights: weights, keys: map[int][]int{}, turns: turns}
}

func (m *model) weight(key int) int { return max(1, m.weights[key]) }

func (m *model) push(key, item int) {
	m.keys[key] = append(m.keys[key], item)
	m.turns.Push(key, m.weight(key))
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
