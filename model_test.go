package fairq

import (
	"math"
	"slices"
	"time"

	"github.com/fairq/fairq/internal/account"
	"github.com/fairq/fairq/internal/roundsmodel"
)

// model is the obvious queue: each key has its items, and as many turns. It is slow.
type model struct {
	weights map[int]int
	pricing pricing
	keys    map[int][]int // the items of each key, oldest first
	turns   turns
	n       int            // items
	rounds  [][]modelItem  // the result of future; nil after a change
	levels  map[int][2]int // by key: its items divided by its weight, and since when
	clock   int
}

type modelItem struct{ key, item int }

// turns is the rule for the next key.
type turns interface {
	push(key, weight, cost int)
	Pop() int
	remove(key, i int) // the i-th item of a key
	Left() int
	Future() [][]int
	Rounds(key int) int // until the last turn of a key
}

// counted are turns without costs, and paid are those with costs.
type (
	counted struct{ *roundsmodel.Turns[int] }
	paid    struct{ *roundsmodel.Accounts[int] }
)

func (c counted) push(key, weight, _ int) { c.Push(key, weight) }
func (c counted) remove(key, _ int)       { c.RemoveLast(key) }
func (p paid) push(key, weight, cost int) { p.Push(key, weight, cost) }
func (p paid) remove(key, i int)          { p.Remove(key, i) }

func (c counted) Rounds(key int) (n int) {
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

// pricing has the settings for costs. The zero value is a queue without costs.
type pricing struct {
	quantum, maxCost int
	settle           bool
	share            bool // Options.ShareTime
}

// pricings are the settings that tests use: without costs; with equal costs, which changes
// nothing; with items that cost a part of the quantum, about as much, some ten times as much, and
// up to the limit; and the same with settled costs.
var pricings = []pricing{
	{},
	{quantum: 1, maxCost: 1},
	{quantum: 100, maxCost: 10},
	{quantum: 50, maxCost: 100},
	{quantum: 10, maxCost: 200},
	{quantum: 1, maxCost: account.MaxQuanta},
	{quantum: 50, maxCost: 100, settle: true},
	{quantum: 10, maxCost: 200, settle: true},
	{quantum: 1, maxCost: account.MaxQuanta, settle: true},
}

func (p pricing) hasCosts() bool { return p != pricing{share: p.share} }

// cost returns the declared cost of an item.
func (p pricing) cost(item int) int {
	if p.maxCost == 0 {
		return 1
	}
	return 1 + item*7919%p.maxCost
}

// realCost returns the cost to be reported for an item.
func (p pricing) realCost(item, arg int) int {
	if arg > 24 {
		return item * 7919 % (3 * account.MaxQuanta)
	}
	return item * 7919 % (300 >> (arg % 8))
}

// configure sets the fields of a queue.
func (p pricing) configure(q *Queue[float64, int]) {
	if p.maxCost > 0 {
		q.Cost = func(item int) int64 { return int64(p.cost(item)) }
	}
	q.Quantum, q.SettleCosts = int64(p.quantum), p.settle
	if q.beginCosts(); p.settle {
		q.keepLevels() // so that the order of those of the same level is that in which they got there
	}
}

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

func newModel(weights map[int]int, p pricing) *model {
	m := &model{
		weights: weights, pricing: p, keys: map[int][]int{}, levels: map[int][2]int{},
	}
	m.turns = counted{new(roundsmodel.Turns[int])}
	if p.hasCosts() && p.maxCost != 1 {
		m.turns = paid{&roundsmodel.Accounts[int]{Quantum: p.quantum, OneTurn: p.settle}}
	}
	if p.share {
		m.turns = &shared{start: time.Now()}
	}
	return m
}

func (m *model) weight(key int) int { return max(1, m.weights[key]) }

func (m *model) push(key, item int) {
	m.keys[key] = append(m.keys[key], item)
	m.turns.push(key, m.weight(key), m.pricing.cost(item))
	m.n++
	m.changed(key)
}

// changed is called when the number of a key's items has changed.
func (m *model) changed(key int) {
	m.rounds = nil
	if level := (len(m.keys[key]) + m.weight(key) - 1) / m.weight(key); level != m.levels[key][0] {
		m.clock++
		m.levels[key] = [2]int{level, m.clock}
	}
}

// reportCost is ReportCost.
func (m *model) reportCost(key, item, cost int) {
	m.rounds = nil
	m.turns.(paid).Settle(key, m.weight(key), cost-m.pricing.cost(item))
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
			m.turns.remove(key, i)
			m.drop(key, i)
			return true
		}
	}
	return false
}

func (m *model) drop(key, i int) {
	m.n--
	if m.keys[key] = slices.Delete(m.keys[key], i, i+1); len(m.keys[key]) == 0 {
		delete(m.keys, key)
	}
	m.changed(key)
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

// heaviest returns the keys with items in the furthest round, or, if not all items have turns, the
// keys with the most items for their weight. It also returns the newest and the oldest item of the
// last of these keys.
func (m *model) heaviest() (keys map[int]bool, newest, oldest int) {
	keys = map[int]bool{}
	if m.pricing.settle || m.pricing.share {
		top := [2]int{}
		for key, level := range m.levels {
			if level[0] > 0 && (level[0] > top[0] || level[0] == top[0] && level[1] > top[1]) {
				top, newest, oldest = level, m.keys[key][len(m.keys[key])-1], m.keys[key][0]
			}
		}
		for key, level := range m.levels {
			keys[key] = level[0] > 0 && level[0] == top[0]
		}
		return keys, newest, oldest
	}
	rounds := m.turns.Future()
	if len(rounds) == 0 {
		return keys, 0, 0
	}
	for _, key := range rounds[len(rounds)-1] {
		keys[key] = true
		items := m.keys[key]
		newest, oldest = items[len(items)-1], items[0]
	}
	return keys, newest, oldest
}
