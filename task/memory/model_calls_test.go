package memory

import (
	"cmp"
	"slices"
	"time"

	"github.com/fairq/fairq/task/driver"
)

// This is what the model does at each call of a Backend.

func (m *model) take(now time.Time, consumer string, f driver.Filter) *modelTask {
	if _, ok := m.consumers[consumer]; !ok {
		m.consumers[consumer] = time.Time{}
	}
	if m.paused {
		return nil
	}
	t := m.next(f)
	if t == nil {
		return nil
	}
	m.grant(t, now, consumer)
	return t
}

func (m *model) grant(t *modelTask, now time.Time, consumer string) {
	m.leases++
	m.stats.Takes++
	t.State, t.Consumer, t.lease, t.Until = driver.Taken, consumer, m.leases, time.Time{}
	t.Attempts++
	if t.TTR > 0 {
		t.Until = now.Add(t.TTR)
	}
	m.event(driver.EventTake, t, now, 0)
}

func (m *model) takeID(now time.Time, consumer string, id driver.ID) (*modelTask, error) {
	if _, ok := m.consumers[consumer]; !ok {
		m.consumers[consumer] = time.Time{}
	}
	t := m.find(id)
	if t == nil {
		return nil, driver.ErrNotFound
	}
	g := m.groups[t.Group]
	switch {
	case t.State == driver.Taken:
		return nil, driver.ErrTaken
	case m.paused || m.blocked(t.Key) || g != nil && (t.Role != driver.Member || !g.started):
		return nil, driver.ErrBlocked
	case t.State == driver.Buried:
		m.kick(t, now)
	case t.State == driver.Delayed:
		m.leave(t)
		t.Until = time.Time{}
		m.newTurn(t)
		m.becomeReady(t, now)
		m.event(driver.EventDelay, t, now, 0)
	}
	m.leave(t)
	if !m.s.KeepPlace {
		t.place = 0
	}
	m.grant(t, now, consumer)
	return t, nil
}

func (m *model) handBackAll(now time.Time, id string) {
	for _, t := range m.heldBy(id) {
		m.stats.Releases++
		m.handBack(t, now, 0, driver.EventRelease, false, false)
	}
}

func (m *model) settle(now time.Time, id driver.ID, lease uint64, how driver.Settlement) (driver.State, error) {
	t := m.find(id)
	if t == nil || lease == 0 || t.lease != lease {
		return 0, driver.ErrLeaseLost
	}
	if how.Err != nil {
		t.Err = how.Err
	}
	if (how.Release || how.Bury) && how.Priority != t.Priority {
		if t.reserved {
			m.giveUp(t)
		}
		t.Priority, t.place, t.turn = how.Priority, m.tick(), 0
		if m.reserves() {
			m.band(t).turns.Push(t.Key, t.weight)
			t.reserved = true
		}
	}
	switch {
	case how.Bury:
		m.leave(t)
		m.bury(t, now, lease)
	case how.Discard:
		m.leave(t)
		m.gone(t, driver.EventDelete, now, lease, how.Err)
	case how.Release:
		m.stats.Releases++
		m.handBack(t, now, how.Delay, driver.EventRelease, !how.Uncounted, how.Err != nil)
	default:
		m.leave(t)
		m.gone(t, driver.EventAck, now, lease, nil)
	}
	if t = m.find(id); t == nil {
		return 0, nil
	}
	return t.State, nil
}

func (m *model) touch(now time.Time, id driver.ID, lease uint64, d time.Duration) (time.Time, error) {
	t := m.find(id)
	if t == nil || lease == 0 || t.lease != lease {
		return time.Time{}, driver.ErrLeaseLost
	}
	switch {
	case d == 0 || t.Until.IsZero():
	default:
		m.stats.Touches++
		t.Until = t.Until.Add(d)
		m.event(driver.EventTouch, t, now, 0)
	}
	if g := m.groups[t.Group]; d == 0 && g != nil && g.cancelled {
		return t.Until, driver.ErrGroupCancelled
	}
	return t.Until, nil
}

func (m *model) kick(t *modelTask, now time.Time) {
	m.stats.Kicks++
	m.leave(t)
	t.Attempts = 0
	m.back(t, false, driver.EventKick, now, 0)
}

