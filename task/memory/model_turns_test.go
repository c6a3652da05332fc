package memory_test

import (
	"slices"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/roundsmodel"
	"github.com/fairq/fairq/task/driver"
)

// modelBand is the turns of one priority.
type modelBand struct {
	turns     modelTurns
	using     int // 1 while a turn of a key is used, and not popped yet
	delivered uint64
	owed      map[string][]uint64
	missed    map[string]uint64
}

// modelTurns says which key is next.
type modelTurns interface {
	Push(key string, weight, cost int)
	Pop() (key string)
	RemoveLast(key string)
	Len(key string) int
}

// uncosted are turns of tasks without costs.
type uncosted struct{ roundsmodel.Turns[string] }

func (u *uncosted) Push(key string, weight, _ int) { u.Turns.Push(key, weight) }

// limited tells whether a key is given its next turn only when it has used one.
func (m *model) limited() bool {
	return m.s.MaxInFlightPerKey > 0 || m.s.KeyRate.Limit > 0 || m.notifier.LearnedCost("") > 0
}

func (m *model) newTurns() modelTurns {
	joins := m.s.Newcomers == fairq.ThisRound
	if m.s.Quantum == 0 {
		return &uncosted{roundsmodel.Turns[string]{ThisRound: joins}}
	}
	return &roundsmodel.Accounts[string]{
		ThisRound: joins, Quantum: int(m.s.Quantum), OneTurn: m.limited(),
	}
}

func (m *model) band(t *modelTask) *modelBand {
	b := m.bands[t.Priority]
	if b == nil {
		b = &modelBand{
			turns: m.newTurns(), owed: map[string][]uint64{}, missed: map[string]uint64{},
		}
		m.bands[t.Priority] = b
	}
	return b
}

func (m *model) readyIn(key string, priority int) int {
	return m.count(func(t *modelTask) bool { return t.State == driver.Ready && t.Key == key && t.Priority == priority })
}

func (m *model) owe(b *modelBand, key string, turn uint64) {
	b.owed[key] = append(b.owed[key], turn)
	slices.Sort(b.owed[key])
}

// fillTurns gives a key the turns that it must have.
func (m *model) fillTurns(t *modelTask) {
	b := m.band(t)
	want := 1
	if m.limited() && m.s.Quantum == 0 {
		want = t.weight
	}
	want = min(want, m.readyIn(t.Key, t.Priority)-len(b.owed[t.Key]))
	for b.missed[t.Key] == 0 && b.turns.Len(t.Key)-b.using < want {
		next := m.oldest(t.Key, t.Priority, &driver.Filter{})
		if next.learned {
			next.Cost = m.notifier.LearnedCost(t.Key)
		}
		b.turns.Push(t.Key, t.weight, int(next.Cost))
	}
}

func (m *model) giveUp(t *modelTask) {
	b := m.band(t)
	owed := b.owed[t.Key]
	if b.turns.Len(t.Key) > 0 {
		b.turns.RemoveLast(t.Key)
		return
	}
	if owed[len(owed)-1] == b.missed[t.Key] {
		b.missed[t.Key] = 0
	}
	b.owed[t.Key] = owed[:len(owed)-1]
}

func (m *model) becomeReady(t *modelTask, at time.Time) {
	b := m.band(t)
	if t.place == 0 {
		t.place = m.tick()
	}
	t.State, t.ReadyAt = driver.Ready, at
	m.enlist(t)
	switch {
	case t.turn != 0:
		m.owe(b, t.Key, t.turn)
		t.turn = 0
	case m.limited():
		m.fillTurns(t)
	case b.missed[t.Key] == 0:
		b.turns.Push(t.Key, t.weight, int(t.Cost))
	}
}

// unready is for ready tasks that leave otherwise than by being taken.
func (m *model) unready(t *modelTask) {
	b := m.band(t)
	t.State = 0
	if b.turns.Len(t.Key)+len(b.owed[t.Key]) > m.readyIn(t.Key, t.Priority) {
		m.giveUp(t)
	}
}

func (m *model) blocked(key string) bool {
	taken := m.count(func(t *modelTask) bool { return t.State == driver.Taken && t.Key == key })
	return !m.until(all).IsZero() || m.keys[key] || !m.until(key).IsZero() || m.s.MaxInFlightPerKey > 0 && taken >= m.s.MaxInFlightPerKey
}

// oldest returns the first task of a key in a band that the filter passes.
func (m *model) oldest(key string, priority int, f *driver.Filter) (oldest *modelTask) {
	for _, t := range m.tasks {
		if t.State == driver.Ready && t.Key == key && t.Priority == priority && f.Passes(t.Priority, t.Kind) &&
			(oldest == nil || t.place < oldest.place) {
			oldest = t
		}
	}
	return oldest
}

// next returns the task to be taken, and has used its turn.
func (m *model) next(f *driver.Filter) *modelTask {
	priorities := []int{}
	for p := range m.bands {
		priorities = append(priorities, p)
	}
	slices.Sort(priorities)
	for _, p := range priorities {
		if m.count(func(t *modelTask) bool {
			return t.State == driver.Ready && t.Priority == p && f.Passes(p, t.Kind) && !m.blocked(t.Key)
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
			if b.missed[key] == turn {
				b.missed[key] = 0
			}
		}
		for turn == 0 {
			accounts, ok := b.turns.(*roundsmodel.Accounts[string])
			if ok && accounts.OneTurn { // so that the next turn of the key follows on this one
				key, b.using = accounts.Peek(), 1
			} else {
				key = b.turns.Pop()
			}
			b.delivered++
			if !m.blocked(key) && m.oldest(key, p, f) != nil {
				turn = b.delivered
				continue
			}
			m.used(b)
			if b.missed[key] == 0 {
				b.missed[key] = b.delivered
				m.owe(b, key, b.delivered)
			}
		}
		t := m.oldest(key, p, f)
		m.backlog[key] = m.backlog[key][:len(m.backlog[key])-1]
		t.State, t.turn = 0, turn
		m.fillTurns(t)
		m.used(b)
		return t
	}
	return nil
}

// used pops a turn that is being used.
func (m *model) used(b *modelBand) {
	if b.using > 0 {
		b.turns.Pop()
		b.using = 0
	}
}
