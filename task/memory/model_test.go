package memory_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/internal/life"
)

// modelStore is a store whose queues are models.
type modelStore struct{ driver.Store }

// model is a queue of tasks as one would first write it: a slice of tasks that is searched and
// sorted for each call. It has no heaps, no lists and no counters.
type model struct {
	driver.Backend // nil; storetest.Compare does not make the calls that are left to it
	s              driver.Settings
	notifier       driver.Notifier

	mu        sync.Mutex   // protects all that follows
	tasks     []*modelTask // in the order of their ids
	bands     map[int]*modelBand
	groups    map[string]*modelGroup
	outcomes  map[string]modelOutcome
	consumers map[string]*modelConsumer // known ones
	left      []string                  // the order in which some of them have
	paused    bool
	keys      map[string]bool      // paused ones
	waits     map[string]time.Time // until when keys wait, by HoldKey
	waitsFor  map[string]driver.ID // for failed tasks
	debts     map[string]*modelDebt
	limits    map[string]driver.KeyLimits // own ones of keys
	ids       driver.ID
	clock     int // counts places, buryings, and when tasks came to wait
	leases    uint64
	stats     driver.Stats

	// By key: for each task that is ready or delayed, when its place in the backlog was given.
	backlog map[string][]int
}

type modelTask struct {
	driver.Info
	payload any
	learned bool
	weight  int
	ends    time.Time // of its time to live
	latest  time.Time // when Replace delays it no more, zero for never
	place   int
	turn    int // the round in which it was taken, if it has a turn of its own
	buried  int // when
	was     driver.State
	waiting int // since when it has been ready or delayed, whichever it is
	lease   uint64
	untried bool // it was handed back untried, for the first time since it was tried
	follows driver.ID
}

type modelGroup struct{ started, cancelled, ended, joining bool }

type modelConsumer struct {
	epoch uint64
	gone  time.Time // when what it holds is lost; zero if it has not left
}

type modelOutcome struct {
	driver.Outcome
	until time.Time
}

func (modelStore) Open(
	_ context.Context, _ string, s driver.Settings, n driver.Notifier,
) (driver.Backend, error) {
	n.InMemory()
	return &model{
		s: s, notifier: n, bands: map[int]*modelBand{}, groups: map[string]*modelGroup{},
		outcomes: map[string]modelOutcome{}, consumers: map[string]*modelConsumer{},
		keys: map[string]bool{}, waits: map[string]time.Time{}, waitsFor: map[string]driver.ID{},
		debts:   map[string]*modelDebt{},
		backlog: map[string][]int{}, limits: map[string]driver.KeyLimits{},
	}, nil
}

// enter begins a call and makes the due changes. It returns the time, and the function that ends
// the call.
func (m *model) enter() (now time.Time, leave func()) {
	m.mu.Lock()
	now = time.Now()
	m.advance(now)
	return now, func() {
		if _, _, at := m.due(); !at.IsZero() {
			m.notifier.Due(at)
		}
		m.mu.Unlock()
	}
}

func (m *model) find(id driver.ID) *modelTask {
	for _, t := range m.tasks {
		if t.ID == id {
			return t
		}
	}
	return nil
}

func (m *model) count(which func(*modelTask) bool) (n int) {
	for _, t := range m.tasks {
		if which(t) {
			n++
		}
	}
	return n
}

func (m *model) tick() int { m.clock++; return m.clock }

func (m *model) event(what driver.EventType, t *modelTask, now time.Time, lease uint64) {
	r := t.record()
	m.notifier.Event(driver.Event{Type: what, Time: now, Task: r.Info(), Lease: lease})
}

// record returns the Record of a task, with its last state if it has none.
func (t *modelTask) record() driver.Record {
	r := driver.RecordOf(&t.Info)
	r.Rare.Metadata = maps.Clone(t.Metadata)
	r.Lease, r.Payload, r.State = t.lease, t.payload, cmp.Or(t.State, t.was)
	return r
}

