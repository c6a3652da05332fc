package rows

import (
	"cmp"
	"slices"

	"github.com/fairq/fairq/task/driver"
)

// rebuild makes the rows of a queue what they must be with its settings, which have changed. It has
// three steps: take all tasks out of the indexes that depend on the settings, count the keys anew,
// and give turns. Lines come in the order in which their tasks would have been taken, and the tasks
// of a line in the order of their places. Nobody else has the queue open then (see open), so it may
// take its time; but it is one transaction, as tasks without turns would be lost if it ended in the
// middle.
//
// Turns that were used (of tasks that are taken, or were handed back) are not given anew: they stay
// with the line, and go to those of the same tasks that come first, in order.
func (u *unit) rebuild() {
	var used, rest []*Row
	clear(u.head.accounts)
	clear(u.head.taken)
	u.eachTask(func(r *Row) {
		was := &Row{ID: r.ID, Key: r.Key, Priority: r.Priority}
		was.setTurn(r.turn())
		if u.reset(r); r.Round != 0 {
			used = append(used, was)
		}
		if was.Place = r.Place; r.State == driver.Ready || u.q.turnAtPut && r.State != driver.Taken {
			rest = append(rest, was)
		}
	})
	u.recountKeys()
	u.inPlace(used, func(r *Row, was turn) {
		r.setTurn(was)
		r.Returned = r.State == driver.Ready
		u.update(r)
	})
	u.inPlace(rest, func(r *Row, _ turn) {
		if u.q.turnAtPut && r.Round == 0 {
			u.giveTurn(r)
		}
		if r.State != driver.Ready {
			u.update(r)
			return
		}
		u.set(r, driver.Ready)
		u.update(r)
		u.updateFront(r, turn{}, turn{})
	})
}

// inPlace calls f with each turn of some rows, in order, and with the row that gets it: of its line
// the first one in the order of places that has none yet.
func (u *unit) inPlace(rows []*Row, f func(r *Row, t turn)) {
	lines := map[Line][]*Row{}
	for _, r := range rows {
		lines[r.line()] = append(lines[r.line()], r)
	}
	for _, line := range lines {
		slices.SortFunc(line, byPlace)
	}
	slices.SortFunc(rows, inOrder)
	for _, old := range rows {
		l := old.line()
		f(must(u.v.Get(lines[l][0].ID, false)), old.turn())
		lines[l] = lines[l][1:]
	}
}

// reset takes a task out of all indexes that depend on the settings.
func (u *unit) reset(r *Row) {
	waits := r.State == driver.Ready || r.State == driver.Delayed
	// A turn that was used makes its task the first, or will when it is handed back.
	used := u.hasUsedTurn(r) || r.State == driver.Ready && r.Returned
	if r.Takeable, r.Evictable = false, waits && u.q.evicts; !used {
		r.setTurn(turn{})
	}
	if r.Evictable {
		r.Since = u.number()
	}
	if u.q.settings.KeepPlace && r.Place == 0 {
		r.Place = r.ID // as if it had kept it
	}
	check(u.v.Put(r))
}

// hasUsedTurn tells whether a task is taken and has used its turn. One that was taken by its id has
// not: it has a turn only where tasks have theirs all the time.
func (u *unit) hasUsedTurn(r *Row) bool {
	return r.State == driver.Taken && (u.q.turnAtPut || r.Round <= u.currentRound(r.Priority))
}

// recountKeys writes the rows of the table of keys anew, as their tasks are.
func (u *unit) recountKeys() {
	u.saveKeys() // what is paused
	u.keys, u.readyTasks = map[string]*Key{}, map[string]*readyTasks{}
	known := func(key string) *Key {
		if u.keys[key] == nil {
			u.keys[key] = &Key{Key: key, Weight: 1}
		}
		return u.keys[key]
	}
	if u.unsaved == nil {
		u.unsaved = map[*Key]bool{}
	}
	for _, k := range must(u.v.AllKeys()) {
		known(k.Key).Paused = k.Paused
		u.unsaved[known(k.Key)] = true
	}
	if u.q.countsKeys {
		u.eachTask(func(r *Row) { u.count(known(r.Key), r, 0, r.State) })
	}
	u.saveKeys()
}

// eachTask calls f for all tasks of the queue, in the order of their ids.
func (u *unit) eachTask(f func(*Row)) {
	for last, more := uint64(0), true; more; {
		page := must(u.v.Rows(Range{Index: TaskID, From: after(last), Limit: pageSize}))
		for _, r := range page {
			last = r.ID
			f(r)
		}
		more = len(page) == pageSize
	}
}

// inOrder compares tasks that are ready by when they would be taken.
func inOrder(a, b *Row) int {
	if (a.Round == 0) != (b.Round == 0) { // a parked one comes later
		return cmp.Compare(b.Round, a.Round)
	}
	return cmp.Or(cmp.Compare(a.Priority, b.Priority), a.turn().compare(b.turn()), cmp.Compare(a.Place, b.Place))
}