func (m *model) buried() []*modelTask {
	b := slices.DeleteFunc(slices.Clone(m.tasks), func(t *modelTask) bool { return t.State != driver.Buried })
	slices.SortFunc(b, func(a, b *modelTask) int { return a.buried - b.buried })
	return b
}

func (m *model) change(now time.Time, id driver.ID, what driver.Change, unlessTaken bool, reason *driver.Error) error {
	t := m.find(id)
	if t != nil && unlessTaken && t.State == driver.Taken {
		return driver.ErrTaken
	}
	if t == nil || what == driver.KickOne && t.State != driver.Buried {
		return driver.ErrNotFound
	}
	lease := t.lease
	switch {
	case what == driver.KickOne:
		m.kick(t, now)
	case what == driver.Delete:
		m.leave(t)
		m.gone(t, driver.EventDelete, now, lease, driver.ErrDeleted)
	case t.State == driver.Buried:
		t.Err = reason
	default:
		t.Err = reason
		m.leave(t)
		m.bury(t, now, lease)
	}
	return nil
}

func (m *model) group(now time.Time, name string, cancel bool) error {
	g := m.groups[name]
	switch {
	case g == nil:
		return driver.ErrNotFound
	case g.cancelled && !cancel:
		return driver.ErrGroupCancelled
	case g.cancelled || g.started && !cancel:
		return nil
	}
	g.started, g.cancelled = true, cancel
	for _, t := range slices.Clone(m.tasks) {
		switch {
		case t.Group != name || t.Role != driver.Member:
		case cancel && t.State == driver.Taken:
			m.event(driver.EventCancel, t, now, t.lease)
		case cancel && t.State != driver.Taken:
			m.leave(t)
			m.gone(t, driver.EventDelete, now, 0, driver.ErrDeleted)
		case t.State == driver.Held:
			m.start(t, now)
		}
	}
	m.endGroup(name, now)
	return nil
}

func (m *model) truncate(now time.Time) (n int) {
	for _, g := range m.groups {
		g.cancelled, g.ended = true, true
	}
	for _, t := range slices.Clone(m.tasks) {
		lease := t.lease
		m.leave(t)
		m.gone(t, driver.EventDelete, now, lease, driver.ErrDeleted)
		n++
	}
	return n
}

func (m *model) leaveConsumer(now time.Time, id string, after time.Duration) {
	if after > 0 {
		m.consumers[id] = now.Add(after)
		m.left = append(slices.DeleteFunc(m.left, func(other string) bool { return other == id }), id)
		return
	}
	m.handBackAll(now, id)
	delete(m.consumers, id)
}

// resume is Rejoin for a consumer that is known.
func (m *model) resume(now time.Time, id string) []*modelTask {
	m.consumers[id] = time.Time{}
	held := m.heldBy(id)
	for _, t := range held {
		old := t.lease
		m.leases++
		t.lease = m.leases
		m.event(driver.EventResume, t, now, old)
	}
	return held
}

func (m *model) heldBy(id string) []*modelTask {
	held := slices.DeleteFunc(slices.Clone(m.tasks), func(t *modelTask) bool { return t.State != driver.Taken || t.Consumer != id })
	slices.SortFunc(held, func(a, b *modelTask) int { return cmp.Compare(a.lease, b.lease) })
	return held
}

func (m *model) outcome(uniqueKey string) (driver.Outcome, error) {
	for _, t := range m.tasks {
		if t.UniqueKey == uniqueKey {
			o := driver.Outcome{ID: t.ID, Done: t.State == driver.Buried}
			if o.Done {
				o.Err = m.outcomeOf(t)
			}
			return o, nil
		}
	}
	if o, ok := m.outcomes[uniqueKey]; ok {
		return o.Outcome, nil
	}
	return driver.Outcome{}, driver.ErrNotFound
}

func (m *model) numbers() driver.Stats {
	s := m.stats
	keys := map[string]bool{}
	for _, t := range m.tasks {
		keys[t.Key] = true
		switch t.State {
		case driver.Ready:
			s.Ready++
		case driver.Delayed:
			s.Delayed++
		case driver.Taken:
			s.Taken++
		case driver.Buried:
			s.Buried++
		case driver.Held:
			s.Held++
		}
	}
	s.Keys, s.Capacity, s.Paused = len(keys), m.s.Capacity, m.paused
	if s.Counted = s.Len(); m.s.CountOnlyWaiting {
		s.Counted = s.Ready + s.Delayed
	}
	return s
}
