package memory

import (
	"slices"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task/driver"
)

// modelBand is the turns of one priority.
type modelBand struct {
	turns     modelTurns
	delivered uint64
	owed      map[string][]uint64
	passed    map[string]uint64
}

// modelTurns says which key is next: whenever a round is used up, a snapshot of every key's first turns, sorted by age,
// becomes the next one.
type modelTurns struct {
	newcomers fairq.Newcomers
	given     map[string][]int // when each turn was given
	weights   map[string]int
	round     []modelTurn
	begun     bool
	served    map[string]bool
	clock     int
}

type modelTurn struct {
	key   string
	given int
}

func (m *modelTurns) push(key string, weight int) {
	m.clock++
	m.weights[key] = weight
	in := 0
	for _, t := range m.round {
		if t.key == key {
			in++
		}
	}
	if m.newcomers == fairq.ThisRound && m.begun && !m.served[key] && in == len(m.given[key]) && in < weight {
		m.round = append(m.round, modelTurn{key, m.clock})
	}
	m.given[key] = append(m.given[key], m.clock)
}

func (m *modelTurns) pop() (key string) {
	if len(m.round) == 0 {
		m.begun, m.served = true, map[string]bool{}
		for key, given := range m.given {
			for _, g := range given[:min(len(given), m.weights[key])] {
				m.round = append(m.round, modelTurn{key, g})
			}
		}
		slices.SortFunc(m.round, func(a, b modelTurn) int { return a.given - b.given })
	}
	key = m.round[0].key
	m.round = m.round[1:]
	m.served[key] = true
	m.given[key] = m.given[key][1:]
	return key
}

func (m *modelTurns) removeNewest(key string) {
	last := modelTurn{key, m.given[key][len(m.given[key])-1]}
	m.round = slices.DeleteFunc(m.round, func(t modelTurn) bool { return t == last })
	m.given[key] = m.given[key][:len(m.given[key])-1]
}

func (m *model) band(t *modelTask) *modelBand {
	b := m.bands[t.Priority]
	if b == nil {
		b = &modelBand{
			turns: modelTurns{newcomers: m.s.Newcomers, given: map[string][]int{}, weights: map[string]int{}},
			owed:  map[string][]uint64{}, passed: map[string]uint64{},
		}
		m.bands[t.Priority] = b
	}
	return b
}

func (m *model) reserves() bool { return m.s.KeepPlace && m.s.MaxInFlightPerKey == 0 }

func (m *model) readyIn(key string, priority int) int {
	return m.count(func(t *modelTask) bool { return t.State == driver.Ready && t.Key == key && t.Priority == priority })
}

func (m *model) owe(b *modelBand, key string, turn uint64) {
	b.owed[key] = append(b.owed[key], turn)
	slices.Sort(b.owed[key])
}

// top gives a key the turns that it must have.
func (m *model) top(t *modelTask) {
	b := m.band(t)
	want := 1
	if m.s.MaxInFlightPerKey > 0 {
		want = t.weight
	}
	want = min(want, m.readyIn(t.Key, t.Priority)-len(b.owed[t.Key]))
	for !m.reserves() && b.passed[t.Key] == 0 && len(b.turns.given[t.Key]) < want {
		b.turns.push(t.Key, t.weight)
	}
}

func (m *model) giveUp(t *modelTask) {
	b := m.band(t)
	owed := b.owed[t.Key]
	if len(b.turns.given[t.Key]) > 0 {
		b.turns.removeNewest(t.Key)
		return
	}
	if owed[len(owed)-1] == b.passed[t.Key] {
		b.passed[t.Key] = 0
	}
	b.owed[t.Key] = owed[:len(owed)-1]
}

func (m *model) becomeReady(t *modelTask, at time.Time) {
	b := m.band(t)
	t.State, t.ReadyAt = driver.Ready, at
	m.enlist(t)
	switch {
	case t.turn != 0:
		m.owe(b, t.Key, t.turn)
		t.turn = 0
	case m.reserves():
	case m.s.MaxInFlightPerKey > 0:
		m.top(t)
	case b.passed[t.Key] == 0:
		b.turns.push(t.Key, t.weight)
	}
	t.reserved = m.reserves()
}

// unready is for ready tasks that leave otherwise than by being taken.
func (m *model) unready(t *modelTask) {
	b := m.band(t)
	t.State = 0
	if !m.reserves() && len(b.turns.given[t.Key])+len(b.owed[t.Key]) > m.readyIn(t.Key, t.Priority) {
		m.giveUp(t)
	}
}

func (m *model) blocked(key string) bool {
	taken := m.count(func(t *modelTask) bool { return t.State == driver.Taken && t.Key == key })
	return m.keys[key] || m.s.MaxInFlightPerKey > 0 && taken >= m.s.MaxInFlightPerKey
}

// oldest returns the first task of a key in a band that the filter passes.
func (m *model) oldest(key string, priority int, f driver.Filter) (oldest *modelTask) {
	for _, t := range m.tasks {
		if t.State == driver.Ready && t.Key == key && t.Priority == priority && wants(f, t.Priority, t.Kind) &&
			(oldest == nil || t.place < oldest.place) {
			oldest = t
		}
	}
	return oldest
}

// next returns the task to be taken, and has used its turn.
func (m *model) next(f driver.Filter) *modelTask {
	priorities := []int{}
	for p := range m.bands {
		priorities = append(priorities, p)
	}
	slices.Sort(priorities)
	for _, p := range priorities {
		if m.count(func(t *modelTask) bool {
			return t.State == driver.Ready && t.Priority == p && wants(f, p, t.Kind) && !m.blocked(t.Key)
		}) == 0 {
			continue
		}
		b := m.bands[p]
		key, turn := "", uint64(0)
		for k, owed := range b.owed {
			if len(owed) > 0 && (turn == 0 || owed[0] < turn) && !m.blocked(k) && m.oldest(k, p, f) != nil {
				key, turn = k, owed[0]
			}
		}
		if turn != 0 {
			b.owed[key] = b.owed[key][1:]
			if b.passed[key] == turn {
				b.passed[key] = 0
			}
		}
		for turn == 0 {
			key = b.turns.pop()
			b.delivered++
			if !m.blocked(key) && m.oldest(key, p, f) != nil {
				turn = b.delivered
			} else if b.passed[key] == 0 || m.reserves() {
				b.passed[key] = b.delivered
				m.owe(b, key, b.delivered)
			}
		}
		t := m.oldest(key, p, f)
		m.backlog[key] = m.backlog[key][:len(m.backlog[key])-1]
		t.State, t.turn, t.reserved = 0, turn, false
		m.top(t)
		return t
	}
	return nil
}

// wants tells whether a filter passes a task.
func wants(f driver.Filter, priority int, kind string) bool {
	return (f.MaxPriority == nil || priority <= *f.MaxPriority) && (f.Kinds == nil || slices.Contains(f.Kinds, kind))
}
