package memory_test

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/fairq/fairq/internal/driver"
)

// This is what the model does at each call of a Backend.

func (m *model) Put(
	_ context.Context, tasks []driver.New, ids []driver.ID,
) (n int, evicted []driver.Record, err error) {
	now, leave := m.enter()
	defer leave()
	for i := range tasks {
		id, victim, err := m.put(now, &tasks[i])
		evicted = append(evicted, victim...)
		if err != nil {
			return i, evicted, err
		}
		ids[i] = id
	}
	return len(tasks), evicted, nil
}

func (m *model) PutOne(ctx context.Context, n driver.New) (driver.ID, *driver.Record, error) {
	return driver.PutOne(ctx, m, n)
}

func (m *model) Take(
	_ context.Context, by *driver.Taker, into []driver.Record,
) (n int, err error) {
	now, leave := m.enter()
	defer leave()
	if _, err := m.consumer(by.Handle); m.paused || err != nil {
		return 0, err
	}
	for ; n < len(into); n++ {
		t := m.next(&by.Filter)
		if t == nil {
			break
		}
		m.grant(t, now, by.ID)
		into[n] = t.record()
	}
	return n, nil
}

func (m *model) TakeOne(
	ctx context.Context, by *driver.Taker,
) (driver.Attempt, error) {
	return driver.TakeOne(ctx, m, by)
}

func (m *model) SettleAndTakeOne(
	ctx context.Context, lease driver.Lease, how driver.Settlement, by *driver.Taker,
) (driver.State, driver.Attempt, error) {
	return driver.SettleAndTakeOne(ctx, m, lease, how, by)
}

// consumer returns that of a handle, a new one if it is not known.
func (m *model) consumer(h driver.Handle) (*modelConsumer, error) {
	c := m.consumers[h.ID]
	if c == nil {
		c = &modelConsumer{epoch: h.Epoch}
		m.consumers[h.ID] = c
	}
	if c.epoch != h.Epoch {
		return nil, driver.ErrResumed
	}
	return c, nil
}

func (m *model) grant(t *modelTask, now time.Time, consumer string) {
	m.leases++
	m.stats.Takes++
	t.State, t.Consumer, t.lease, t.Until = driver.Taken, consumer, m.leases, time.Time{}
	t.latest = time.Time{}
	t.Attempts++
	if t.TTR > 0 {
		t.Until = now.Add(t.TTR)
	}
	m.charge(t, 1)
	m.event(driver.EventTake, t, now, 0)
}