func (m *model) put(
	now time.Time, n *driver.New,
) (id driver.ID, evicted []driver.Record, err error) {
	var first *modelTask // that runs
	for _, t := range m.tasks {
		if n.UniqueKey == "" || t.UniqueKey != n.UniqueKey {
			continue
		}
		if id, err := m.replace(now, t, n); id != 0 || err != nil {
			return id, nil, err
		}
		first = t
	}
	if g := m.groups[n.Group]; n.Group != "" && g != nil && g.cancelled {
		return 0, nil, driver.ErrGroupCancelled
	}
	counts := func(t *modelTask) bool {
		return t.State == driver.Ready || t.State == driver.Delayed || !m.s.CountOnlyWaiting
	}
	ofKey := m.count(func(t *modelTask) bool { return t.Key == n.Key && counts(t) })
	if ofKey >= m.s.KeyCapacity && m.s.KeyCapacity < m.s.Capacity {
		m.stats.Refused++
		return 0, nil, fairq.ErrKeyFull
	}
	free := m.s.Capacity - m.count(counts)
	if m.s.WhenFull == fairq.RejectOverShare && ofKey > 0 &&
		ofKey >= m.weight(n.Key, n.Weight)*(free-1) && m.s.Capacity > 1 {
		m.stats.Refused++
		return 0, nil, fairq.ErrKeyFull
	}
	if free <= 0 {
		t := m.heaviest(n)
		if t == nil {
			m.stats.Refused++
			return 0, nil, fairq.ErrFull
		}
		evicted = []driver.Record{t.record()}
		g := cmp.Or(m.groups[n.Group], &modelGroup{})
		g.joining = true // it does not end by making room for its own
		m.leave(t)
		m.gone(t, driver.EventEvict, now, 0, driver.ErrDeleted)
		g.joining = false
	}
	m.ids++
	t := &modelTask{payload: n.Payload, weight: n.Weight, learned: n.Learned, place: m.tick()}
	t.Info = driver.Info{
		ID: m.ids, Key: n.Key, Kind: n.Kind, UniqueKey: n.UniqueKey, Group: n.Group, Role: n.Role,
		Priority: n.Priority,
		Cost:     n.Cost, MaxAttempts: n.MaxAttempts, TTR: n.TTR, Created: now, Deadline: n.Deadline,
		Metadata: n.Metadata,
	}
	delay := t.delay(now, n)
	if n.TTL > 0 {
		t.ends = now.Add(n.TTL + delay)
	}
	t.useUntil()
	if delay > 0 {
		t.Until = now.Add(delay)
	}
	if n.Group != "" && m.groups[n.Group] == nil {
		m.groups[n.Group] = &modelGroup{}
	}
	m.tasks = append(m.tasks, t)
	m.stats.Puts++
	if first == nil {
		delete(m.outcomes, n.UniqueKey)
		m.wait(t, now)
	} else {
		t.UniqueKey, t.State, t.follows = "", driver.Held, first.ID
	}
	m.event(driver.EventPut, t, now, 0)
	m.expire(t, now)
	return t.ID, evicted, nil
}

// replace returns 0 if n has to follow t.
func (m *model) replace(now time.Time, t *modelTask, n *driver.New) (driver.ID, error) {
	members := t.Role == driver.Member && n.Role == driver.Member
	switch {
	case !n.Replace:
		return 0, driver.ErrDuplicate
	case t.State == driver.Buried || t.Key != n.Key || t.Kind != n.Kind || t.Group != n.Group ||
		!members:
		return 0, driver.ErrReplace
	case t.State == driver.Taken:
		if t = m.follower(t); t == nil {
			return 0, nil
		}
	}
	was, behind, delay := t.State, t.Priority != n.Priority, t.delay(now, n)
	ready := was == driver.Ready && delay == 0
	if ready && m.s.Quantum > 0 && t.Cost != n.Cost {
		behind = true
	}
	moves := was == driver.Delayed || was == driver.Ready && (behind || !ready)
	if moves {
		m.leave(t)
		m.newTurn(t)
	}
	if behind {
		t.place = m.tick()
	}
	t.payload, t.Priority, t.Cost, t.learned = n.Payload, n.Priority, n.Cost, n.Learned
	t.TTR, t.MaxAttempts, t.Metadata, t.Deadline = n.TTR, n.MaxAttempts, n.Metadata, n.Deadline
	t.Attempts, t.Err = 0, nil
	t.ends, t.Until = time.Time{}, time.Time{}
	if n.TTL > 0 {
		t.ends = now.Add(n.TTL + delay)
	}
	if t.useUntil(); delay > 0 {
		t.Until = now.Add(delay)
	}
	if moves {
		at := t.ReadyAt
		if m.wait(t, now); ready && was == driver.Ready {
			t.ReadyAt = at
		}
	}
	m.event(driver.EventChange, t, now, 0)
	m.endHold(t)
	m.expire(t, now)
	return t.ID, nil
}

