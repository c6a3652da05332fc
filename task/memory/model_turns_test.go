package memory_test

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/fairq/fairq/internal/driver"
)

// modelBand is the tasks of one priority.
type modelBand struct {
	now   int // the round being served
	lines map[string]*modelLine
}

// modelLine is those of a key. Its share of each round is as many units of work as its weight, or
// with a Quantum that times the quantum.
type modelLine struct {
	end   modelUse // after its last turn
	turn  modelUse // before its next turn
	share int
}

// modelUse is a round, and the units of the share of it that are used.
type modelUse struct{ round, used int }

func (m *model) band(priority int) *modelBand {
	b := m.bands[priority]
	if b == nil {
		b = &modelBand{lines: map[string]*modelLine{}}
		m.bands[priority] = b
	}
	return b
}

func (m *model) line(t *modelTask) *modelLine {
	b := m.band(t.Priority)
	if b.lines[t.Key] == nil {
		b.lines[t.Key] = &modelLine{}
	}
	b.lines[t.Key].share = m.weight(t.Key, t.weight) * max(1, int(m.s.Quantum))
	return b.lines[t.Key]
}

// follow has the next turn of a line in a round or later.
func (l *modelLine) follow(round int) {
	if l.turn = l.end; l.turn.used >= l.share {
		l.turn = modelUse{l.turn.round + 1, 0}
	}
	if l.turn.round < round {
		l.turn = modelUse{round, 0}
	}
}

// queued returns the tasks of a line that use its turns.
func (m *model) queued(t *modelTask) int {
	return m.count(func(o *modelTask) bool {
		return o.State == driver.Ready && o.turn == 0 && o.Key == t.Key && o.Priority == t.Priority
	})
}

func (m *model) becomeReady(t *modelTask, at time.Time) {
	b, l := m.band(t.Priority), m.line(t)
	if m.s.Quantum > 0 && m.count(func(o *modelTask) bool { return o.State == driver.Ready }) == 0 {
		furthest := 0 // accounts are void, because nobody has waited
		for _, l := range b.lines {
			furthest = max(furthest, l.end.round)
		}
		if furthest > b.now {
			b.now = furthest + 1
		}
	}
	if t.place == 0 {
		t.place = m.tick()
	}
	if m.s.KeepPlace && m.count(func(o *modelTask) bool {
		return o.State == driver.Ready && o.Key == t.Key && o.Priority == t.Priority && o.place < t.place
	}) > 0 {
		t.turn = 0
	}
	if t.turn == 0 && m.queued(t) == 0 {
		l.follow(b.now + 1)
	}
	t.State, t.ReadyAt = driver.Ready, at
	m.enlist(t)
}

func (m *model) blocked(key string) bool {
	taken := m.count(func(t *modelTask) bool { return t.State == driver.Taken && t.Key == key })
	limit := cmp.Or(m.limits[key].MaxInFlight, m.s.MaxInFlightPerKey)
	return !m.until(all).IsZero() || m.keys[key] || !m.until(key).IsZero() ||
		limit > 0 && taken >= limit
}

// next returns the task to be taken, and has used its turn.
func (m *model) next(f *driver.Filter) *modelTask {
	round := func(t *modelTask) int {
		if t.turn > 0 {
			return t.turn
		}
		return m.line(t).turn.round
	}
	var all []*modelTask
	for _, t := range m.tasks {
		if t.State == driver.Ready && f.Passes(t.Priority, t.Kind) && !m.blocked(t.Key) {
			all = append(all, t)
		}
	}
	if len(all) == 0 {
		return nil
	}
	t := slices.MinFunc(all, func(a, b *modelTask) int {
		return cmp.Or(a.Priority-b.Priority, round(a)-round(b), a.place-b.place)
	})
	m.backlog[t.Key] = m.backlog[t.Key][:len(m.backlog[t.Key])-1]
	if t.State = 0; t.turn == 0 {
		m.use(t, round(t))
	}
	return t
}

// use has a task use the turn of its line.
func (m *model) use(t *modelTask, round int) {
	b, l, cost := m.band(t.Priority), m.line(t), 1
	if m.s.Quantum > 0 {
		if t.learned {
			t.Cost = m.notifier.LearnedCost(t.Key)
		}
		cost = int(t.Cost)
	}
	missed := round < b.now
	b.now, t.turn, l.end = max(b.now, round), round, l.turn
	l.end.used = min(l.end.used, l.share-1) // its weight may be less now
	for range cost {
		if l.end.used == l.share {
			l.end = modelUse{l.end.round + 1, 0}
		}
		l.end.used++
	}
	if l.follow(b.now); missed {
		l.follow(b.now + 1)
	}
}

// Upcoming takes tasks of a copy.
func (m *model) Upcoming(_ context.Context, n int) (next []driver.UpcomingTask, err error) {
	_, leave := m.enter()
	defer leave()
	c := &model{
		s: m.s, notifier: m.notifier, keys: m.keys, waits: m.waits, limits: m.limits,
		debts: maps.Clone(m.debts),
		bands: map[int]*modelBand{}, backlog: maps.Clone(m.backlog),
	}
	for _, t := range m.tasks {
		c.tasks = append(c.tasks, new(*t))
	}
	for priority, b := range m.bands {
		lines := map[string]*modelLine{}
		for key, l := range b.lines {
			lines[key] = new(*l)
		}
		c.bands[priority] = &modelBand{b.now, lines}
	}
	for len(next) < n && !m.paused {
		t := c.next(&driver.Filter{})
		if t == nil {
			break
		}
		t.State = driver.Taken
		c.charge(t, 1)
		r := m.find(t.ID).record()
		round := c.bands[t.Priority].now - m.bands[t.Priority].now
		next = append(next, driver.UpcomingTask{
			Info: r.Info(), Round: round, Weight: m.weight(t.Key, t.weight),
		})
	}
	return next, nil
}
