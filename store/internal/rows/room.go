package rows

import (
	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/life"
	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/driver"
)

// makeRoom finds out whether there is room for a task, and makes it if it may.
func (u *unit) makeRoom(n *driver.New, g *Group) (victim *driver.Record, err error) {
	s := &u.q.settings
	if s.KeyCapacity < s.Capacity {
		if held := s.Counted(&u.key(n.Key).Tasks); held >= s.KeyCapacity {
			return nil, &fairq.FullError{Len: held, Limit: s.KeyCapacity, Key: true}
		}
	}
	if s.Capacity >= fairq.MaxLen || u.counted() < s.Capacity {
		return nil, nil
	}
	if u.q.evicts {
		if r := u.victim(n); r != nil {
			r = must(u.v.Get(r.ID, true))
			record := u.record(r)
			if g != nil && r.Group == g.Name { // the group does not end by this, for a task is about to be put into it
				g.Tasks++
				g.Members++
				check(u.v.SetGroup(g))
				defer u.backInGroup(g)
			}
			t := r.life()
			u.befall(r, t, t.Evict(&u.stats), u.now)
			return &record, nil
		}
	}
	return nil, &fairq.FullError{Len: u.counted(), Limit: s.Capacity}
}

// counted returns how many tasks count in the capacity.
func (u *unit) counted() int {
	tasks := must(u.v.Counts())
	return u.q.settings.Counted(&tasks)
}

// freed makes known that there is room if a task leaves a state that counts for one that does not.
func (u *unit) freed(r *Row, to task.State) {
	if s := &u.q.settings; s.KeyCapacity < fairq.MaxLen && s.Counts(r.Was) && !s.Counts(to) {
		u.notice(notice{what: room, kind: r.Key})
		u.changed = true
	}
}

// backInGroup undoes that a group was made to count one more.
func (u *unit) backInGroup(g *Group) {
	*g = *u.group(g.Name)
	g.Tasks--
	g.Members--
	check(u.v.SetGroup(g))
}

// victim returns the task that is evicted for a new one, nil if none may be. See fairq.EvictHeaviest and fairq.EvictOldest.
func (u *unit) victim(n *driver.New) *Row {
	u.saveKeys()
	heaviest := must(u.v.Heaviest())
	if heaviest == nil || heaviest.Load == 0 {
		return nil
	}
	k := u.key(n.Key)
	load := life.Rounds(k.Tasks[task.Ready]+k.Tasks[task.Delayed], n.Weight)
	of, ok := life.Evicts(u.q.settings.WhenFull, n.Key, load, heaviest.Key, heaviest.Load)
	switch {
	case !ok:
		return nil
	case u.q.settings.WhenFull == fairq.EvictOldest:
		return must(u.v.Oldest(of))
	}
	return must(u.v.Newest(of))
}