// follower returns the task that follows another one, nil if there is none.
func (m *model) follower(first *modelTask) *modelTask {
	for _, t := range m.tasks {
		if t.follows == first.ID && t.State == driver.Held {
			return t
		}
	}
	return nil
}

// notTaken is called when a task is not taken any more, after all that is said of the task.
func (m *model) notTaken(first *modelTask, now time.Time) {
	t := m.follower(first)
	switch {
	case t == nil:
		return
	case m.expire(t, now):
		return
	}
	t.follows = 0
	if first.State == 0 || first.State == driver.Buried {
		t.UniqueKey, first.UniqueKey = first.UniqueKey, ""
		delete(m.outcomes, t.UniqueKey)
		m.start(t, now)
		return
	}
	n := driver.New{
		Key: t.Key, Payload: t.payload, Cost: t.Cost, Learned: t.learned, Priority: t.Priority,
		Kind:    t.Kind,
		Replace: true, Group: t.Group, Role: t.Role, Deadline: t.Deadline, TTR: t.TTR,
		MaxAttempts: t.MaxAttempts, Metadata: t.Metadata,
	}
	if t.Until.After(now) {
		n.Delay = t.Until.Sub(now)
	}
	if !t.ends.IsZero() {
		n.TTL = t.ends.Sub(now) - n.Delay
	}
	m.leave(t)
	m.gone(t, driver.EventDelete, now, 0, driver.ErrDeleted)
	first.latest = t.latest
	if _, err := m.replace(now, first, &n); err != nil {
		panic(err)
	}
}

// delay returns for how long n delays the task.
func (t *modelTask) delay(now time.Time, n *driver.New) time.Duration {
	if n.MaxDelay > 0 && t.latest.IsZero() {
		t.latest = now.Add(n.MaxDelay)
	}
	if end := now.Add(n.Delay); t.latest.IsZero() || end.Before(t.latest) {
		return n.Delay
	}
	return max(0, t.latest.Sub(now))
}

// useUntil finds out when the task expires.
func (t *modelTask) useUntil() {
	t.Expires = t.ends
	if !t.Deadline.IsZero() && (t.ends.IsZero() || t.Deadline.Before(t.ends)) {
		t.Expires = t.Deadline
	}
}

func (m *model) isWaiting(t *modelTask) bool {
	return t.State == driver.Ready || t.State == driver.Delayed
}

// heaviest returns the task that is evicted for n.
func (m *model) heaviest(n *driver.New) (victim *modelTask) {
	if m.s.WhenFull < fairq.EvictHeaviest {
		return nil
	}
	// Each key's backlog in rounds; the last one to get into the furthest round is the victim's.
	key, furthest, latest := "", -1, 0
	for _, t := range m.tasks {
		for i, given := range m.backlog[t.Key] {
			if round := i / t.weight; round > furthest || round == furthest && given > latest {
				key, furthest, latest = t.Key, round, given
			}
		}
	}
	own := (len(m.backlog[n.Key])+n.Weight-1)/n.Weight > furthest
	oldest := m.s.WhenFull == fairq.EvictOldest
	switch {
	case own && oldest:
		key = n.Key
	case own:
		return nil
	}
	for _, t := range m.tasks {
		if m.isWaiting(t) && t.Key == key && (victim == nil || (t.waiting > victim.waiting) != oldest) {
			victim = t
		}
	}
	return victim
}

// enlist records that a task is ready or delayed from now on.
func (m *model) enlist(t *modelTask) {
	t.waiting = m.tick()
	m.backlog[t.Key] = append(m.backlog[t.Key], t.waiting)
}

func (m *model) wait(t *modelTask, now time.Time) {
	g := m.groups[t.Group]
	switch {
	case t.Group != "" && (t.Role != driver.Member || !g.started):
		t.State = driver.Held
	case !t.Until.IsZero():
		t.State = driver.Delayed
		m.enlist(t)
	default:
		m.becomeReady(t, now)
	}
}

