package rows

import (
	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/internal/life"
)

// checkRoom returns nil if there is room for a task. A queue with a capacity is always entered
// exclusively (mode.exclusive), or two transactions could find the same place free and both put a
// task.
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

// updateCrowded makes the queue count the tasks of each key as soon as a key may be over its
// share. It stops the counting when the queue is only half as full. So while there is room for
// everybody, the rows of keys are neither read nor written. The two limits differ so that the
// tasks of all keys are rarely counted again.
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
