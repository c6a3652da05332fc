package kv

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/fairq/fairq/store/internal/rows"
)

// relation is what the rows of a table are: in which indexes, and how they are encoded.
type relation[R any] struct {
	schema rows.Schema[R]
	code   func(c *coder, r *R)
}

var (
	tasks     = relation[rows.Row]{rows.Tasks, (*coder).task}
	keys      = relation[rows.Key]{rows.Keys, (*coder).key}
	served    = relation[rows.Served]{rows.ServedLines, (*coder).served}
	consumers = relation[rows.Consumer]{rows.Consumers, (*coder).consumer}
	groups    = relation[rows.Group]{rows.Groups, (*coder).group}
	outcomes  = relation[rows.Outcome]{rows.Outcomes, (*coder).outcome}
	history   = relation[rows.Ended]{rows.History, (*coder).done}
)

func (v *view) Tasks() rows.Table[rows.Row]          { return taskTable{table[rows.Row]{v, &tasks}} }
func (v *view) Keys() rows.Table[rows.Key]           { return table[rows.Key]{v, &keys} }
func (v *view) Served() rows.Table[rows.Served]      { return table[rows.Served]{v, &served} }
func (v *view) Consumers() rows.Table[rows.Consumer] { return table[rows.Consumer]{v, &consumers} }
func (v *view) Groups() rows.Table[rows.Group]       { return table[rows.Group]{v, &groups} }
func (v *view) Outcomes() rows.Table[rows.Outcome] {
	return outcomeTable{table[rows.Outcome]{v, &outcomes}}
}
func (v *view) History() rows.Table[rows.Ended] { return table[rows.Ended]{v, &history} }

// table implements rows.Table. Invariant: a row is in the indexes just as its schema says of the
// row as it is stored. So only replace writes, and the old row is always the one read from the
// engine: the caller's copy may be older.
type table[R any] struct {
	*view
	*relation[R]
}

// entry returns the key by which a row is in the index that is the i-th of the schema, nil if it
// is not in it, or there is no row.
func (t table[R]) entry(i int, r *R) []byte {
	if r == nil {
		return nil
	}
	at := t.schema[i].Place(r)
	if at == nil {
		return nil
	}
	key := appendTuple(t.index(t.schema[i].Index), at)
	if i > 0 {
		key = appendTuple(key, t.schema[0].Place(r))
	}
	return key
}

// get returns the row of a key, nil if there is none.
func (t table[R]) get(key []byte) (*R, error) {
	value, err := t.tx.get(key)
	if value == nil || err != nil {
		return nil, err
	}
	return t.row(key, value)
}

// primary returns the key of the row to which an entry leads.
func (t table[R]) primary(entry []byte) []byte {
	primary := t.schema[0]
	return append(t.index(primary.Index), last(entry, len(primary.Place(new(R))))...)
}

// follow returns the row to which an entry of an index leads.
func (t table[R]) follow(index rows.Index, entry []byte) (*R, error) {
	key := t.primary(entry)
	r, err := t.get(key)
	if err != nil {
		return nil, err
	}
	for i, s := range t.schema {
		if s.Index == index && bytes.Equal(t.entry(i, r), entry) {
			return r, nil
		}
	}
	return nil, t.fail("read", key, errDamaged)
}

func (t table[R]) row(key, value []byte) (*R, error) {
	r := new(R)
	err := decode(value, func(c *coder) { t.code(c, r) })
	return r, t.fail("read", key, err)
}

// guard has the transaction conflict with all who write a row that there is or is not.
func (t table[R]) guard(r *R) {
	if !t.alone {
		t.Guard(t.entry(0, r), nil)
	}
}

