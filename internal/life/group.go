package life

import (
	"fmt"

	"github.com/fairq/fairq/internal/driver"
)

// Group is the state of a group, with the number of its tasks and of the members among them. A
// group without tasks does not exist, so the zero Group is a new group.
type Group struct {
	Started, Cancelled bool
	Tasks, Members     int
}

// Admits returns the error of a Put into the group, nil if the group takes further tasks.
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

// Leave subtracts a task that has left, and reports whether it did. It does not after End, which
// has subtracted all tasks.
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

// Begin starts the group, or cancels it, and reports whether that changes anything. It returns
// ErrNotFound if the group has no tasks, and ErrGroupCancelled for the start of a cancelled group.
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

// End ends the group if it was started or cancelled and has no members left, and reports whether
// it does. Then the group has no tasks: it cannot end again when its AtEnd and AtAbort tasks leave
// (see Task.GroupEnds), and a later Put begins a new group.
func (g *Group) End() bool {
	if !g.Started || g.Members > 0 || g.Tasks == 0 {
		return false
	}
	g.Tasks = 0
	return true
}

// GroupBegins returns the transition of a task when its group is started or cancelled. Without an
// Event nothing changes.
func (t *Task) GroupBegins(cancel bool, now int64, s *driver.Stats) Transition {
	switch {
	case t.Role != driver.Member:
	case cancel && t.State != driver.Taken:
		return t.Delete(driver.ErrDeleted, s)
	case t.State == driver.Held:
		return t.Start(now)
	}
	return Transition{State: t.State}
}

// Running reports whether a task is a taken member. The store notifies its consumer when the group
// is cancelled.
func (t *Task) Running() bool { return t.State == driver.Taken && t.Role == driver.Member }

// GroupEnds returns the transition of an AtEnd or AtAbort task when all members have left. AtAbort
// tasks become ready if the group was cancelled, AtEnd tasks if not; the others are deleted. A
// ready task then has no group.
func (t *Task) GroupEnds(cancelled bool, now int64, s *driver.Stats) Transition {
	switch {
	case cancelled != (t.Role == driver.AtAbort):
		return t.Delete(driver.ErrDeleted, s)
	case t.State == driver.Held:
		return t.Start(now)
	}
	return Transition{State: t.State}
}

// Start makes a held task ready, or delayed if its delay is not over.
func (t *Task) Start(now int64) Transition {
	if t.Until <= now {
		t.Until = 0
	}
	return Transition{State: t.queue(now), Events: Events{Event: driver.EventStart}, Turn: NewTurn}
}
