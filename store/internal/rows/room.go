package rows

import (
	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/internal/life"
)

// checkRoom returns nil if there is room for a task. A queue with a capacity is always
// entered exclusively (mode.exclusive): two transactions that each find one place free would both
// put a task.
func (u *unit) checkRoom(n *driver.New) *fairq.FullError {
	counted, ofKey, weight := 0, 0, n.Weight
	if u.q.settings.Capacity < fairq.MaxLen {
		tasks := must(u.v.Counts())
		counted = u.q.settings.Counted(&tasks)
		u.updateCrowded(counted)
	}
	if u.q.countsKeys {
		k := u.key(n.Key)
		ofKey, weight = u.q.settings.Counted(&k.Tasks), life.Weight(weight, u.limits(k))
	}
	return life.Room(&u.q.settings.Settings, weight, counted, ofKey)
}

// updateCrowded makes the queue count the tasks of each key as soon as one may be over its share,
// and stops that when the queue is only half as full. So as long as there is room for everybody,
// the rows of keys are neither read nor written; and as the two limits differ, all keys are
// rarely counted again.
func (u *unit) updateCrowded(counted int) {
	s := u.q.settings
	crowded := life.Crowded(&s.Settings, counted)
	if crowded == s.Crowded ||
		!crowded && (u.q.store.traits.MaxWrites > 0 || life.Crowded(&s.Settings, 2*counted)) {
		return
	}
	u.needExclusive()
	s.Crowded = crowded
	counts := u.q.countsKeys
	if u.setSettings(s); counts == u.q.countsKeys {
		return // it counts by key anyway
	}
	u.recountKeys()
}

// noteRoom reports room if a task leaves a state that counts for a state that does not.
func (u *unit) noteRoom(r *Row, to driver.State) {
	if s := &u.q.settings; s.KeyCapacity < fairq.MaxLen && s.Counts(r.Was) && !s.Counts(to) {
		u.notify(func(n driver.Notifier) { n.Room(r.Key) })
		u.changed = true
	}
}