// leave takes a task out of its state.
func (m *model) leave(t *modelTask) {
	was := t.State
	if m.isWaiting(t) {
		m.backlog[t.Key] = m.backlog[t.Key][:len(m.backlog[t.Key])-1]
	}
	if t.State == driver.Taken {
		t.lease, t.Consumer, t.Until = 0, "", time.Time{}
	}
	if t.State, t.was = 0, was; was == driver.Ready {
		m.endHold(t)
	}
}

func (m *model) gone(
	t *modelTask, why driver.EventType, now time.Time, lease uint64, outcome error,
) {
	if t.was == driver.Taken {
		t.Until = time.Time{}
	}
	switch why {
	case driver.EventAck:
		m.stats.Acks++
	case driver.EventDelete:
		m.stats.Deletes++
	case driver.EventTTL:
		m.stats.Expiries++
		m.notifier.Expired(t.record())
	case driver.EventEvict:
		m.stats.Evicted++
	}
	m.event(why, t, now, lease)
	m.tasks = slices.DeleteFunc(m.tasks, func(o *modelTask) bool { return o == t })
	if t.UniqueKey != "" {
		o := driver.Outcome{ID: t.ID, Done: true, Err: outcome}
		m.outcomes[t.UniqueKey] = modelOutcome{o, now.Add(m.s.Retention)}
	}
	m.endGroup(t.Group, now)
	m.notTaken(t, now)
}

func (m *model) endGroup(name string, now time.Time) {
	g := m.groups[name]
	if g == nil || g.joining {
		return
	}
	members := m.count(func(t *modelTask) bool { return t.Group == name && t.Role == driver.Member })
	if g.started && members == 0 && !g.ended {
		g.ended = true
		for _, t := range slices.Clone(m.tasks) {
			switch {
			case t.Group != name:
			case g.cancelled == (t.Role == driver.AtAbort):
				t.Group = ""
				if t.State == driver.Held {
					m.start(t, now)
				}
			default:
				lease := t.lease
				m.leave(t)
				m.gone(t, driver.EventDelete, now, lease, driver.ErrDeleted)
			}
		}
	}
	if m.count(func(t *modelTask) bool { return t.Group == name }) == 0 {
		delete(m.groups, name)
	}
}

func (m *model) start(t *modelTask, now time.Time) {
	m.leave(t)
	if !t.Until.After(now) {
		t.Until = time.Time{}
	}
	m.newTurn(t)
	m.wait(t, now)
	m.event(driver.EventStart, t, now, 0)
}

func (m *model) newTurn(t *modelTask) {
	t.turn, t.untried = 0, false
	m.newPlace(t)
}

func (m *model) newPlace(t *modelTask) {
	if !m.s.KeepPlace {
		t.place = m.tick()
	}
}

func (m *model) outcomeOf(t *modelTask) error {
	if t.Err != nil {
		return t.Err
	}
	return driver.ErrDeleted
}

// handBackUntried is for a task that nobody has tried. It keeps its turn, if it has not just done
// so.
func (m *model) handBackUntried(t *modelTask, now time.Time) {
	m.stats.Releases++
	m.charge(t, -1)
	lease := t.lease
	m.leave(t)
	t.Attempts--
	if t.untried {
		m.newTurn(t)
	} else {
		t.untried = true
	}
	m.back(t, driver.EventRelease, now, lease)
}

// handBack is for a task that was tried in vain. It queues up like a new one.
func (m *model) handBack(
	t *modelTask, now time.Time, how driver.Settlement, why driver.EventType,
) {
	lease := t.lease
	m.leave(t)
	delay := how.Delay
	if how.Method == driver.Repeat {
		t.Attempts, t.Err = 0, nil
	} else if how.Method == driver.Snooze {
		t.Attempts--
	} else if t.MaxAttempts > 0 && t.Attempts >= t.MaxAttempts {
		if t.Err == nil {
			t.Err = &driver.Error{Message: fmt.Sprintf("not done after %d attempts", t.Attempts)}
		}
		m.event(why, t, now, lease)
		m.bury(t, now, 0)
		return
	}
	if delay > 0 {
		if !how.HoldKey {
			t.Until = now.Add(delay)
		}
		if !t.ends.IsZero() {
			t.ends = t.ends.Add(delay)
		}
		t.useUntil()
	}
	switch {
	case !how.HoldKey:
		m.newTurn(t)
	case how.Method == driver.Snooze && !t.untried: // it keeps its turn
		t.untried = true
	default:
		t.turn, t.untried = 0, false
	}
	g := m.groups[t.Group]
	ends := m.expired(t, now) || g != nil && g.cancelled && t.Role == driver.Member
	if how.HoldKey && delay > 0 && (how.Method == driver.Snooze || !ends) {
		m.hold(t.Key, now.Add(delay), now, life.Failed(&how, t.ID))
	}
	m.back(t, why, now, lease)
}

