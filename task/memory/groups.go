package memory

import (
	"context"
	"maps"
	"slices"

	"github.com/fairq/fairq/internal/life"
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

// Standing implements [life.Group].
func (g *group) Standing() (started, cancelled bool) { return g.started, g.cancelled }

// group returns the group that the task is in, nil if it is in none.
func (it *item) group() *group {
	if it.Rare == nil {
		return nil
	}
	g, _ := it.Group.(*group)
	return g
}

func (it *item) groupName() string {
	if g := it.group(); g != nil {
		return g.name
	}
	return ""
}

// group returns the group of that name, a new one if there is none.
func (q *queue) group(name string) *group {
	if g := q.groups[name]; g != nil {
		return g
	}
	return &group{name: name, tasks: map[*item]struct{}{}}
}

func (q *queue) joinGroup(it *item, g *group) {
	q.groups[g.name] = g
	it.Group = g
	g.tasks[it] = struct{}{}
	if it.Role == driver.Member {
		g.members++
	}
}

// Group implements driver.Backend.
func (q *queue) Group(_ context.Context, name string, cancel bool) error {
	now, err := q.enter()
	if err != nil {
		return err
	}
	defer q.exit()
	now = q.sure(now)
	g := q.group(name)
	if begins, err := life.Begins(g, name, len(g.tasks), cancel); !begins {
		return err
	}
	g.started, g.cancelled = true, cancel
	for _, it := range g.sorted() {
		if it.group() != g { // it has ended by what became of those before
			continue
		}
		if cancel && it.Running() {
			q.event(driver.EventCancel, it, now, it.lease)
		}
		q.befall(it, it.GroupBegins(cancel, now, &q.stats), now)
	}
	q.endGroup(g, now)
	return nil
}

// sorted returns the group's tasks in the order in which they were put.
func (g *group) sorted() []*item {
	return slices.SortedFunc(maps.Keys(g.tasks), func(a, b *item) int { return int(a.id) - int(b.id) })
}

// leaveGroup takes a task that is gone out of its group.
func (q *queue) leaveGroup(it *item, g *group, now int64) {
	delete(g.tasks, it)
	if it.Role == driver.Member {
		g.members--
	}
	q.endGroup(g, now)
}

// endGroup ends a group that is started, or cancelled, and has no members any more: of the other
// tasks it makes ready those whose time has come, and removes the rest.
func (q *queue) endGroup(g *group, now int64) {
	if g.joining {
		return
	}
	if g.started && g.members == 0 && !g.ended {
		g.ended = true
		now = q.sure(now)
		for _, it := range g.sorted() {
			f := it.GroupEnds(g.cancelled, now, &q.stats)
			if f.State != 0 {
				it.Group = nil
				delete(g.tasks, it)
			}
			q.befall(it, f, now)
		}
	}
	if len(g.tasks) == 0 {
		delete(q.groups, g.name)
	}
}
