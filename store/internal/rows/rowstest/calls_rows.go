package rowstest

import (
	"cmp"
	"slices"

	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/task"
)

// rowID returns the id of a row, rarely one that is not there.
func (v *views) rowID() uint64 {
	var ids []uint64
	for r := range v.model.q.tasks.values() {
		ids = append(ids, r.ID)
	}
	slices.Sort(ids)
	if len(ids) == 0 || v.chance(8) {
		return pick(v.rnd, 0, 1<<62, v.rnd.Uint64N(50))
	}
	return pick(v.rnd, ids...)
}

// find reads rows in a random way.
func (v *views) find() []twins {
	val, n := v.values, v.values.count()
	payload := v.chance(2)
	one := func(r, m *rows.Row) []twins {
		if r == nil {
			return nil
		}
		return []twins{{r, m}}
	}
	switch v.rnd.IntN(13) {
	case 0, 1, 2:
		id := v.rowID()
		return one(read(v, func(w rows.Calls) (*rows.Row, error) { return w.Get(id, payload) }, "Get(%d, %v)", id, payload))
	case 3:
		a := val.of(val.uniqueKeys)
		return one(read(v, func(w rows.Calls) (*rows.Row, error) { return w.ByUniqueKey(a, payload) }, "ByUniqueKey(%q, %v)", a, payload))
	case 4:
		return v.ready()
	case 5:
		now := val.now()
		return v.rows(list{func(w rows.Calls, n int) ([]*rows.Row, error) { return w.Due(now, n, payload) }, byWake, true}, n,
			"Due(%d, %d, %v)", now, n, payload)
	case 6:
		c := pick(v.rnd, append(v.held(), 1<<62)...)
		read(v, func(w rows.Calls) (map[uint64]uint64, error) { return w.Leases(c) }, "Leases(%d)", c)
		return v.rows(list{func(w rows.Calls, n int) ([]*rows.Row, error) { return w.HeldBy(c, n, payload) }, bySince, true}, n,
			"HeldBy(%d, %d, %v)", c, n, payload)
	case 7:
		return v.rows(list{rows.Calls.Buried, bySince, false}, n, "Buried(%d)", n)
	case 8:
		g := val.of(val.groups)
		return v.rows(list{func(w rows.Calls, _ int) ([]*rows.Row, error) { return w.InGroup(g) }, byID, false}, 1<<30, "InGroup(%q)", g)
	case 9:
		return v.list()
	case 10:
		l, kind := val.line(), val.of(val.kinds)
		keys, parked := v.planned()
		return v.rows(list{func(w rows.Calls, n int) ([]*rows.Row, error) {
			return of(w, keys, n, payload, func(r *rows.Row) bool {
				return r.Key == l.Key && r.Priority == l.Priority && r.Kind == kind && r.Round == 0
			}, byPlace)
		}, byPlace, payload}, parked, "parked of Lines(%q, %d, %v): %#v, %q", keys, parked, payload, l, kind)
	case 11:
		keys, parked := v.planned()
		return v.rows(list{func(w rows.Calls, _ int) ([]*rows.Row, error) {
			return of(w, keys, parked, payload, func(r *rows.Row) bool { return r.Round != 0 }, byTurn)
		}, byTurn, payload}, 1<<30, "fronted of Lines(%q, %d, %v)", keys, parked, payload)
	}
	if v.chance(2) {
		return v.next()
	}
	return v.edge()
}

// planned returns with what to call Lines: as the Plan has said it, perhaps.
func (v *views) planned() (keys []string, parked int) {
	if v.hint.keys != nil && v.chance(2) {
		return v.hint.keys, v.hint.parked
	}
	return v.someKeys(), v.rnd.IntN(4)
}

// of returns the rows that Lines finds and that match, in order.
func of(w rows.Calls, keys []string, n int, payload bool, match func(*rows.Row) bool, order func(a, b *rows.Row) int) ([]*rows.Row, error) {
	_, found, err := w.Lines(slices.Clone(keys), n, payload)
	found = slices.DeleteFunc(found, func(r *rows.Row) bool { return !match(r) })
	slices.SortFunc(found, order)
	return found, err
}