func (m *model) back(t *modelTask, why driver.EventType, now time.Time, lease uint64) {
	if g := m.groups[t.Group]; g != nil && g.cancelled && t.Role == driver.Member {
		m.event(why, t, now, lease)
		m.gone(t, driver.EventDelete, now, 0, driver.ErrDeleted)
		return
	}
	if m.expired(t, now) {
		m.event(why, t, now, lease)
		m.gone(t, driver.EventTTL, now, 0, driver.ErrExpired)
		return
	}
	m.wait(t, now)
	m.event(why, t, now, lease)
	m.notTaken(t, now)
}

func (m *model) expired(t *modelTask, now time.Time) bool {
	return !t.Expires.IsZero() && !t.Expires.After(now)
}

// expire ends a task that has expired.
func (m *model) expire(t *modelTask, now time.Time) bool {
	expired := m.expired(t, now)
	if expired {
		m.leave(t)
		m.gone(t, driver.EventTTL, now, 0, driver.ErrExpired)
	}
	return expired
}

func (m *model) bury(t *modelTask, now time.Time, lease uint64) {
	m.stats.Buries++
	t.Until, t.latest = time.Time{}, time.Time{}
	if g := m.groups[t.Group]; g != nil && g.cancelled && t.Role == driver.Member {
		m.event(driver.EventBury, t, now, lease)
		m.gone(t, driver.EventDelete, now, 0, m.outcomeOf(t))
		return
	}
	if m.expired(t, now) {
		m.event(driver.EventBury, t, now, lease)
		m.gone(t, driver.EventTTL, now, 0, m.outcomeOf(t))
		return
	}
	t.State, t.buried = driver.Buried, m.tick()
	m.event(driver.EventBury, t, now, lease)
	m.notTaken(t, now)
}

// due returns what happens next by itself, to a task or a consumer that has left, and when: never
// if that is zero. If it is neither, a key has waited long enough.
func (m *model) due() (next *modelTask, gone string, at time.Time) {
	sooner := func(w time.Time) bool { return !w.IsZero() && (at.IsZero() || w.Before(at)) }
	for _, until := range m.waits {
		if sooner(until) {
			at = until
		}
	}
	for _, t := range m.tasks {
		if (t.State == driver.Taken || t.State == driver.Delayed) && sooner(t.Until) {
			next, at = t, t.Until
		}
		if t.State != driver.Taken && sooner(t.Expires) {
			next, at = t, t.Expires
		}
	}
	for _, id := range m.left {
		if c := m.consumers[id]; c != nil && sooner(c.gone) {
			next, gone, at = nil, id, c.gone
		}
	}
	return next, gone, at
}

// advance makes the due changes in the order of their times.
func (m *model) advance(now time.Time) {
	for {
		t, gone, at := m.due()
		switch {
		case at.IsZero() || at.After(now):
			for uniqueKey, o := range m.outcomes {
				if !o.until.After(now) {
					delete(m.outcomes, uniqueKey)
				}
			}
			return
		case gone != "":
			for _, t := range m.heldBy(gone) {
				m.stats.Losses++
				m.handBack(t, at, driver.Settlement{Method: driver.Release}, driver.EventTTR)
			}
			delete(m.consumers, gone)
		case t == nil:
			maps.DeleteFunc(m.waits, func(_ string, until time.Time) bool { return !until.After(at) })
		case t.State == driver.Taken:
			m.stats.Losses++
			m.handBack(t, at, driver.Settlement{Method: driver.Release}, driver.EventTTR)
		case !t.Expires.IsZero() && !t.Expires.After(at):
			outcome := driver.ErrExpired
			if t.State == driver.Buried {
				outcome = m.outcomeOf(t)
			}
			m.leave(t)
			m.gone(t, driver.EventTTL, at, 0, outcome)
		default:
			m.leave(t)
			t.Until = time.Time{}
			m.newTurn(t)
			m.becomeReady(t, at)
			m.event(driver.EventDelay, t, at, 0)
		}
	}
}

func (*model) Joined(context.Context) *driver.Tx { return nil }
