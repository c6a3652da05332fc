package rows

import (
	"cmp"
	"math"
	"slices"

	"github.com/fairq/fairq/task"
)

// rebuild makes the rows of a queue what they must be with its settings, which have changed. The tasks that are ready are put
// anew, in the order in which they would have been taken.
func (u *unit) rebuild() {
	weights := map[string]int{}
	var ready []*Row
	u.lines = map[string]*lines{}
	clear(u.head.lasts)
	clear(u.head.taken)
	for after := task.ID(0); ; {
		page := must(u.v.List(task.ListOptions{After: after, Limit: pageSize}))
		for _, r := range page {
			after, weights[r.Key] = task.ID(r.ID), r.Weight
			if r.Payload = nil; r.State == task.Ready {
				ready = append(ready, &Row{ID: r.ID, Key: r.Key, Priority: r.Priority, Round: r.Round, Seq: r.Seq, Place: r.Place})
			}
			u.reset(r)
		}
		if len(page) < pageSize {
			break
		}
	}
	u.recountKeys(weights)
	slices.SortFunc(ready, inOrder)
	for _, old := range ready {
		r := must(u.v.Get(old.ID, false))
		u.set(r, task.Ready)
		u.update(r)
		u.refile(r, turn{}, turn{})
	}
}

// reset takes a task out of all indexes that depend on the settings.
func (u *unit) reset(r *Row) {
	waits := r.State == task.Ready || r.State == task.Delayed
	if r.Takeable, r.Counted = false, waits && u.q.evicts; r.State != task.Taken { // one that is handed back is first
		r.Round = 0
	}
	if r.Counted {
		r.Since = u.number()
	}
	if u.q.reserves && r.State != task.Ready && r.State != task.Taken {
		u.turn(r)
	}
	check(u.v.Update(r))
}

// recountKeys writes the rows of the table of keys anew.
func (u *unit) recountKeys(weights map[string]int) {
	u.saveKeys() // what is paused
	u.keys = nil
	all := must(u.v.KeyStats(math.MaxInt32))
	for some := range slices.Chunk(all, pageSize) {
		var keys []string
		for _, k := range some {
			keys = append(keys, k.Key)
		}
		u.read(false, keys...)
	}
	for _, known := range all {
		k := u.key(known.Key)
		k.Weight, k.Tasks = max(1, weights[k.Key]), known.Tasks
		if !u.q.counts {
			k.Tasks = [task.Held + 1]int{}
		}
		k.Load = u.load(k)
		u.unsaved[k] = true
	}
	u.saveKeys()
}

// inOrder compares tasks that are ready by when they would be taken.
func inOrder(a, b *Row) int {
	if (a.Round == 0) != (b.Round == 0) { // the one that is parked comes later
		return cmp.Compare(b.Round, a.Round)
	}
	return cmp.Or(cmp.Compare(a.Priority, b.Priority), a.turn().compare(b.turn()), cmp.Compare(a.Place, b.Place))
}
