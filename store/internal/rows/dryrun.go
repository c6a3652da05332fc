package rows

import (
	"maps"
	"slices"

	"github.com/fairq/fairq/internal/account"
)

// dryRun is a View in which the rules see what they write, but nothing of it gets into the
// database, and nothing is locked. So the rules themselves find out what takes would do. It is good
// for takes only: what is written can be read again in the tables of tasks and of who was served,
// and not in the others.
type dryRun struct {
	View
	head   *Head
	tasks  map[uint64]*Row // those that were written; nil if they are deleted
	served map[Line]*Served
	number uint64
}

// dryRun returns a unit for takes that do not happen. It shares no cache with u: what it learns
// would be wrong there.
func (u *unit) dryRun(takes int) *unit {
	u.closeGaps()
	u.saveKeys()
	head := *u.head
	head.Rounds = maps.Clone(head.Rounds)
	head.cache = cache{map[Line]account.Account{}, map[uint64]bool{}, map[uint64]*Row{}}
	v := &dryRun{
		View: u.v.View, head: &head, tasks: map[uint64]*Row{}, served: map[Line]*Served{},
		number: 1 << 62, // greater than each that was given
	}
	q := newQueue(u.q.store, u.q.number, u.q.name, u.q.settings)
	q.joined = true
	plan := &wants{Plan: Plan{Exclusive: true}, Take: takes, Filter: everything}
	return &unit{q: q, v: Calls{v}, plan: plan, head: &head, now: u.now}
}

func (t *dryRun) Head() *Head { return t.head }

func (t *dryRun) Number() (uint64, error) {
	t.number++
	return t.number, nil
}

func (t *dryRun) Fetch(ranges ...Range) error {
	ranges = slices.Clone(ranges)
	for i, r := range ranges {
		if r.Index <= TaskEvictable {
			ranges[i] = t.stored(r)
		}
	}
	return t.View.Fetch(ranges...)
}

func (t *dryRun) Tasks() Table[Row]          { return dryTasks{t, t.View.Tasks()} }
func (t *dryRun) Keys() Table[Key]           { return readOnly[Key]{t.View.Keys()} }
func (t *dryRun) Served() Table[Served]      { return dryServed{t, t.View.Served()} }
func (t *dryRun) Consumers() Table[Consumer] { return readOnly[Consumer]{t.View.Consumers()} }
func (t *dryRun) Groups() Table[Group]       { return readOnly[Group]{t.View.Groups()} }
func (t *dryRun) Outcomes() Table[Outcome]   { return readOnly[Outcome]{t.View.Outcomes()} }
func (t *dryRun) History() Table[Ended]      { return readOnly[Ended]{t.View.History()} }

// readOnly is a table whose writes are forgotten.
type readOnly[R any] struct{ Table[R] }

func (readOnly[R]) Put(*R) error      { return nil }
func (readOnly[R]) Delete(*R) error   { return nil }
func (readOnly[R]) Sweep(Range) error { return nil }

type dryServed struct {
	*dryRun
	Table[Served]
}

func (t dryServed) Put(s *Served) error {
	t.served[s.Line] = new(*s)
	return nil
}

// Scan is asked for one line, or for what takes do not change.
func (t dryServed) Scan(r Range) ([]*Served, error) {
	found, err := t.Table.Scan(r)
	if r.Index != ServedLine {
		return found, err
	}
	for line, s := range t.served {
		if p := r.Prefixes[0]; p[0] == num(line.Priority) && p[1] == line.Key {
			return []*Served{new(*s)}, err
		}
	}
	return found, err
}

type dryTasks struct {
	*dryRun
	Table[Row]
}

func (t dryTasks) Put(r *Row) error {
	row := *r
	t.tasks[r.ID] = &row
	return nil
}

func (t dryTasks) Delete(r *Row) error {
	t.tasks[r.ID] = nil
	return nil
}

// noPayload is the payload of all rows here. It is not nil, or the rules would read it.
var noPayload = []byte{}

// stored returns the range to read from the database: with so many more rows that enough are left
// without those that were written here.
func (t *dryRun) stored(r Range) Range {
	r.Payload, r.Lock = false, NoLock
	if r.Limit > 0 {
		r.Limit += len(t.tasks)
	}
	return r
}

func (t dryTasks) Scan(r Range) ([]*Row, error) {
	found, err := t.Table.Scan(t.stored(r))
	if len(t.tasks) > 0 {
		found = slices.DeleteFunc(found, func(row *Row) bool {
			_, written := t.tasks[row.ID]
			return written
		})
		for _, row := range t.tasks {
			if row != nil {
				found = append(found, new(*row))
			}
		}
		found = Tasks.Select(&r, slices.Values(found))
	}
	for _, row := range found {
		row.Payload = noPayload
	}
	return found, err
}
