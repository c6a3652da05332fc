package rows

import (
	"cmp"
	"slices"

	"github.com/fairq/fairq/internal/driver"
)

// readAhead has the turns that a search for ready tasks has returned for a filter, and that no
// call of the transaction has taken yet. The zero value has none.
//
// The invariant: its turns are the first Takeable ones that pass the filter, in order, without
// gaps. If all is true there are no others. So a change of the order must move turns here, or drop
// them all. A turn that comes behind the last one is not added, because unknown turns may come
// before it.
type readAhead struct {
	filter Filter
	turns  []ready
	all    bool // there are no others
}

// ready is a turn and its task. In a queue with lines the task is nil. In a queue without lines
// each task has its own turn.
type ready struct {
	*Turn
	task *Row
}

// readReady reads the first turns that pass a filter: n of them, or as many as all calls of the
// transaction want. In a queue with lines it also reads the turns of the keys in others.
func (u *unit) readReady(f Filter, n int, others ...string) {
	if f.equal(u.plan.Filter) {
		n = max(n, u.plan.Take)
	}
	if u.q.lines {
		u.readTurns(f, n+len(u.passed), others)
		return
	}
	found := u.holdThose(must(u.v.Ready(f, n)))
	u.readAhead = readAhead{filter: f, all: len(found) < n}
	for _, r := range found {
		t := &Turn{
			Line: r.line(), Task: r.ID, Round: r.Round, Used: r.Used, Place: r.Place, Leads: true,
			Takeable: true,
		}
		u.readAhead.turns = append(u.readAhead.turns, ready{t, r})
	}
}

// readTurns is readReady in a queue with lines. A turn that the search has found may have changed
// before its key was locked. So readTurns reads the turns of the keys again, and uses these.
func (u *unit) readTurns(f Filter, n int, others []string) {
	u.saveKeys()
	found := must(u.v.Turns().Scan(TurnRange(f, n)))
	u.readAhead = readAhead{filter: f, all: len(found) < n}
	keys := make([]string, len(found))
	var of []lineKind
	var ids []uint64
	for i, t := range found {
		keys[i] = t.Key
		at := t.id().lineKind
		if k := u.head.keys[t.Key]; t.Task == 0 && (k == nil || k.firsts[at] == nil) {
			of = append(of, at)
		} else if t.Task != 0 && !u.q.store.traits.Exclusive {
			ids = append(ids, t.Task)
		}
	}
	u.hold(keys...)
	keys = append(keys, others...)
	u.fetch(keys, of, ids)
	for _, t := range found {
		if t = u.turn(t.id()); t != nil && t.Takeable && f.passes(t) && !u.passed[t.id()] {
			u.readAhead.turns = append(u.readAhead.turns, ready{Turn: t})
		}
	}
	slices.SortFunc(u.readAhead.turns, inOrder)
}

// ready returns the first turn that can be taken and passes the filter; its Turn is nil if there
// is none. wanted is the number of turns for which the caller will ask.
func (u *unit) ready(f Filter, wanted int) (first ready) {
	a := &u.readAhead
	if !a.filter.equal(f) || len(a.turns) == 0 && !a.all {
		u.readReady(f, wanted)
	}
	if len(a.turns) > 0 {
		first = a.turns[0]
		a.turns = a.turns[1:]
	}
	return first
}

// forget removes a task with its own turn, if it is there. If r was read without its payload, it
// gets it.
func (a *readAhead) forget(r *Row) {
	i := slices.IndexFunc(a.turns, func(t ready) bool { return t.task != nil && t.task.ID == r.ID })
	if i >= 0 {
		if r.Payload == nil {
			r.Payload = a.turns[i].task.Payload
		}
		a.turns = slices.Delete(a.turns, i, i+1)
	}
}

// move puts a turn where it is now. A turn without tasks is not Takeable.
func (a *readAhead) move(now *Turn) {
	id := now.id()
	a.turns = slices.DeleteFunc(a.turns, func(t ready) bool { return t.id() == id })
	if !now.Takeable || !a.filter.passes(now) {
		return
	}
	t := ready{Turn: now}
	if i, _ := slices.BinarySearchFunc(a.turns, t, inOrder); i < len(a.turns) || a.all {
		a.turns = slices.Insert(a.turns, i, t)
	}
}

// everything is the filter that passes all.
var everything = Filter{MaxPriority: driver.MaxPriority}

func filterOf(f *driver.Filter) Filter {
	filter := Filter{MaxPriority: driver.MaxPriority, Kinds: f.Kinds}
	if f.MaxPriority != nil {
		filter.MaxPriority = *f.MaxPriority
	}
	return filter
}

func (f Filter) equal(other Filter) bool {
	return f.MaxPriority == other.MaxPriority && (f.Kinds == nil) == (other.Kinds == nil) &&
		slices.Equal(f.Kinds, other.Kinds)
}

func (f Filter) passes(t *Turn) bool {
	return t.Priority <= f.MaxPriority &&
		(f.Kinds == nil && t.Leads || slices.Contains(f.Kinds, t.Kind))
}

// inOrder compares turns by when they would be taken.
func inOrder(a, b ready) int {
	return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Round, b.Round),
		cmp.Compare(a.Place, b.Place))
}
