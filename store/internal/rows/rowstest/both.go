package rowstest

import (
	"bytes"
	"maps"
	"slices"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/store/internal/rows"
)

// views is a View that makes each call to two others, and compares what they return: got, the View
// of a driver, and want, the View of the model.
type views struct {
	*txs
	id        uint64
	got, want rows.View
	model     *memView     // is want
	planned   []rows.Range // of the Plan
	dropped   bool
	given     []uint64 // numbers
}

func (v *views) Tasks() rows.Table[rows.Row] {
	return bothTable[rows.Row]{v, v.got.Tasks(), v.want.Tasks(), v.model.tasks()}
}

func (v *views) Turns() rows.Table[rows.Turn]         { return both(v, rows.View.Turns) }
func (v *views) Keys() rows.Table[rows.Key]           { return both(v, rows.View.Keys) }
func (v *views) Served() rows.Table[rows.Served]      { return both(v, rows.View.Served) }
func (v *views) Consumers() rows.Table[rows.Consumer] { return both(v, rows.View.Consumers) }
func (v *views) Groups() rows.Table[rows.Group]       { return both(v, rows.View.Groups) }
func (v *views) Outcomes() rows.Table[rows.Outcome]   { return both(v, rows.View.Outcomes) }
func (v *views) History() rows.Table[rows.Ended]      { return both(v, rows.View.History) }

// bothTable is a table of the driver and one of the model.
type bothTable[R any] struct {
	*views
	got, want rows.Table[R]
	rows      memTable[R] // of the model
}

func both[R any](v *views, of func(rows.View) rows.Table[R]) bothTable[R] {
	want := of(v.want).(memTable[R])
	return bothTable[R]{v, of(v.got), want, want}
}

// Scan compares the rows that both find. They must be in order; rows in the same place may differ.
func (b bothTable[R]) Scan(r rows.Range) ([]*R, error) {
	b.t.Helper()
	what := b.note("%s.Scan(%#v)", b.rows.name, r)
	got, err := b.got.Scan(r)
	b.must(what, err)
	lock := r.Lock
	r.Lock = rows.NoLock // only what the driver has returned is to be locked
	want, err := b.want.Scan(r)
	b.must(what+" of the model", err)
	var places, wanted []rows.Tuple
	for i, row := range got {
		same := func(other *R) bool { return b.rows.of(other) == b.rows.of(row) }
		kept := b.rows.get(b.rows.of(row))
		place := b.rows.schema.Place(r.Index, row)
		if kept == nil || place == nil || slices.ContainsFunc(got[:i], same) {
			b.fail("%s returned a row that there is not, or twice:\n\t%s", what, show(row))
		}
		places = append(places, place)
		if r.Turns {
			b.equal(what, turnOf(row), turnOf(kept))
		} else {
			b.equal(what, row, whole(kept, row, r.Payload))
		}
		if lock != rows.NoLock {
			b.model.tx.lock(b.rows.of(row), false)
		}
	}
	for _, row := range want {
		wanted = append(wanted, b.rows.schema.Place(r.Index, row))
	}
	prefix := 0
	if len(r.Prefixes) > 0 {
		prefix = len(r.Prefixes[0])
	}
	from := prefix
	if r.Each || len(want) > 0 && prefix == len(wanted[0]) { // those of a prefix are in order
		from = 0
		byPrefix := func(a, b rows.Tuple) int { return a[:prefix].Compare(b[:prefix]) }
		slices.SortStableFunc(places, byPrefix)
		slices.SortStableFunc(wanted, byPrefix)
	}
	same := func(a, b rows.Tuple) bool { return a[from:].Compare(b[from:]) == 0 }
	if !slices.EqualFunc(places, wanted, same) {
		b.fail("%s returned\n\t%s\nthe model:\n\t%s", what, show(got), show(want))
	}
	return got, nil
}

// whole returns what a driver should have returned for a row. It may return a payload that was not
// asked for.
func whole[R any](kept, got *R, payload bool) *R {
	c := copyOf(kept, true)
	if r, ok := any(c).(*rows.Row); ok {
		g := any(got).(*rows.Row)
		if r.Was = g.Was; !payload && !bytes.Equal(g.Payload, r.Payload) {
			r.Payload = nil
		}
	}
	return c
}

func (b bothTable[R]) Put(r *R) error {
	b.t.Helper()
	b.write("Put", r, rows.Table[R].Put)
	return nil
}

func (b bothTable[R]) Delete(r *R) error {
	b.t.Helper()
	b.write("Delete", r, rows.Table[R].Delete)
	return nil
}