func (m *model) TakeID(_ context.Context, h driver.Handle, id driver.ID) (driver.Record, error) {
	now, leave := m.enter()
	defer leave()
	if _, err := m.consumer(h); err != nil {
		return driver.Record{}, err
	}
	t := m.find(id)
	if t == nil {
		return driver.Record{}, driver.ErrNotFound
	}
	g := m.groups[t.Group]
	switch {
	case t.State == driver.Taken:
		return driver.Record{}, driver.ErrTaken
	case m.paused || m.blocked(t.Key) || t.follows != 0 && t.State == driver.Held ||
		g != nil && (t.Role != driver.Member || !g.started):
		return driver.Record{}, driver.ErrBlocked
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
	t.turn = 0
	if !m.s.KeepPlace {
		t.place = 0
	}
	m.grant(t, now, h.ID)
	return t.record(), nil
}

func (m *model) handBackAll(now time.Time, id string) {
	for _, t := range m.heldBy(id) {
		m.handBackUntried(t, now)
	}
}

// held returns the task of a lease, nil if that is lost.
func (m *model) held(l driver.Lease) *modelTask {
	if t := m.find(l.ID); t != nil && l.Number != 0 && t.lease == l.Number {
		return t
	}
	return nil
}

func (m *model) Settle(
	_ context.Context, l driver.Lease, how driver.Settlement,
) (driver.State, error) {
	now, leave := m.enter()
	defer leave()
	t := m.held(l)
	if t == nil {
		return 0, driver.ErrLeaseLost
	}
	if how.Err != nil {
		t.Err = how.Err
	}
	if !how.Ends() && how.Priority != t.Priority {
		t.Priority, t.place, t.turn = how.Priority, m.tick(), 0
	}
	switch how.Method {
	case driver.Bury:
		m.leave(t)
		m.bury(t, now, l.Number)
	case driver.Discard:
		m.leave(t)
		m.gone(t, driver.EventDelete, now, l.Number, how.Err)
	case driver.Ack:
		m.leave(t)
		m.gone(t, driver.EventAck, now, l.Number, nil)
	case driver.Return:
		m.handBackUntried(t, now)
	default:
		m.stats.Releases++
		m.handBack(t, now, how, driver.EventRelease)
	}
	state := driver.State(0)
	if of := m.find(l.ID); of != nil {
		state = of.State
	}
	return state, nil
}

func (m *model) Touch(_ context.Context, l driver.Lease, d time.Duration) (time.Time, error) {
	now, leave := m.enter()
	defer leave()
	t := m.held(l)
	if t == nil {
		return time.Time{}, driver.ErrLeaseLost
	}
	if d > 0 && !t.Until.IsZero() {
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
	m.newTurn(t)
	m.back(t, driver.EventKick, now, 0)
}

func (m *model) Kick(_ context.Context, o driver.ListOptions) (n int, err error) {
	now, leave := m.enter()
	defer leave()
	o.State = driver.Buried
	buried := m.some(&o)
	slices.SortFunc(buried, func(a, b *modelTask) int { return a.buried - b.buried })
	for _, t := range buried[:min(o.Limit, len(buried))] {
		if t.State == driver.Buried { // else its group has ended
			m.kick(t, now)
			n++
		}
	}
	return n, nil
}

// some returns tasks in the order of their ids.
func (m *model) some(o *driver.ListOptions) (all []*modelTask) {
	for _, t := range m.tasks {
		if (o.State == 0 || t.State == o.State) && (o.Key == nil || t.Key == *o.Key) &&
			(o.Kind == nil || t.Kind == *o.Kind) && (o.Group == "" || t.Group == o.Group) &&
			t.ID > o.After {
			all = append(all, t)
		}
	}
	return all
}

func (m *model) List(_ context.Context, o driver.ListOptions) (list []driver.Record, err error) {
	_, leave := m.enter()
	defer leave()
	all := m.some(&o)
	if o.NextFirst {
		slices.SortStableFunc(all, func(a, b *modelTask) int {
			if o.State == driver.Buried {
				return a.buried - b.buried
			}
			return a.next().Compare(b.next())
		})
	}
	for _, t := range all[:min(o.Limit, len(all))] {
		list = append(list, t.record())
	}
	return list, nil
}

// next returns when the delay of a task ends, or its life if that is sooner.
func (t *modelTask) next() time.Time {
	if t.Expires.IsZero() || t.Until.Before(t.Expires) {
		return t.Until
	}
	return t.Expires
}

func (m *model) Count(ctx context.Context, o driver.ListOptions) (int, error) {
	o.After, o.Limit = 0, math.MaxInt
	list, err := m.List(ctx, o)
	return len(list), err
}

func (m *model) Peek(_ context.Context, id driver.ID, uniqueKey string) (driver.Record, error) {
	_, leave := m.enter()
	defer leave()
	for _, t := range m.tasks {
		if t.ID == id || id == 0 && t.UniqueKey == uniqueKey {
			return t.record(), nil
		}
	}
	return driver.Record{}, driver.ErrNotFound
}

func (m *model) Change(
	_ context.Context, id driver.ID, what driver.Change, unlessTaken bool, reason *driver.Error,
) error {
	now, leave := m.enter()
	defer leave()
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

func (m *model) Amend(_ context.Context, id driver.ID, a driver.Amendment) error {
	now, leave := m.enter()
	defer leave()
	t := m.find(id)
	switch {
	case t == nil:
		return driver.ErrNotFound
	case t.State == driver.Taken:
		return driver.ErrTaken
	case a.Delay != nil && !m.isWaiting(t):
		return driver.ErrInvalid
	}
	delayed, moved := t.State == driver.Delayed, a.Priority != nil && *a.Priority != t.Priority
	delays := a.Delay != nil && (delayed || *a.Delay > 0)
	if a.Payload != nil {
		t.payload = *a.Payload
	}
	leaves := delays || moved && t.State == driver.Ready
	if leaves {
		m.leave(t)
		m.newTurn(t)
	}
	if moved {
		t.Priority, t.place = *a.Priority, m.tick()
	}
	if delays {
		until := now.Add(*a.Delay)
		was := now
		if delayed {
			was = t.Until
		}
		if !t.ends.IsZero() {
			t.ends = t.ends.Add(until.Sub(was))
		}
		t.useUntil()
		t.latest = time.Time{}
		if t.Until = until; *a.Delay == 0 {
			t.Until = time.Time{}
		}
	}
	switch {
	case leaves && t.Until.IsZero():
		at := t.ReadyAt
		if m.becomeReady(t, now); !delays {
			t.ReadyAt = at
		}
	case leaves:
		t.State = driver.Delayed
		m.enlist(t)
	}
	m.event(driver.EventChange, t, now, 0)
	return nil
}

func (m *model) Pause(_ context.Context, key *string, paused bool) error {
	_, leave := m.enter()
	defer leave()
	if key == nil {
		m.paused = paused
	} else {
		m.keys[*key] = paused
		if !paused {
			delete(m.waits, *key)
		}
	}
	return nil
}

func (m *model) HoldKey(_ context.Context, key string, d time.Duration) error {
	now, leave := m.enter()
	defer leave()
	m.hold(key, now.Add(d), now, 0)
	return nil
}

func (m *model) hold(key string, until, now time.Time, by driver.ID) {
	if m.waits[key].After(now) && m.waitsFor[key] != by {
		by = 0
	}
	if m.waitsFor[key] = by; until.After(m.waits[key]) {
		m.waits[key] = until
	}
}

// endHold ends the wait of a key for a failed task that is gone, or another one.
func (m *model) endHold(t *modelTask) {
	if m.waitsFor[t.Key] == t.ID {
		delete(m.waits, t.Key)
	}
}

func (m *model) Group(_ context.Context, name string, cancel bool) error {
	now, leave := m.enter()
	defer leave()
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

func (m *model) DeleteSome(_ context.Context, o driver.ListOptions) (n int, err error) {
	now, leave := m.enter()
	defer leave()
	for _, t := range m.some(&o) {
		if lease := t.lease; t.State != 0 &&
			(t.State == o.State || o.State == 0 && t.State != driver.Taken) {
			m.leave(t)
			m.gone(t, driver.EventDelete, now, lease, driver.ErrDeleted)
			n++
		}
	}
	return n, nil
}

func (m *model) Truncate(context.Context) (n int, err error) {
	now, leave := m.enter()
	defer leave()
	for _, g := range m.groups {
		g.cancelled, g.ended = true, true
	}
	for _, t := range slices.Clone(m.tasks) {
		lease := t.lease
		m.leave(t)
		for _, o := range m.tasks {
			o.follows = 0
		}
		m.gone(t, driver.EventDelete, now, lease, driver.ErrDeleted)
		n++
	}
	return n, nil
}

func (m *model) Leave(_ context.Context, h driver.Handle, after time.Duration) error {
	now, leave := m.enter()
	defer leave()
	c, err := m.consumer(h)
	switch {
	case err != nil:
		return err
	case after > 0:
		c.gone = now.Add(after)
		m.left = append(slices.DeleteFunc(m.left, func(other string) bool { return other == h.ID }),
			h.ID)
		return nil
	}
	m.handBackAll(now, h.ID)
	delete(m.consumers, h.ID)
	return nil
}

func (m *model) Return(_ context.Context, h driver.Handle) error {
	now, leave := m.enter()
	defer leave()
	if c := m.consumers[h.ID]; c != nil && c.epoch != h.Epoch {
		return driver.ErrResumed
	}
	m.handBackAll(now, h.ID)
	return nil
}

func (m *model) Rejoin(
	_ context.Context, id string,
) (epoch uint64, list []driver.Record, err error) {
	now, leave := m.enter()
	defer leave()
	c := m.consumers[id]
	if c == nil {
		return 0, nil, driver.ErrNotFound
	}
	c.epoch++
	c.gone = time.Time{}
	for _, t := range m.heldBy(id) {
		old := t.lease
		m.leases++
		t.lease = m.leases
		m.event(driver.EventResume, t, now, old)
		list = append(list, t.record())
	}
	return c.epoch, list, nil
}

// heldBy returns the tasks of a consumer in the order in which it took them.
func (m *model) heldBy(id string) []*modelTask {
	held := slices.DeleteFunc(slices.Clone(m.tasks), func(t *modelTask) bool {
		return t.State != driver.Taken || t.Consumer != id
	})
	slices.SortFunc(held, func(a, b *modelTask) int { return cmp.Compare(a.lease, b.lease) })
	return held
}

func (m *model) Outcome(_ context.Context, uniqueKey string) (driver.Outcome, error) {
	_, leave := m.enter()
	defer leave()
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

func (m *model) Stats(context.Context) (driver.Stats, error) {
	_, leave := m.enter()
	defer leave()
	s := m.stats
	for _, k := range m.keyStats() {
		s.Ready += k.Ready
		s.Delayed += k.Delayed
		s.Taken += k.Taken
		s.Buried += k.Buried
		s.Held += k.Held
		s.Keys += min(k.Len(), 1)
	}
	s.Capacity, s.Paused = m.s.Capacity, m.paused
	if s.Counted = len(m.tasks); m.s.CountOnlyWaiting {
		s.Counted = s.Ready + s.Delayed
	}
	return s, nil
}

func (m *model) KeyStats(context.Context, int) (list []driver.KeyStat, err error) {
	_, leave := m.enter()
	defer leave()
	for _, k := range m.keyStats() {
		if k.Len() > 0 || k.Paused {
			list = append(list, *k)
		}
	}
	return list, nil
}

// keyStats returns the numbers of all keys.
func (m *model) keyStats() map[string]*driver.KeyStat {
	all := map[string]*driver.KeyStat{}
	for key, paused := range m.keys {
		all[key] = &driver.KeyStat{
			Key: key, Paused: paused, WaitsUntil: m.until(key), HeldUntil: m.waits[key],
		}
	}
	for _, t := range m.tasks {
		k := all[t.Key]
		if k == nil {
			k = &driver.KeyStat{Key: t.Key}
			all[t.Key] = k
		}
		k.WaitsUntil, k.HeldUntil = m.until(t.Key), m.waits[t.Key]
		*map[driver.State]*int{
			driver.Ready: &k.Ready, driver.Delayed: &k.Delayed, driver.Taken: &k.Taken,
			driver.Buried: &k.Buried, driver.Held: &k.Held,
		}[t.State]++
		if m.isWaiting(t) && k.Oldest.IsZero() {
			k.Oldest = t.Created
		}
	}
	return all
}

func (m *model) Tick(context.Context) (time.Time, error) {
	_, leave := m.enter()
	defer leave()
	_, _, next := m.due()
	return next, nil
}

func (m *model) Close() error { return nil }
