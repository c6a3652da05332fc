package kv

import (
	"bytes"
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/task/driver"
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
		if i == 0 && is != nil {
			value = encode(func(c *coder) { t.code(c, row) })
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
	row       *R     // nil if it was not read yet
}

// Scan implements rows.Table.
func (t table[R]) Scan(r rows.Range) ([]*R, error) {
	hits, err := t.find(&r)
	if err != nil {
		return nil, err
	}
	return t.load(hits, &r)
}

// primaries are how many fields the primary keys have.
var primaries = map[rows.Index]int{
	rows.TaskID: 1, rows.KeyName: 1, rows.ServedLine: 2, rows.ConsumerNumber: 1, rows.GroupName: 1,
	rows.OutcomeKey: 1, rows.HistoryID: 1,
}

// points returns the keys of a range that names each row by its primary key, nil if it does not.
func (v *view) points(r *rows.Range) [][]byte {
	notPrimary := func(p rows.Tuple) bool { return len(p) != primaries[r.Index] }
	if r.Prefixes == nil || r.Only != (rows.Only{}) || slices.ContainsFunc(r.Prefixes, notPrimary) {
		return nil
	}
	return v.beginnings(r)
}

// Fetch implements rows.View. It reads all at once that is known by now: rows that are named by
// their primary keys, and of others the entries of indexes.
func (v *view) Fetch(ranges ...rows.Range) error { return v.fetch(nil, ranges) }

func (v *view) fetch(spans []Span, ranges []rows.Range) error {
	if !v.db.shared {
		return nil // each read costs the same, now or later
	}
	var keys [][]byte
	var all []values
	for _, r := range ranges {
		apart := v.takesApart(&r)
		points := v.points(&r)
		switch {
		case points == nil && apart:
			points = v.likely(r.Limit)
			r.Limit *= v.head.lanes.window()
		case points == nil && v.db.options.Taking == Staged && v.takes(&r):
			continue
		}
		if keys = append(keys, v.withPayloads(points, &r)...); points != nil && !apart {
			continue
		}
		for _, at := range v.beginnings(&r) {
			if r.Each == 0 {
				spans = append(spans, v.span(&r, at))
				continue
			}
			spans = append(spans, seek(at, at))
			all = append(all, values{at, at, r})
		}
	}
	if err := v.tx.Fetch(keys, spans...); err != nil {
		return v.fail("read", nil, err)
	}
	return v.fetchEach(all)
}

// values are those in a range of tasks with Each that come behind the key from.
type values struct {
	at, from []byte
	rows.Range
}

// fetchEach reads what there is for each value of some ranges, of which the first were sought. In
// one exchange it reads the entries of a value of each range, and seeks the next; in the last one
// it reads the rows.
func (v *view) fetchEach(all []values) error {
	var keys [][]byte
	for len(all) > 0 {
		var spans []Span
		left := all[:0]
		for _, next := range all {
			at, err := v.nextValue(next.from, next.at, next.Each)
			if err != nil {
				return err
			}
			if at == nil {
				continue
			}
			next.from = behind(at)
			spans = append(spans, v.span(&next.Range, at), seek(next.from, next.at))
			left = append(left, next)
		}
		if err := v.tx.Fetch(nil, spans...); err != nil {
			return v.fail("read", nil, err)
		}
		for i, next := range left {
			var found [][]byte
			for e, err := range v.scan(spans[2*i]) {
				if err != nil {
					return err
				}
				found = append(found, table[rows.Row]{v, &tasks}.primary(e.Key))
			}
			keys = append(keys, v.withPayloads(found, &next.Range)...)
		}
		all = left
	}
	return v.fail("read", nil, v.tx.Fetch(keys))
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

// withPayloads returns the keys of a range, and those of the payloads if it asks for these.
func (v *view) withPayloads(keys [][]byte, r *rows.Range) [][]byte {
	if r.Payload {
		for _, key := range keys {
			keys = append(keys, v.payload(uintAt(last(key, 1))))
		}
	}
	return keys
}

// find returns the entries of a range.
func (t table[R]) find(r *rows.Range) ([]hit[R], error) {
	if keys := t.points(r); keys != nil {
		return t.findPoints(keys, r)
	}
	var hits []hit[R]
	all := t.beginnings(r)
	for _, at := range all {
		err := t.each(at, r.Each, func(at []byte) (err error) {
			hits, err = t.scan(hits, r, at)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if len(all) > 1 && r.Each == 0 {
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
		h := hit[R]{key: e.Key, rest: e.Key[min(len(at), len(e.Key)):]}
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

// taskTable is the table of tasks. They are counted by state, and payloads have keys of their own.
type taskTable struct{ table[rows.Row] }

// takes tells whether a range is tasks that are to be taken, while others may take some.
func (v *view) takes(r *rows.Range) bool {
	return !v.alone && v.db.options.Taking != Strict && r.Lock == rows.SkipLocked && r.Limit > 0 &&
		(r.Index == rows.TaskReady || r.Index == rows.TaskKind)
}

func (v *view) takesApart(r *rows.Range) bool { return v.db.options.Taking == Apart && v.takes(r) }

// Scan implements rows.Table. Those who take at the same time are to choose different tasks.
func (t taskTable) Scan(r rows.Range) ([]*rows.Row, error) {
	takes := t.takes(&r)
	t.took = t.took || takes
	var hits []hit[rows.Row]
	var err error
	switch {
	case t.takesApart(&r):
		hits, err = t.findApart(r)
	case takes && t.given != nil && r.To[0] == t.given.before:
		hits, err = t.handed(&r)
	default:
		hits, err = t.find(&r)
	}
	if err != nil {
		return nil, err
	}
	found, err := t.load(hits, &r)
	for _, row := range found {
		if r.Payload && err == nil {
			var payload []byte
			payload, err = t.tx.get(t.payload(row.ID))
			row.Payload = bytes.Clone(payload)
		}
	}
	return found, err
}

// find is that of the table, and moves the mark on for who takes.
func (t taskTable) find(r *rows.Range) ([]hit[rows.Row], error) {
	hits, err := t.table.find(r)
	if r.Index == rows.TaskReady && r.Lock == rows.SkipLocked && len(hits) > 0 {
		t.moveMark(hits[0].rest)
	}
	return hits, err
}

// findApart returns those entries of a range that this process is to take: what it has passed over
// too often, the first ones of its lane, and if these are not enough any others. Those that come
// next in its lane it will probably take next.
func (t taskTable) findApart(r rows.Range) ([]hit[rows.Row], error) {
	wanted := r.Limit
	r.Limit *= t.head.lanes.window()
	hits, err := t.find(&r)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.coming = nil; len(hits) <= wanted {
		return hits, nil
	}
	var chosen []int
	chooses := make([]bool, len(hits))
	choose := func(i int, is bool) {
		if is && !chooses[i] && len(chosen) < wanted {
			chooses[i] = true
			chosen = append(chosen, i)
		}
	}
	alone := t.head.lanes.all == 1
	for i, h := range hits {
		n := t.passed.times(id(h)) // at random, for others have passed it over as often
		choose(i, !alone && (n >= maxTimesPassed || n >= maxTimesPassed-2 && rand.IntN(t.head.lanes.all*wanted) == 0))
	}
	for i, h := range hits {
		own := alone || t.head.lanes.has(id(h))
		if choose(i, own); own && !chooses[i] && len(t.coming) < wanted {
			t.coming = append(t.coming, t.primary(h.key))
		}
	}
	for i := rand.IntN(len(hits)); len(chosen) < wanted; i = (i + 1) % len(hits) {
		choose(i, true)
	}
	slices.Sort(chosen)
	found := make([]hit[rows.Row], 0, wanted)
	for i, h := range hits[:chosen[wanted-1]+1] {
		if chooses[i] {
			found = append(found, h)
		} else {
			t.passed.add(id(h))
		}
	}
	return found, nil
}

// id returns the ID of the task to which an entry leads.
func id(h hit[rows.Row]) uint64 { return uintAt(last(h.key, 1)) }

// Put implements rows.Table.
func (t taskTable) Put(r *rows.Row) error {
	if r.Was == 0 {
		rows.Count(&t.head.tasks, 0, r.State)
		if len(r.Payload) > 0 {
			if err := t.tx.put(t.payload(r.ID), bytes.Clone(r.Payload)); err != nil {
				return err
			}
		}
		return t.replace(nil, r)
	}
	key := t.entry(0, r)
	old, err := t.get(key)
	switch {
	case err != nil:
		return err
	case old == nil:
		return t.fail("write", key, errDamaged)
	}
	rows.Count(&t.head.tasks, old.State, r.State)
	if old.State == driver.Ready && r.State == driver.Taken { // nothing else of it has changed
		taken := *old
		taken.SetTaken(r)
		r = &taken
	}
	return t.replace(old, r)
}

// Delete implements rows.Table.
func (t taskTable) Delete(r *rows.Row) error {
	old, err := t.get(t.entry(0, r))
	if old == nil || err != nil {
		return err
	}
	rows.Count(&t.head.tasks, old.State, 0)
	if err := t.tx.remove(t.payload(r.ID)); err != nil {
		return err
	}
	return t.replace(old, nil)
}
