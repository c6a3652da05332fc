package memory

import (
	"context"
	"maps"
	"slices"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/internal/life"
)

// group is some tasks that wait for each other.
type group struct {
	life.Group
	name  string
	tasks map[*item]struct{}
}

// Values implements [life.GroupOf].
func (g *group) Values() *life.Group { return &g.Group }

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
	g.Join(it.Role)
}

// Group implements driver.Backend.
func (q *queue) Group(_ context.Context, name string, cancel bool) error {
	now, err := q.enter()
	if err != nil {
		return err
	}
	defer q.exit()
	now = q.clock(now)
	g := q.group(name)
	if begins, err := g.Begin(name, cancel); !begins {
		return err
	}
	for _, it := range g.sorted() {
		if it.group() != g { // it has ended by what became of those before
			continue
		}
		if cancel && it.Running() {
			q.event(driver.EventCancel, it, now, it.lease)
		}
		q.apply(it, it.GroupBegins(cancel, now, &q.stats), now)
	}
	q.endGroup(g, now)
	return nil
}

// sorted returns the group's tasks in the order in which they were put.
func (g *group) sorted() []*item {
	return slices.SortedFunc(maps.Keys(g.tasks), func(a, b *item) int {
		return int(a.id) - int(b.id)
	})
}

// leaveGroup takes a task that is gone out of its group.
func (q *queue) leaveGroup(it *item, g *group, now int64) {
	delete(g.tasks, it)
	if g.Leave(it.Role) {
		q.endGroup(g, now)
	}
}

// endGroup ends a group if it is time: it makes the tasks for this kind of end ready, and removes
// the others.
func (q *queue) endGroup(g *group, now int64) {
	ends := g.End()
	if g.Tasks == 0 {
		delete(q.groups, g.name)
	}
	if !ends {
		return
	}
	now = q.clock(now)
	for _, it := range g.sorted() {
		f := it.GroupEnds(g.Cancelled, now, &q.stats)
		if f.State != 0 {
			it.Group = nil
			delete(g.tasks, it)
		}
		q.apply(it, f, now)
	}
}
