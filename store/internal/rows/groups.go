package rows

import (
	"fmt"

	"github.com/fairq/fairq/task"
)

// group returns the group of that name, a new one if there is none.
func (u *unit) group(name string) *Group {
	u.needAlone()
	if g := must(u.v.Group(name)); g != nil {
		return g
	}
	return &Group{Name: name}
}

func (u *unit) joinGroup(r *Row, g *Group) {
	g.Tasks++
	if r.Role == task.Member {
		g.Members++
	}
	check(u.v.SetGroup(g))
}

// startGroup starts or cancels a group.
func (u *unit) startGroup(name string, cancel bool) error {
	g := u.group(name)
	switch {
	case g.Tasks == 0:
		return fmt.Errorf("%w: group %q", task.ErrNotFound, name)
	case g.Cancelled && !cancel:
		return fmt.Errorf("%w: %q", task.ErrGroupCancelled, name)
	case g.Cancelled || g.Started && !cancel:
		return nil
	}
	g.Started, g.Cancelled = true, cancel
	check(u.v.SetGroup(g))
	for _, r := range must(u.v.InGroup(name)) {
		switch {
		case r.Role != task.Member:
		case cancel && r.State != task.Taken:
			u.delete(u.refiled(r), task.ErrDeleted, u.now)
		case r.State == task.Held:
			u.start(r, u.now)
		}
	}
	u.endGroup(name, u.now)
	return nil
}

// start makes a task ready that its group held.
func (u *unit) start(r *Row, now int64) {
	t := r.life()
	u.befall(r, t, t.Start(now), now)
}

// leaveGroup counts a task out of its group that is gone.
func (u *unit) leaveGroup(r *Row, now int64) {
	g := u.group(r.Group)
	if g.Tasks == 0 {
		return // the group is over: endGroup has counted all out
	}
	if g.Tasks--; r.Role == task.Member {
		g.Members--
	}
	check(u.v.SetGroup(g))
	u.endGroup(r.Group, now)
}

// endGroup ends a group that is started, or cancelled, and has no members any more: of the other tasks it makes ready those
// whose time has come, and removes the rest.
func (u *unit) endGroup(name string, now int64) {
	g := u.group(name)
	if !g.Started || g.Members > 0 || g.Tasks == 0 {
		return
	}
	rows := must(u.v.InGroup(name))
	check(u.v.SetGroup(&Group{Name: name}))
	role := task.AtEnd
	if g.Cancelled {
		role = task.AtAbort
	}
	for _, r := range rows {
		switch {
		case r.Role != role:
			u.delete(r, task.ErrDeleted, now)
		case r.State == task.Held:
			r.Group = ""
			u.start(r, now)
		default:
			r.Group = ""
			u.update(r)
		}
	}
}
