package memory

import (
	"context"
	"fmt"
	"slices"

	"github.com/fairq/fairq/task/driver"
)

// group is some tasks that wait for each other.
type group struct {
	name      string
	started   bool
	cancelled bool
	ended     bool
	members   int  // those that are not AtEnd or AtAbort
	joining   bool // a task is about to be put into it, so it does not end
	tasks     map[*item]struct{}
}

// heldByGroup tells whether the task must not be ready because of its group.
func (it *item) heldByGroup() bool {
	return it.more != nil && it.more.group != nil && (it.more.role != driver.Member || !it.more.group.started)
}

func (it *item) group() string {
	if it.more == nil || it.more.group == nil {
		return ""
	}
	return it.more.group.name
}

// group returns the group of that name, a new one if there is none.
func (q *queue) group(name string) *group {
	if g := q.groups[name]; g != nil {
		return g
	}
	return &group{name: name, tasks: map[*item]struct{}{}}
}

func (q *queue) joinGroup(it *item, g *group, role driver.Role) {
	q.groups[g.name] = g
	it.more.group, it.more.role = g, role
	g.tasks[it] = struct{}{}
	if role == driver.Member {
		g.members++
	}
}

// Group implements driver.Backend.
func (q *queue) Group(_ context.Context, name string, cancel bool) error {
	now, err := q.enter()
	if err != nil {
		return err
	}
	defer q.mu.Unlock()
	now = q.sure(now)
	g := q.groups[name]
	switch {
	case g == nil:
		return fmt.Errorf("%w: group %q", driver.ErrNotFound, name)
	case g.cancelled && !cancel:
		return fmt.Errorf("%w: %q", driver.ErrGroupCancelled, name)
	case g.cancelled || g.started && !cancel:
		return nil
	}
	g.started, g.cancelled = true, cancel
	for _, it := range g.sorted(driver.Member) {
		switch {
		case cancel && it.state != driver.Taken:
			q.unset(it)
			q.gone(it, driver.EventDelete, now, 0, driver.ErrDeleted)
		case it.state == driver.Held:
			q.release(it, now)
		}
	}
	q.endGroup(g, now)
	return nil
}

// sorted returns the group's tasks of some roles in the order in which they were put.
func (g *group) sorted(roles ...driver.Role) (tasks []*item) {
	for it := range g.tasks {
		if slices.Contains(roles, it.more.role) {
			tasks = append(tasks, it)
		}
	}
	slices.SortFunc(tasks, func(a, b *item) int { return int(a.id) - int(b.id) })
	return tasks
}

// release makes a task ready that its group held.
func (q *queue) release(it *item, now int64) {
	q.unset(it)
	if it.until <= now {
		it.until = 0
	}
	q.newTurn(it)
	q.wait(it, now)
	q.event(driver.EventStart, it, now, 0)
}

// leaveGroup takes a task that is gone out of its group.
func (q *queue) leaveGroup(it *item, g *group, now int64) {
	delete(g.tasks, it)
	if it.more.role == driver.Member {
		g.members--
	}
	q.endGroup(g, now)
}

// endGroup ends a group that is started, or cancelled, and has no members any more: of the other tasks it makes ready those
// whose time has come, and removes the rest.
func (q *queue) endGroup(g *group, now int64) {
	if g.joining {
		return
	}
	if g.started && g.members == 0 && !g.ended {
		g.ended = true
		now = q.sure(now)
		role := driver.AtEnd
		if g.cancelled {
			role = driver.AtAbort
		}
		for _, it := range g.sorted(driver.AtEnd, driver.AtAbort) {
			if it.more.role == role {
				it.more.group = nil
				delete(g.tasks, it)
				if it.state == driver.Held {
					q.release(it, now)
				}
			} else {
				q.unset(it)
				q.gone(it, driver.EventDelete, now, 0, driver.ErrDeleted)
			}
		}
	}
	if len(g.tasks) == 0 {
		delete(q.groups, g.name)
	}
}
