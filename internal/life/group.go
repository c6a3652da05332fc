package life

import (
	"fmt"

	"github.com/fairq/fairq/task/driver"
)

// Group is what the rules must know of a group: how many tasks it has, and how many of them are
// members. One that has no tasks does not exist, so the zero Group is a new one.
type Group struct {
	Started, Cancelled bool
	Tasks, Members     int
}

// Admits returns the error of a Put of a task that is to be in the group.
func (g *Group) Admits(name string) error {
	if g.Cancelled {
		return fmt.Errorf("%w: %q", driver.ErrGroupCancelled, name)
	}
	return nil
}

// Join counts a task that is put into the group.
func (g *Group) Join(role driver.Role) {
	g.Tasks++
	if role == driver.Member {
		g.Members++
	}
}

// Leave counts a task out that is gone, and tells whether it did: not if the group is over, for
// End has counted all out.
func (g *Group) Leave(role driver.Role) bool {
	if g.Tasks == 0 {
		return false
	}
	g.Tasks--
	if role == driver.Member {
		g.Members--
	}
	return true
}

// Begin starts the group, or cancels it, and tells whether that changes anything. It returns the
// error of a call that cannot be made.
func (g *Group) Begin(name string, cancel bool) (bool, error) {
	switch {
	case g.Tasks == 0:
		return false, fmt.Errorf("%w: group %q", driver.ErrNotFound, name)
	case g.Cancelled && !cancel:
		return false, g.Admits(name)
	case g.Cancelled || g.Started && !cancel:
		return false, nil
	}
	g.Started, g.Cancelled = true, cancel
	return true, nil
}

// End ends the group if it was started or cancelled and has no members any more, and tells whether
// it does. The group has no tasks from then on: see Task.GroupEnds for what becomes of them. So it
// does not end again when they leave it, and what is put into it later begins a new one.
func (g *Group) End() bool {
	if !g.Started || g.Members > 0 || g.Tasks == 0 {
		return false
	}
	g.Tasks = 0
	return true
}

// GroupBegins returns what becomes of a task when its group is started or cancelled. If there is
// no Event, nothing does.
func (t *Task) GroupBegins(cancel bool, now int64, s *driver.Stats) Fate {
	switch {
	case t.Role != driver.Member:
	case cancel && t.State != driver.Taken:
		return t.Delete(driver.ErrDeleted, s)
	case t.State == driver.Held:
		return t.start(now)
	}
	return Fate{State: t.State}
}

// Running tells whether a task is a member that is taken: when its group is cancelled, its holder
// is told so.
func (t *Task) Running() bool { return t.State == driver.Taken && t.Role == driver.Member }

// GroupEnds returns what becomes of a task that is no member when all members are gone: whether
// the group was cancelled or not, the time of some has come. These are in no group any more.
func (t *Task) GroupEnds(cancelled bool, now int64, s *driver.Stats) Fate {
	switch {
	case cancelled != (t.Role == driver.AtAbort):
		return t.Delete(driver.ErrDeleted, s)
	case t.State == driver.Held:
		return t.start(now)
	}
	return Fate{State: t.State}
}

// start makes a task ready, or delayed, that its group has held.
func (t *Task) start(now int64) Fate {
	if t.Until <= now {
		t.Until = 0
	}
	return Fate{State: t.queue(now), Told: Told{Event: driver.EventStart}, Turn: NewTurn}
}
