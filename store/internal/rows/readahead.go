package rows

import (
	"cmp"
	"slices"

	"github.com/fairq/fairq/internal/driver"
)

// readAhead is what Ready has returned for a filter and no call of the transaction has taken yet.
// The zero value knows nothing.
//
// The invariant: its rows are the first that can be taken and pass the filter, in order, and no
// other one is between them; if all is true there are no others. So a change of the order
// moves tasks in it, or drops all of it. A task behind its last row is left out, because unknown
// ones may come before it.
type readAhead struct {
	filter Filter
	rows   []*Row
	all    bool // there are no others
}

// readReady reads the first tasks that pass a filter: n, or as many as all calls of the
// transaction want.
func (u *unit) readReady(f Filter, n int) {
	if f.equal(u.plan.Filter) {
		n = max(n, u.plan.Take)
	}
	n += len(u.passed)
	found := u.holdThose(must(u.v.Ready(f, n)))
	all := len(found) < n
	found = slices.DeleteFunc(found, func(r *Row) bool { return u.passed[r.ID] })
	u.readAhead = readAhead{f, found, all}
}

// ready returns the first task that can be taken and passes the filter; nil if there is none.
// wanted is how many will be asked for.
func (u *unit) ready(f Filter, wanted int) *Row {
	a := &u.readAhead
	if !a.filter.equal(f) || len(a.rows) == 0 && !a.all {
		u.readReady(f, wanted)
	}
	if len(a.rows) == 0 {
		return nil
	}
	r := a.rows[0]
	a.rows = a.rows[1:]
	return r
}

// remove removes a task, if it is there. If r was read without its payload, it gets it.
func (a *readAhead) remove(r *Row) {
	if i := slices.IndexFunc(a.rows, func(other *Row) bool { return other.ID == r.ID }); i >= 0 {
		if r.Payload == nil {
			r.Payload = a.rows[i].Payload
		}
		a.rows = slices.Delete(a.rows, i, i+1)
	}
}

// move moves a task to where it is now.
func (a *readAhead) move(r *Row) {
	a.remove(r)
	if !r.Takeable || !a.filter.passes(r) {
		return
	}
	if i, _ := slices.BinarySearchFunc(a.rows, r, inOrder); i < len(a.rows) || a.all {
		a.rows = slices.Insert(a.rows, i, r)
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

func (f Filter) passes(r *Row) bool {
	return r.Priority <= f.MaxPriority &&
		(f.Kinds == nil && r.Front != Shares || slices.Contains(f.Kinds, r.Kind))
}

// inOrder compares tasks that can be taken by when they would be taken.
func inOrder(a, b *Row) int {
	return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Round, b.Round), byPlace(a, b))
}
