package kv

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/fairq/fairq/store/internal/rows"
)

// relation describes the rows of a table: their indexes and their encoding.
type relation[R any] struct {
	schema rows.Schema[R]
	code   func(c *coder, r *R)
}

var (
	tasks     = relation[rows.Row]{rows.Tasks, (*coder).codeTask}
	keys      = relation[rows.Key]{rows.Keys, (*coder).codeKey}
	turns     = relation[rows.Turn]{rows.Turns, (*coder).codeTurn}
	served    = relation[rows.Served]{rows.ServedLines, (*coder).codeServed}
	consumers = relation[rows.Consumer]{rows.Consumers, (*coder).codeConsumer}
	groups    = relation[rows.Group]{rows.Groups, (*coder).codeGroup}
	outcomes  = relation[rows.Outcome]{rows.Outcomes, (*coder).codeOutcome}
	history   = relation[rows.Ended]{rows.History, (*coder).codeEnded}
)

func (v *view) Tasks() rows.Table[rows.Row] {
	return taskTable{table[rows.Row]{v, &tasks}}
}
func (v *view) Keys() rows.Table[rows.Key]           { return table[rows.Key]{v, &keys} }
func (v *view) Turns() rows.Table[rows.Turn]         { return table[rows.Turn]{v, &turns} }
func (v *view) Served() rows.Table[rows.Served]      { return table[rows.Served]{v, &served} }
func (v *view) Consumers() rows.Table[rows.Consumer] { return table[rows.Consumer]{v, &consumers} }
func (v *view) Groups() rows.Table[rows.Group]       { return table[rows.Group]{v, &groups} }
func (v *view) Outcomes() rows.Table[rows.Outcome] {
	return outcomeTable{table[rows.Outcome]{v, &outcomes}}
}
func (v *view) History() rows.Table[rows.Ended] { return table[rows.Ended]{v, &history} }

// table implements rows.Table. Invariant: each stored row has exactly the index entries that the
// schema gives for it. So only replace writes, and it gets the old row from the engine. The
// caller's copy of the row may be older, and have other entries.
type table[R any] struct {
	*view
	*relation[R]
}

// entry returns the key of a row in the i-th index of the schema. It returns nil if the row is
// nil, or is not in that index.
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

// get reads the row of a key, nil if there is none.
func (t table[R]) get(key []byte) (*R, error) {
	value, err := t.tx.get(key)
	if value == nil || err != nil {
		return nil, err
	}
	return t.decodeRow(key, value)
}

// rowKey returns the key of the row to which an index entry leads.
func (t table[R]) rowKey(entry []byte) []byte {
	primary := t.schema[0]
	return append(t.index(primary.Index), last(entry, len(primary.Place(new(R))))...)
}

