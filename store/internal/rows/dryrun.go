package rows

import (
	"maps"
	"slices"
)

// dryRun is a View in which the rules see what they write, but nothing of it gets into the
// database, and nothing is locked. So the rules themselves compute the results of takes. Counts
// and KeyStats do not change.
type dryRun struct {
	View
	head   *Head
	number uint64
	tables map[Index]any // overlays by the primary key
	writes int           // rows that were written
}

// dryRun returns a unit for takes that do not happen. It shares no cache with u: what it learns
// would be wrong there.
func (u *unit) dryRun(takes int) *unit {
	u.closeGaps()
	u.saveKeys()
	head := *u.head
	head.Rounds = maps.Clone(head.Rounds)
	head.cache = newCache()
	v := &dryRun{View: u.v.View, head: &head, tables: map[Index]any{}, number: 1 << 62} // greater than each that was given
	q := newQueue(u.q.store, u.q.number, u.q.name, u.q.settings)
	q.joined = true
	plan := &wants{Plan: Plan{Exclusive: true}, Take: takes, Filter: everything}
	return &unit{q: q, v: Calls{v}, plan: plan, head: &head, now: u.now, unsaved: map[*Key]bool{}, moved: map[uint64]*Row{}}
}

func (t *dryRun) Head() *Head { return t.head }

func (t *dryRun) Number() (uint64, error) {
	t.number++
	return t.number, nil
}

func (t *dryRun) Fetch(ranges ...Range) error {
	ranges = slices.Clone(ranges)
	for i, r := range ranges {
		ranges[i] = t.stored(r)
	}
	return t.View.Fetch(ranges...)
}

// stored returns the range to read from the database: with a greater limit, so that enough rows
// are left without the rows written here.
func (t *dryRun) stored(r Range) Range {
	r.Payload, r.Lock = false, NoLock
	if r.Limit > 0 {
		r.Limit += t.writes
	}
	return r
}

func (t *dryRun) Tasks() Table[Row]          { return over(t, View.Tasks, Tasks) }
func (t *dryRun) Keys() Table[Key]           { return over(t, View.Keys, Keys) }
func (t *dryRun) Served() Table[Served]      { return over(t, View.Served, ServedLines) }
func (t *dryRun) Consumers() Table[Consumer] { return over(t, View.Consumers, Consumers) }
func (t *dryRun) Groups() Table[Group]       { return over(t, View.Groups, Groups) }
func (t *dryRun) Outcomes() Table[Outcome]   { return over(t, View.Outcomes, Outcomes) }
func (t *dryRun) History() Table[Ended]      { return over(t, View.History, History) }

// overlay is a table of a dry run: that of the database, but for the rows that were written.
type overlay[R any] struct {
	Table[R]
	run     *dryRun
	schema  Schema[R]
	written map[[2]any]*R // by primary key; nil if it is deleted
}

func over[R any](t *dryRun, of func(View) Table[R], schema Schema[R]) Table[R] {
	primary := schema[0].Index
	if t.tables[primary] == nil {
		t.tables[primary] = &overlay[R]{of(t.View), t, schema, map[[2]any]*R{}}
	}
	return t.tables[primary].(*overlay[R])
}

func (o *overlay[R]) at(r *R) (key [2]any) {
	copy(key[:], o.schema[0].Place(r))
	return key
}

func (o *overlay[R]) write(key [2]any, r *R) {
	if _, again := o.written[key]; !again {
		o.run.writes++
	}
	o.written[key] = r
}

func (o *overlay[R]) Put(r *R) error {
	o.write(o.at(r), new(*r))
	return nil
}

func (o *overlay[R]) Delete(r *R) error {
	o.write(o.at(r), nil)
	return nil
}

// Sweep does nothing, because outdated rows do no harm.
func (o *overlay[R]) Sweep(Range) error { return nil }

func (o *overlay[R]) Scan(r Range) ([]*R, error) {
	found, err := o.Table.Scan(o.run.stored(r))
	if len(o.written) > 0 {
		found = slices.DeleteFunc(found, func(row *R) bool {
			_, written := o.written[o.at(row)]
			return written
		})
		for _, row := range o.written {
			if row != nil {
				found = append(found, new(*row))
			}
		}
		found = o.schema.Select(&r, slices.Values(found))
	}
	for _, row := range found {
		if task, ok := any(row).(*Row); ok {
			task.Payload = noPayload
		}
	}
	return found, err
}

// noPayload is the payload of all tasks here. It is not nil, or the rules would read it.
var noPayload = []byte{}
