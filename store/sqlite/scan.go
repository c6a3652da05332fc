package sqlite

import (
	sqldriver "database/sql/driver"
	"strings"

	"github.com/fairq/fairq/store/internal/columns"
	"github.com/fairq/fairq/store/internal/rows"
)

// shape is the part of a range that decides the text of its statement. A statement is prepared
// once for each shape, because preparing it takes longer than running it. There are few shapes,
// because values are no part of it (see TestPreparedOnce).
type shape struct {
	index                rows.Index
	prefix, from, to     int // fields
	desc, limit, payload bool
	sweep                bool // it deletes the rows
	state, key, kind     bool
}

// inSQLite changes the names that differ in SQLite.
var inSQLite = strings.NewReplacer("::int", "", "coalesce(consumer,0)", "consumer")

func (s *shape) statement() *statement {
	in := &columns.Indexes[s.index]
	name, chosen := "read "+in.Table, texts[in.Table].columns
	switch {
	case s.sweep:
		name, chosen = "sweep "+in.Table, texts[in.Table].key
	case !s.payload && in.Table == "tasks":
		chosen = strings.TrimSuffix(chosen, ", payload")
	}
	var b strings.Builder
	b.WriteString("SELECT " + chosen + " FROM ~" + in.Table)
	if in.Name != "" { // instead of SQLite's choice
		b.WriteString(" INDEXED BY ~" + in.Table + "_" + in.Name)
	}
	b.WriteString(" WHERE ")
	rest := in.Fields[s.prefix:]
	and := ""
	where := func(is bool, condition string) {
		if is {
			b.WriteString(and + condition)
			and = " AND "
		}
	}
	if in.Fields[0] == "id" {
		where(s.prefix == 1, "id = ?")
		where(s.prefix == 0, "id > ? AND id <= ?")
	} else {
		where(true, "queue = ?")
		for _, f := range in.Fields[:s.prefix] {
			where(true, f+" = ?")
		}
		where(s.from > 0, tuple(rest, s.from, ">="))
		where(s.to > 0, tuple(rest, s.to, "<"))
	}
	where(in.Where != "", in.Where)
	where(s.state, "+state = ?")
	where(s.key, "+key = ?")
	where(s.kind, "+kind = ?")
	if len(rest) > 0 {
		desc := ""
		if s.desc {
			desc = " DESC"
		}
		b.WriteString(" ORDER BY " + strings.Join(rest, desc+", ") + desc)
	}
	if s.limit {
		b.WriteString(" LIMIT 0 + ?")
	}
	text := inSQLite.Replace(b.String())
	if s.sweep {
		text = "DELETE FROM ~" + in.Table + " WHERE (" + chosen + ") IN (" + text + ")"
	}
	return &statement{name, text}
}

// tuple compares the first n fields as one value.
func tuple(fields []string, n int, op string) string {
	names := strings.Join(fields[:n], ", ")
	return "(" + names + ") " + op + " (" + marks(names) + ")"
}

// scan calls read for each row of a range; with nil it deletes the rows.
func (v *view) scan(r *rows.Range, read func(c *cells)) error {
	if r.Prefixes == nil {
		return v.each(r, nil, read)
	}
	for _, p := range r.Prefixes {
		if err := v.each(r, p, read); err != nil {
			return err
		}
	}
	return nil
}

// each is scan for one prefix.
func (v *view) each(r *rows.Range, prefix rows.Tuple, read func(c *cells)) error {
	o := r.Only
	s := shape{
		index: r.Index, prefix: len(prefix), from: len(r.From), to: len(r.To), desc: r.Desc,
		limit: r.Limit > 0, payload: r.Payload, sweep: read == nil, state: o.State != 0,
		key: o.Key != nil, kind: o.Kind != nil,
	}
	var room [12]sqldriver.Value
	args := room[:0]
	if columns.Indexes[s.index].Fields[0] == "id" {
		args = v.ids(args, prefix, r.From)
	} else {
		args = appendTuple(append(args, v.queue), prefix)
		args = appendTuple(args, r.From)
		// The id at the end of these indexes is a rowid here, which includes the queue.
		if s.from > 0 && (s.index == rows.TaskGroup || s.index == rows.TaskState) {
			args[2] = v.rowid(uint64(r.From[0].(int64)-1)) + 1
		}
		args = appendTuple(args, r.To)
	}
	if s.state {
		args = append(args, int64(o.State))
	}
	if s.key {
		args = append(args, *o.Key)
	}
	if s.kind {
		args = append(args, *o.Kind)
	}
	if s.limit {
		args = append(args, int64(r.Limit))
	}
	st := v.session.scan(s)
	if s.sweep {
		return v.do(st, args...)
	}
	return v.session.each(st, read, args...)
}

func appendTuple(args []sqldriver.Value, fields rows.Tuple) []sqldriver.Value {
	for _, f := range fields {
		args = append(args, f)
	}
	return args
}

// ids adds the bounds of rowids. A rowid begins with the queue, so a range of ids is a range of
// the table. An id that is too great has no rowid. from has the first id, but the statement asks
// for ids greater than its argument.
func (v *view) ids(args []sqldriver.Value, prefix, from rows.Tuple) []sqldriver.Value {
	switch {
	case prefix != nil && uint64(prefix[0].(int64)) > maxID:
		return append(args, nil)
	case prefix != nil:
		return append(args, v.rowid(uint64(prefix[0].(int64))))
	case from != nil:
		return append(args, v.rowid(uint64(from[0].(int64)-1)), v.rowid(maxID))
	}
	return append(args, v.rowid(0), v.rowid(maxID))
}

// scan returns the statement of a shape.
func (s *session) scan(of shape) *statement {
	st := s.scans[of]
	if st == nil {
		if s.scans == nil {
			s.scans = map[shape]*statement{}
		}
		st = of.statement()
		s.scans[of] = st
	}
	return st
}
