package rows

import (
	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/life"
	"github.com/fairq/fairq/task/driver"
)

// makeRoom finds out whether there is room for a task, and makes it if it may.
func (u *unit) makeRoom(n *driver.New, g *Group) (victim *driver.Record, err error) {
	counted, ofKey := 0, 0
	if u.q.settings.Capacity < fairq.MaxLen {
		counted = u.counted()
		u.crowd(counted)
	}
	if u.q.counts {
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

// crowd begins to count the tasks of each key where one may be over its share, and ends it when the
// queue is half as full as that. So as long as there is enough room for everybody, the rows of keys
// are neither read nor written, and to count all of them anew is rare.
func (u *unit) crowd(counted int) {
	s := u.q.settings
	crowded := life.Crowded(&s.Settings, counted)
	if crowded == s.Crowded || !crowded && life.Crowded(&s.Settings, 2*counted) {
		return
	}
	u.needAlone()
	s.Crowded = crowded
	u.q.set(s)
	u.head.Settings, u.saves = u.q.text, true
	weights := map[string]int{}
	for last := uint64(0); crowded; {
		page := must(u.v.Rows(Range{Index: TaskID, From: after(last), Limit: pageSize}))
		for _, r := range page {
			weights[r.Key], last = r.Weight, r.ID
		}
		crowded = len(page) == pageSize
	}
	u.recountKeys(weights)
}

// counted returns how many tasks count in the capacity.
func (u *unit) counted() int {
	tasks := must(u.v.Counts())
	return u.q.settings.Counted(&tasks)
}

// freed makes known that there is room if a task leaves a state that counts for one that does not.
func (u *unit) freed(r *Row, to driver.State) {
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
	switch {
	case !ok:
		return nil
	case u.q.settings.WhenFull == fairq.EvictOldest:
		return must(u.v.Oldest(of))
	}
	return must(u.v.Newest(of))
}
