package life

import (
	"fmt"

	"github.com/fairq/fairq/task/driver"
)

// Begins tells whether a group is started, or cancelled, by a call that wants that. It returns the
// error of a call that cannot be made. A group that has no tasks, or that is nil, does not exist.
func Begins(g Group, name string, tasks int, cancel bool) (bool, error) {
	if tasks == 0 {
		return false, fmt.Errorf("%w: group %q", driver.ErrNotFound, name)
	}
	started, cancelled := g.Standing()
	if cancelled && !cancel {
		return false, fmt.Errorf("%w: %q", driver.ErrGroupCancelled, name)
	}
	return !cancelled && (cancel || !started), nil
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
	return Fate{State: t.queue(now), Event: driver.EventStart, NewTurn: true}
}
