package rows

import (
	"math"
	"slices"
)

// work is a change of more tasks than one transaction may write: see Traits.MaxWrites. The
// settings of the queue keep the part that is still to be done. The invariant: while such a part
// is left, nothing else happens in the queue. Each transaction of any process first does some of
// it, and runs its calls only if nothing is left then. So no call sees half of the change, and the
// change ends even if the process that began it dies.
type work struct {
	What workType
	Name []byte // of the group or key; JSON would change a string that is not valid UTF-8

	Time      int64  `json:",omitempty"` // of endGroup: the time of the end
	Cancelled bool   `json:",omitempty"` // of endGroup
	Dropped   bool   `json:",omitempty"` // of deleteGroup: the outcome; of forgetCounts: full buckets
	Before    uint64 `json:",omitempty"` // tasks with this id and greater ones were put later
	From, To  uint64 `json:",omitempty"` // of moveLeases: the numbers of the consumer

	// The place at which it goes on.
	ID    uint64   `json:",omitempty"` // of beginGroup and countTasks: the last task
	Place [3]int64 // of parkTasks: in TaskLine, after the key
}

// page returns the next n tasks in TaskLine. pass notes each task that was handled.
func (w *work) page(n int) Range {
	p := Range{Index: TaskLine, Limit: n}
	if w.Name != nil {
		p.From = Tuple{string(w.Name), w.Place[0], w.Place[1], w.Place[2]}
	}
	return p
}

// pass notes that the work goes on behind a task.
func (w *work) pass(r *Row) {
	w.Name = []byte(r.Key)
	w.Place = [3]int64{num(r.Priority), num(r.Round), num(r.Place + 1)}
}

type workType uint8

const (
	beginGroup workType = iota // start or cancel the tasks of a group
	endGroup
	deleteGroup
	moveLeases // to the new number of a resumed consumer
	parkTasks  // in a queue that gets lines
	showTurns  // of a key that was blocked or freed, or whose lines have changed
	// The parts of rebuild and recountKeys, see there.
	forgetCounts
	countTasks
	showAllTurns
)

// do does a work, and leaves the part that this transaction may not write to others.
func (u *unit) do(w *work) {
	if !u.doSome(w) {
		u.leaveWork(w)
	}
}

// leaveWork leaves the rest of a work to other transactions.
func (u *unit) leaveWork(w *work) {
	u.needExclusive()
	if w.Before == 0 {
		w.Before = u.number()
	}
	s := u.q.settings
	s.Work = append(slices.Clone(s.Work), *w)
	u.setSettings(s)
	u.schedule(u.now)
}

// maxWork is the number of tasks after which a transaction leaves the rest of a work to others. So
// none takes as long as its timeout.
const maxWork = 10 * pageSize

// doSome does as much of a work as the transaction may, and reports whether that was all.
func (u *unit) doSome(w *work) (done bool) {
	n := u.room(math.MaxInt)
	if !u.q.joined {
		n = min(n, maxWork)
	}
	for ; n > 0 && !done; n -= pageSize {
		if u.workLeft() || u.isLarge() { // they are done in order
			return false
		}
		done = u.doPage(w, min(n, pageSize))
	}
	return done
}

// doPage does the next part of a work, for at most n tasks, and reports whether that was the last
// one.
func (u *unit) doPage(w *work, n int) (done bool) {
	switch w.What {
	case beginGroup:
		return u.beginGroup(w, n)
	case endGroup:
		return u.endTasks(w, n)
	case deleteGroup:
		return u.deleteGroup(w, n)
	case moveLeases:
		_, done := u.moveLeases(w, n)
		return done
	case parkTasks:
		return u.park(w, n)
	case showTurns:
		return u.showSome(w, n)
	case forgetCounts:
		return u.forgetCounts(w, n)
	case countTasks:
		return u.countTasks(w, n)
	case showAllTurns:
		return u.showAll(w, n)
	}
	panic("rows: a work of no type")
}

// workLeft reports whether work is left to other transactions.
func (u *unit) workLeft() bool { return len(u.q.settings.Work) > 0 }

// each calls f with the tasks, one after the other, and reports whether it has handled all of
// them. It stops when the transaction has written as much as it may. It also stops when f has left
// work to other transactions, because nothing else may happen before that work is done.
func (u *unit) each(tasks []*Row, f func(*Row)) (done bool) {
	for _, r := range tasks {
		if u.workLeft() || u.isLarge() {
			return false
		}
		f(r)
	}
	return true
}

// eachOf is each for the tasks that a read of at most n has found. It reports whether no others
// are left: the read has found fewer than n, and each has handled all of them.
func (u *unit) eachOf(tasks []*Row, n int, f func(*Row)) (done bool) {
	return u.each(tasks, f) && len(tasks) < n
}

// goOn does a part of the work that earlier transactions have left, and reports whether that was
// all.
func (u *unit) goOn() bool {
	if !u.workLeft() {
		return true
	}
	u.needExclusive()
	s := u.q.settings
	left := s.Work
	s.Work = nil
	u.setSettings(s)
	for i := range left {
		u.do(&left[i])
	}
	return !u.workLeft()
}
