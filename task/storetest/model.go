package storetest

import (
	"maps"
	"slices"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

// model is the tasks of a priority that are ready, as one would first write it: whenever a round is used up, a snapshot of
// the first tasks of each key, sorted by age, becomes the next one. What is handed back is kept aside, and goes first.
type model struct {
	newcomers fairq.Newcomers
	weight    func(key string) int
	keys      map[string][]modelTask
	round     []modelTask // what is left of the current round; these are also the first tasks of their keys
	begun     bool
	served    map[string]bool // in the current round
	back      []modelTask
	clock     int
}

type modelTask struct {
	id      task.ID
	key     string
	arrival int // when it became ready
	turn    int // when it was taken for the first time since then
}

func newModel(o *options) *model {
	m := &model{newcomers: o.Newcomers, weight: o.Weight, keys: map[string][]modelTask{}, served: map[string]bool{}}
	if m.weight == nil {
		m.weight = func(string) int { return 1 }
	}
	return m
}

// push adds a task that has become ready.
func (m *model) push(key string, id task.ID) {
	m.clock++
	t := modelTask{id: id, key: key, arrival: m.clock}
	in := 0
	for _, other := range m.round {
		if other.key == key {
			in++
		}
	}
	if m.newcomers == fairq.ThisRound && m.begun && !m.served[key] && in == len(m.keys[key]) && in < m.weight(key) {
		m.round = append(m.round, t)
	}
	m.keys[key] = append(m.keys[key], t)
}

// pop takes the first task, whose id is 0 if there is none.
func (m *model) pop() modelTask {
	if len(m.back) > 0 {
		t := slices.MinFunc(m.back, func(a, b modelTask) int { return a.turn - b.turn })
		m.back = slices.DeleteFunc(m.back, func(b modelTask) bool { return b == t })
		return t
	}
	if len(m.round) == 0 {
		if len(m.keys) == 0 {
			return modelTask{}
		}
		m.begun, m.served = true, map[string]bool{}
		for _, key := range slices.Collect(maps.Keys(m.keys)) {
			m.round = append(m.round, m.keys[key][:min(m.weight(key), len(m.keys[key]))]...)
		}
		slices.SortFunc(m.round, func(a, b modelTask) int { return a.arrival - b.arrival })
	}
	t := m.round[0]
	m.round = m.round[1:]
	m.served[t.key] = true
	if m.keys[t.key] = m.keys[t.key][1:]; len(m.keys[t.key]) == 0 {
		delete(m.keys, t.key)
	}
	m.clock++
	t.turn = m.clock
	return t
}
