package rows

import (
	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/life"
	"github.com/fairq/fairq/task/driver"
)

// makeRoom finds out whether there is room for a task, and evicts another one if that may be. A
// queue with a capacity is always entered exclusively (mode.exclusive): two transactions that each
// find one place free would both put a task.
func (u *unit) makeRoom(n *driver.New, g *Group) (victim *driver.Record, err error) {
	counted, ofKey := 0, 0
	if u.q.settings.Capacity < fairq.MaxLen {
		tasks := must(u.v.Counts())
		counted = u.q.settings.Counted(&tasks)
		u.updateCrowded(counted)
	}
	if u.q.countsKeys {
		ofKey = u.q.settings.Counted(&u.key(n.Key).Tasks)
	}
	evicts, err := life.Room(&u.q.settings.Settings, n.Weight, counted, ofKey)
	if !evicts {
		return nil, err
	}
	r := u.victim(n)
	if r == nil {
		return nil, err
	}
	r = must(u.v.Get(r.ID, true))
	record := u.record(r)
	// If the victim is of the group that the new task is put into, the group must not end by the
	// eviction, though it may have no other member. So it counts one more meanwhile.
	if g != nil && r.Group == g.Name {
		g.Join(driver.Member)
		check(u.v.SetGroup(g))
		defer u.backInGroup(g)
	}
	t := u.life(r)
	u.applyFate(r, t, t.Evict(&u.stats), u.now)
	return &record, nil
}

// updateCrowded makes the queue count the tasks of each key as soon as one may be over its share,
// and stops that when the queue is only half as full. So as long as there is room for everybody,
// the rows of keys are neither read nor written; and as the two limits differ, all keys are counted
// anew only rarely.
func (u *unit) updateCrowded(counted int) {
	s := u.q.settings
	crowded := life.Crowded(&s.Settings, counted)
	if crowded == s.Crowded || !crowded && (u.q.store.traits.MaxWrites > 0 || life.Crowded(&s.Settings, 2*counted)) {
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

// noteRoom notes that there is room if a task goes from a state that counts to one that does not.
func (u *unit) noteRoom(r *Row, to driver.State) {
	if s := &u.q.settings; s.KeyCapacity < fairq.MaxLen && s.Counts(r.Was) && !s.Counts(to) {
		u.tell(func(n driver.Notifier) { n.Room(r.Key) })
		u.changed = true
	}
}

// backInGroup undoes that a group counts one more, see makeRoom.
func (u *unit) backInGroup(g *Group) {
	*g = *u.group(g.Name)
	g.Leave(driver.Member)
	check(u.v.SetGroup(g))
}

// victim returns the task that is evicted for a new one, nil if none may be. See
// fairq.EvictHeaviest and fairq.EvictOldest.
func (u *unit) victim(n *driver.New) *Row {
	u.saveKeys()
	heaviest := must(u.v.Heaviest())
	if heaviest == nil || heaviest.Load == 0 {
		return nil
	}
	k := u.key(n.Key)
	load := life.Rounds(k.Tasks[driver.Ready]+k.Tasks[driver.Delayed], n.Weight)
	of, ok := life.Evicts(u.q.settings.WhenFull, n.Key, load, heaviest.Key, heaviest.Load)
	if !ok {
		return nil
	}
	return must(u.v.Victim(of, u.q.settings.WhenFull == fairq.EvictHeaviest))
}