// write makes a call with a row that is not used any more after it.
func (b bothTable[R]) write(name string, r *R, f func(rows.Table[R], *R) error) {
	b.t.Helper()
	what := b.note("%s.%s(%s)", b.rows.name, name, show(r))
	mine, its := copyOf(r, true), copyOf(r, true)
	b.must(what, f(b.got, mine))
	b.must(what+" of the model", f(b.want, its))
	*mine = *new(R)
}

// Sweep lets the driver choose which rows to delete, and deletes the same ones of the model.
func (b bothTable[R]) Sweep(r rows.Range) error {
	b.t.Helper()
	what := b.note("%s.Sweep(%#v)", b.rows.name, r)
	b.must(what, b.got.Sweep(r))
	due, gone, n := 0, 0, r.Limit
	r.Limit = 0
	for _, row := range b.rows.scan(r) {
		due++
		primary := b.rows.schema[0]
		left, err := b.got.Scan(rows.Range{
			Index: primary.Index, Prefixes: []rows.Tuple{primary.Place(row)},
		})
		if b.must(what, err); left == nil {
			gone++
			b.rows.write(row, nil)
		}
	}
	if gone != min(n, due) {
		b.fail("%s deleted %d of %d rows", what, gone, due)
	}
	return nil
}

func (v *views) Head() *rows.Head { return v.got.Head() }

// Save makes the model's Head like the driver's.
func (v *views) Save() error {
	got, want := v.got.Head(), v.want.Head()
	want.Settings, want.Paused, want.PausedKeys = bytes.Clone(got.Settings),
		got.Paused, got.PausedKeys
	maps.Copy(want.Rounds, got.Rounds)
	v.note("Save %s", show(want))
	v.must("Save", v.got.Save())
	v.must("Save of the model", v.want.Save())
	return nil
}

func (v *views) Now() int64 {
	now := v.got.Now()
	if again := v.got.Now(); again != now {
		v.fail("Now returned %d, then %d", now, again)
	}
	return now
}

// Number makes the model return the same number. Another handle may get a number that a
// transaction had which was rolled back.
func (v *views) Number() (uint64, error) {
	v.note("Number")
	n, err := v.got.Number()
	v.must("Number", err)
	if last := v.h.numbers[v.id]; n <= last {
		v.fail("Number returned %d; before that, %d", n, last)
	}
	if v.numbers[v.id][n] {
		v.fail("Number returned %d again", n)
	}
	v.h.numbers[v.id], v.numbers[v.id][n] = n, true
	v.given = append(v.given, n)
	v.h.want.given = n
	_, err = v.want.Number()
	v.h.want.given = 0
	v.must("Number of the model", err)
	return n, nil
}

func (v *views) Fetch(ranges ...rows.Range) error {
	v.must("Fetch", v.got.Fetch(ranges...))
	return nil
}

func (v *views) Counts() ([driver.Held + 1]int, error) {
	return read(v, rows.View.Counts, "Counts"), nil
}

// CountKeys counts all, for a driver may return fewer than n at once.
func (v *views) CountKeys(_ string, n int) (int, string, error) {
	return read(v, func(w rows.View) (all int, err error) {
		for keys, from := 0, ""; ; all += keys {
			if keys, from, err = w.CountKeys(from, n); from == "" || err != nil {
				return all + keys, err
			}
		}
	}, "CountKeys(%d)", n), "", nil
}

// KeyStats allows for ties.
func (v *views) KeyStats(n int) ([]rows.Key, error) {
	v.note("KeyStats(%d)", n)
	got, err := v.got.KeyStats(n)
	v.must("KeyStats", err)
	all, err := v.want.KeyStats(1 << 30)
	v.must("KeyStats of the model", err)
	right, left := len(got) >= min(n, len(all)), map[string]rows.Key{}
	for _, k := range all {
		left[show(k)] = k
	}
	for i, k := range got {
		_, is := left[show(k)]
		delete(left, show(k))
		right = right && is && (i >= n && k.Paused || i < n && k.Tasks[0] == all[i].Tasks[0])
	}
	for _, k := range left {
		right = right && !k.Paused
	}
	if !right {
		v.fail("KeyStats(%d) returned\n\t%s\nthe model:\n\t%s", n, show(got), show(all))
	}
	return got, nil
}

// Ended is checked by testEnded.
func (v *views) Ended(mark string) ([]*rows.Outcome, string, error) { return v.got.Ended(mark) }

func (v *views) Drop() (done bool, err error) {
	v.dropped = true
	return read(v, rows.View.Drop, "Drop"), nil
}

// read makes a call to both, and compares the results.
func read[T any](v *views, f func(v rows.View) (T, error), format string, args ...any) T {
	v.t.Helper()
	what := v.note(format, args...)
	got, err := f(v.got)
	v.must(what, err)
	want, err := f(v.want)
	v.must(what+" of the model", err)
	v.equal(what, got, want)
	return got
}