// keyRows reads the rows of the table of keys that some keys have.
func (v *views) keyRows(keys []string, n int) {
	read(v, func(w rows.Calls) ([]*rows.Key, error) {
		found, _, err := w.Lines(keys, n, false)
		slices.SortFunc(found, func(a, b *rows.Key) int { return cmp.Compare(a.Key, b.Key) })
		return found, err
	}, "keys of Lines(%q, %d)", keys, n)
}

// next calls Next, as a list of at most one row.
func (v *views) next() []twins {
	l := v.values.line()
	round, seq := v.values.round(), v.values.place()
	return v.rows(list{func(w rows.Calls, _ int) ([]*rows.Row, error) {
		r := rows.NextRange(l, round, seq)
		if w == v.want { // all there are, because there may be ties
			r.Limit = 0
		}
		return w.Rows(r)
	}, func(a, b *rows.Row) int { return cmp.Or(cmp.Compare(a.Round, b.Round), cmp.Compare(a.Seq, b.Seq)) }, true}, 1, "Next(%#v, %d, %d)", l, round, seq)
}

func (v *views) ready() []twins {
	f, n := v.values.filter(), v.values.count()
	return v.rows(list{func(w rows.Calls, n int) ([]*rows.Row, error) { return w.Ready(f, n) }, byTurn, true}, n,
		"Ready(%#v, %d)", f, n)
}

func (v *views) list() []twins {
	o := task.ListOptions{After: task.ID(pick(v.rnd, 0, 0, v.rowID())), Limit: v.values.count()}
	switch v.rnd.IntN(8) {
	case 0:
		o.State = pick(v.rnd, task.Ready, task.Delayed, task.Taken, task.Buried, task.Held)
	case 1:
		o.Key = new(v.values.of(v.values.keys))
	case 2:
		o.Kind = new(v.values.of(v.values.kinds))
	case 3:
		o.Group = v.values.of(v.values.groups)
	case 4:
		o.Limit = 0
	case 5:
		o.State, o.Key, o.Kind = task.Ready, new(v.values.of(v.values.keys)), new(v.values.of(v.values.kinds))
	}
	return v.rows(list{func(w rows.Calls, n int) ([]*rows.Row, error) {
		o := o
		if w == v.want {
			o.Limit = n
		}
		return w.List(o)
	}, byID, true}, cmp.Or(o.Limit, 100), "List(%s)", showList(o))
}

// edge calls Newest or Oldest, as lists of at most one row.
func (v *views) edge() []twins {
	key, newest := v.values.of(v.values.keys), v.chance(2)
	order := bySince
	if newest {
		order = func(a, b *rows.Row) int { return bySince(b, a) }
	}
	return v.rows(list{func(w rows.Calls, _ int) ([]*rows.Row, error) {
		r := rows.CountedRange(key, newest)
		if w == v.want { // all there are, because there may be ties
			r.Limit = 0
		}
		return w.Rows(r)
	}, order, false}, 1, "edge of %q, newest: %v", key, newest)
}

// readOne makes a call that returns no rows.
func (v *views) readOne() {
	switch v.rnd.IntN(6) {
	case 0:
		v.last()
	case 1:
		read(v, rows.Calls.Times, "Times")
	case 2:
		v.keyRows(v.planned())
	case 3:
		read(v, rows.Calls.CountKeys, "CountKeys")
	case 4:
		read(v, rows.Calls.Counts, "Counts")
	case 5:
		v.compareHead()
		now := v.got.Now()
		if again := v.got.Now(); again != now {
			v.fail("Now returned %d, then %d", now, again)
		}
	}
}

func (v *views) last() {
	l, after := v.values.line(), pick(v.rnd, 0, v.values.round(), v.values.round()+1)
	type result struct {
		round uint64
		rows  int
	}
	read(v, func(w rows.Calls) (r result, err error) {
		r.round, r.rows, err = w.Last(l, after)
		return r, err
	}, "Last(%#v, %d)", l, after)
}
