package rows

import (
	"slices"

	"github.com/fairq/fairq/internal/driver"
)

// group returns the group of that name, a new one if there is none.
func (u *unit) group(name string) *Group {
	u.needGroup()
	if g := must(u.v.Group(name)); g != nil {
		return g
	}
	return &Group{Name: name}
}

// startGroup starts or cancels a group.
func (u *unit) startGroup(name string, cancel bool) error {
	g := u.group(name)
	if begins, err := g.Begin(name, cancel); !begins {
		return err
	}
	check(u.v.SetGroup(g))
	u.do(&work{What: beginGroup, Name: []byte(name)})
	return nil
}

// beginGroup starts or cancels the next n of the tasks that are in a group when that happens to
// it.
func (u *unit) beginGroup(w *work, n int) (done bool) {
	name := string(w.Name)
	cancel := u.group(name).Cancelled
	done = u.eachOf(u.tasksOf(w, n), n, func(r *Row) {
		w.ID = r.ID
		t := u.life(r)
		if cancel && t.Running() {
			u.event(driver.EventCancel, r, u.now, r.lease())
			u.changed = true // another process may hold it
		}
		if f := t.GroupBegins(cancel, u.now, &u.stats); f.Event != 0 {
			u.applyTransition(r, t, f, u.now)
		}
	})
	if done {
		u.endGroup(name, u.now)
	}
	return done
}

// tasksOf returns the next n tasks of the group that a work is about.
func (u *unit) tasksOf(w *work, n int) []*Row {
	rows := must(u.v.InGroup(string(w.Name), w.ID, n))
	return slices.DeleteFunc(rows, func(r *Row) bool { return w.Before != 0 && r.ID >= w.Before })
}

// leaveGroup counts a task out of its group that is gone.
func (u *unit) leaveGroup(r *Row, now int64) {
	if g := u.group(r.Group); g.Leave(r.Role) {
		check(u.v.SetGroup(g))
		u.endGroup(r.Group, now)
	}
}

// endGroup ends a group if it is time: of its tasks those become ready that are for this end, and
// the rest is deleted.
func (u *unit) endGroup(name string, now int64) {
	g := u.group(name)
	if !g.End() {
		return
	}
	check(u.v.SetGroup(g))
	u.do(&work{What: endGroup, Name: []byte(name), Time: now, Cancelled: g.Cancelled})
}

// endTasks ends the next n tasks of a group that has ended, or makes them ready.
func (u *unit) endTasks(w *work, n int) (done bool) {
	return u.eachOf(u.tasksOf(w, n), n, func(r *Row) {
		t := u.life(r)
		f := t.GroupEnds(w.Cancelled, w.Time, &u.stats)
		if f.State != 0 {
			r.Group = ""
		}
		u.applyTransition(r, t, f, w.Time)
	})
}

// deleteGroup deletes the next n tasks of a group. The row of the group is gone, so it has no end.
func (u *unit) deleteGroup(w *work, n int) (done bool) {
	u.purges = true
	defer func() { u.purges = false }()
	return u.eachOf(u.tasksOf(w, n), n, func(r *Row) { u.delete(r, endOfTruncate(w.Dropped), u.now) })
}