// follow reads the row to which an index entry leads.
func (t table[R]) follow(index rows.Index, entry []byte) (*R, error) {
	key := t.rowKey(entry)
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

func (t table[R]) decodeRow(key, value []byte) (*R, error) {
	r := new(R)
	err := decode(value, func(c *coder) { t.code(c, r) })
	return r, t.fail("read", key, err)
}

// guard makes the transaction conflict with all others that write a row, whether it exists or not.
func (t table[R]) guard(r *R) {
	if !t.exclusive {
		t.Guard(t.entry(0, r), nil)
	}
}

// replace replaces a row by another one in all indexes. Either may be nil. It does not write
// entries that stay the same.
func (t table[R]) replace(old, row *R) error {
	t.guard(cmp.Or(old, row))
	for i, s := range t.schema {
		before, after := t.entry(i, old), t.entry(i, row)
		// Two transactions may put the same unique key at the same time. The guard of all its entries
		// makes one of them fail.
		if s.Unique && old == nil && after != nil && !t.exclusive {
			all := appendTuple(t.index(s.Index), s.Place(row))
			t.Guard(all, prefixEnd(all))
		}
		same := bytes.Equal(before, after)
		if isMarked(s.Index) && !same {
			t.adjustMark(s.Index, before, after)
		}
		if before != nil && !same {
			if err := t.tx.remove(before); err != nil {
				return err
			}
		}
		var value []byte
		switch turn, isTurn := any(row).(*rows.Turn); {
		case after == nil:
		case i == 0:
			value = encode(func(c *coder) { t.code(c, row) })
		case isTurn:
			value = laneOf(appendTuple(nil, rows.Tuple{turn.Key}))
		}
		if after != nil && (!same || i == 0) {
			if err := t.tx.put(after, value); err != nil {
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
	key, rest []byte // rest is the key without the prefix of the range
	value     []byte
	row       *R // nil until it is read
}

// Scan implements rows.Table.
func (t table[R]) Scan(r rows.Range) ([]*R, error) {
	if r.Lock == rows.NoMore {
		for _, at := range t.prefixes(&r) {
			if !t.exclusive {
				t.Guard(at, prefixEnd(at))
			}
		}
		return nil, nil
	}
	find := t.find
	if t.takes(&r) {
		t.took, find = true, t.findByLane
	}
	hits, err := find(&r)
	if err != nil {
		return nil, err
	}
	return t.load(hits, &r)
}

// The process in whose lane a row is makes the due change of the row first. If it does not, the
// process of the next lane makes the change after nextMakes, and so on. A key with a full bucket
// may wait longer to be forgotten: nextForgets.
const (
	nextMakes   = 100 * time.Millisecond
	nextForgets = time.Minute
)

// isDue reports whether a range has rows with a due change, and others may make it too.
func (v *view) isDue(r *rows.Range) bool {
	byTime := r.Index == rows.TaskWake || r.Index == rows.KeyUntil ||
		r.Index == rows.ConsumerDeadline
	return byTime && r.Lock == rows.SkipLocked && !v.exclusive && v.head.lanes.count > 1
}

// findDue finds the entries of such a range whose change this process makes.
func (t table[R]) findDue(r *rows.Range) ([]hit[R], error) {
	next, now, prefixes := nextMakes, r.To[0].(int64), t.prefixes(r)
	if r.Index == rows.KeyUntil && r.Prefixes[0][0] == int64(0) {
		next = nextForgets
	}
	more := *r
	more.Limit *= t.head.lanes.count
	hits, err := t.scan(nil, &more, prefixes[0])
	hits = slices.DeleteFunc(hits, func(h hit[R]) bool {
		late := int64(next) * int64(t.head.lanes.distance(laneOf(last(h.key, 1))))
		return int64(uintAt(h.rest))+late >= now
	})
	return hits[:min(r.Limit, len(hits))], err
}

// prefixes returns the prefixes of the keys in a range, one for each of r.Prefixes.
func (v *view) prefixes(r *rows.Range) (all [][]byte) {
	if r.Prefixes == nil {
		return [][]byte{v.index(r.Index)}
	}
	for _, p := range r.Prefixes {
		all = append(all, appendTuple(v.index(r.Index), p))
	}
	return all
}

// find finds the index entries of a range. It moves the mark forward if the transaction is to take
// some of them.
func (t table[R]) find(r *rows.Range) ([]hit[R], error) {
	if t.isDue(r) {
		return t.findDue(r)
	}
	if keys := t.primaryKeys(r); keys != nil {
		return t.findByKey(keys, r)
	}
	var hits []hit[R]
	all := t.prefixes(r)
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
	if isMarked(r.Index) && r.Lock == rows.SkipLocked && len(hits) > 0 {
		t.moveMark(r.Index, hits[0].key)
	}
	return hits, nil
}

// findByKey reads the rows with these keys that exist.
func (t table[R]) findByKey(keys [][]byte, r *rows.Range) (hits []hit[R], err error) {
	if err := t.fail("read", nil, t.tx.Fetch(t.addPayloadKeys(keys, r))); err != nil {
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

// load reads the rows to which index entries lead.
func (t table[R]) load(hits []hit[R], r *rows.Range) ([]*R, error) {
	var ahead [][]byte
	for _, h := range hits {
		if h.row == nil {
			ahead = append(ahead, t.rowKey(h.key))
		}
		if r.Payload {
			ahead = append(ahead, t.payloadKey(uintAt(last(h.key, 1))))
		}
	}
	if n := len(hits); n > 1 && r.Payload && !r.Desc && r.Index == rows.TaskID &&
		r.Only == (rows.Only{}) {
		// The payloads are next to each other, and a server reads a span much faster than many keys.
		payloads := Span{From: ahead[0], To: prefixEnd(ahead[n-1]), Limit: n}
		if err := t.fail("read", nil, t.tx.Fetch(nil, payloads)); err != nil {
			return nil, err
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

// span returns the part of a range with one prefix.
func (v *view) span(r *rows.Range, at []byte) Span {
	s := Span{To: prefixEnd(at), Desc: r.Desc, Limit: r.Limit}
	s.From = appendTuple(bytes.Clone(at), r.From)
	if r.To != nil {
		s.To = appendTuple(bytes.Clone(at), r.To)
	}
	if r.Prefixes == nil && r.From == nil {
		s.From = v.first(r.Index)
	}
	if r.Only != (rows.Only{}) {
		s.Limit, s.Loose = 0, r.Index == rows.TaskID && r.Lock == rows.NoLock
	}
	return s
}

// scan appends the index entries of a range with one prefix. If r.Only needs the fields of the
// rows, or if an entry is the row itself, the hits have their rows.
func (t table[R]) scan(hits []hit[R], r *rows.Range, at []byte) ([]hit[R], error) {
	chosen := r.Only != rows.Only{}
	n := len(hits)
	for e, err := range t.tx.scan(t.span(r, at)) {
		h := hit[R]{key: e.Key, rest: e.Key[min(len(at), len(e.Key)):], value: e.Value}
		switch {
		case err != nil:
		case r.Index == t.schema[0].Index:
			h.row, err = t.decodeRow(e.Key, e.Value)
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

// outcomeTable is the table of outcomes. Each outcome gets a number when it is written, so that
// View.Ended finds the newer ones.
type outcomeTable struct{ table[rows.Outcome] }

// Put implements rows.Table.
func (t outcomeTable) Put(o *rows.Outcome) (err error) {
	written := *o
	if written.Written, err = t.Number(); err != nil {
		return err
	}
	return t.table.Put(&written)
}