// replace puts a row in the place of another one, in all indexes. Either may be nil. An entry that
// stays the same is not written again.
func (t table[R]) replace(old, row *R) error {
	t.guard(cmp.Or(old, row))
	for i, s := range t.schema {
		was, is := t.entry(i, old), t.entry(i, row)
		if s.Unique && old == nil && is != nil && !t.alone {
			all := appendTuple(t.index(s.Index), s.Place(row))
			t.Guard(all, behind(all))
		}
		same := bytes.Equal(was, is)
		if s.Index == rows.TaskReady && !same {
			t.keepMark(was, is)
		}
		if was != nil && !same {
			if err := t.tx.remove(was); err != nil {
				return err
			}
		}
		var value []byte
		switch task, isTask := any(row).(*rows.Row); {
		case is == nil:
		case i == 0:
			value = encode(func(c *coder) { t.code(c, row) })
		case isTask && t.byKey && (s.Index == rows.TaskReady || s.Index == rows.TaskKind):
			value = laneOf(task.Key)
		}
		if is != nil && (!same || i == 0) {
			if err := t.tx.put(is, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// Put implements rows.Table.
func (t table[R]) Put(r *R) error {
	old, err := t.get(t.entry(0, r))
	if err != nil {
		return err
	}
	return t.replace(old, r)
}

// Delete implements rows.Table.
func (t table[R]) Delete(r *R) error {
	old, err := t.get(t.entry(0, r))
	if err != nil {
		return err
	}
	return t.replace(old, nil)
}

// Sweep implements rows.Table.
func (t table[R]) Sweep(r rows.Range) error {
	found, err := t.Scan(r)
	for _, row := range found {
		if err == nil {
			err = t.replace(row, nil)
		}
	}
	return err
}

// hit is an index entry in a range.
type hit[R any] struct {
	key, rest []byte // the rest is what follows the prefix
	value     []byte
	row       *R // nil if it was not read yet
}

// Scan implements rows.Table.
func (t table[R]) Scan(r rows.Range) ([]*R, error) {
	if r.Lock == rows.NoMore {
		for _, at := range t.beginnings(&r) {
			if !t.alone {
				t.Guard(at, behind(at))
			}
		}
		return nil, nil
	}
	hits, err := t.find(&r)
	if err != nil {
		return nil, err
	}
	return t.load(hits, &r)
}

// beginnings returns how the entries of a range begin, one for each of its prefixes.
func (v *view) beginnings(r *rows.Range) (all [][]byte) {
	if r.Prefixes == nil {
		return [][]byte{v.index(r.Index)}
	}
	for _, p := range r.Prefixes {
		all = append(all, appendTuple(v.index(r.Index), p))
	}
	return all
}

// find returns the entries of a range.
func (t table[R]) find(r *rows.Range) ([]hit[R], error) {
	if keys := t.points(r); keys != nil {
		return t.findPoints(keys, r)
	}
	var hits []hit[R]
	all := t.beginnings(r)
	for _, at := range all {
		var err error
		if hits, err = t.scan(hits, r, at); err != nil {
			return nil, err
		}
	}
	if len(all) > 1 && !r.Each {
		slices.SortFunc(hits, func(a, b hit[R]) int {
			if r.Desc {
				a, b = b, a
			}
			return bytes.Compare(a.rest, b.rest)
		})
		if r.Limit > 0 {
			hits = hits[:min(r.Limit, len(hits))]
		}
	}
	return hits, nil
}

// findPoints returns those of some keys that there are.
func (t table[R]) findPoints(keys [][]byte, r *rows.Range) (hits []hit[R], err error) {
	if err := t.fail("read", nil, t.tx.Fetch(t.withPayloads(keys, r))); err != nil {
		return nil, err
	}
	for _, key := range keys {
		row, err := t.get(key)
		if err != nil {
			return nil, err
		}
		if row != nil && (r.Limit == 0 || len(hits) < r.Limit) {
			hits = append(hits, hit[R]{key: key, row: row})
		}
	}
	return hits, nil
}

// load returns the rows to which entries lead.
func (t table[R]) load(hits []hit[R], r *rows.Range) ([]*R, error) {
	var ahead [][]byte
	for _, h := range hits {
		if h.row == nil {
			ahead = append(ahead, t.primary(h.key))
		}
		if r.Payload {
			ahead = append(ahead, t.payload(uintAt(last(h.key, 1))))
		}
	}
	if err := t.fail("read", nil, t.tx.Fetch(ahead)); err != nil {
		return nil, err
	}
	found := slices.Grow([]*R(nil), len(hits))
	for _, h := range hits {
		if h.row == nil {
			var err error
			if h.row, err = t.follow(r.Index, h.key); err != nil {
				return nil, err
			}
		}
		if found = append(found, h.row); r.Lock != rows.NoLock {
			t.guard(h.row)
		}
	}
	return found, nil
}

// span returns what of a range begins with some prefix.
func (v *view) span(r *rows.Range, at []byte) Span {
	s := Span{From: appendTuple(bytes.Clone(at), r.From), To: behind(at), Desc: r.Desc, Limit: r.Limit}
	if r.To != nil {
		s.To = appendTuple(bytes.Clone(at), r.To)
	}
	if r.Index == rows.TaskReady && r.Prefixes == nil && r.From == nil {
		s.From = append(s.From, v.head.mark.entry...)
	}
	if r.Only != (rows.Only{}) {
		s.Limit = 0
	}
	return s
}

// scan adds what of a range begins with some prefix. Rows are read now if that decides which are
// in it, or costs nothing.
func (t table[R]) scan(hits []hit[R], r *rows.Range, at []byte) ([]hit[R], error) {
	chosen := r.Only != rows.Only{}
	n := len(hits)
	for e, err := range t.tx.scan(t.span(r, at)) {
		h := hit[R]{key: e.Key, rest: e.Key[min(len(at), len(e.Key)):], value: e.Value}
		switch {
		case err != nil:
		case r.Index == t.schema[0].Index:
			h.row, err = t.row(e.Key, e.Value)
		case chosen:
			h.row, err = t.follow(r.Index, e.Key)
		}
		if err != nil {
			return nil, err
		}
		if row, ok := any(h.row).(*rows.Row); ok && chosen && !r.Only.Match(row) {
			continue
		}
		if hits = append(hits, h); len(hits)-n == r.Limit {
			break
		}
	}
	return hits, nil
}

// outcomeTable is the table of outcomes. Each gets a number when it is written, so that View.Ended
// finds what was written since.
type outcomeTable struct{ table[rows.Outcome] }

// Put implements rows.Table.
func (t outcomeTable) Put(o *rows.Outcome) (err error) {
	written := *o
	if written.Written, err = t.Number(); err != nil {
		return err
	}
	return t.table.Put(&written)
}
