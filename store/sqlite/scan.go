package sqlite

import (
	sqldriver "database/sql/driver"
	"strings"

	"github.com/fairq/fairq/store/internal/rows"
)

// source is the table or index behind an index of package rows.
type source struct {
	table  string
	index  string // "" for a primary key
	fields string // as in rows.Index, after the queue
	where  string // condition for rows in the index, "" for all
}

const inLine = "state = 1 AND front > 0"

// A rowid includes the queue, so an index of ids has only the field "id".
var sources = [rows.NumIndexes]source{
	rows.TaskID:        {"tasks", "", "id", ""},
	rows.TaskUniqueKey: {"tasks", "tasks_unique_key", "unique_key", "unique_key <> ''"},
	rows.TaskReady: {
		"tasks", "tasks_ready", "priority round place",
		"takeable AND front <> 1",
	},
	rows.TaskKind: {
		"tasks", "tasks_kind", "kind priority round place", "takeable AND (kind <> '' OR front = 1)",
	},
	rows.TaskLine:  {"tasks", "tasks_key", `"key" priority round place`, ""},
	rows.TaskPlace: {"tasks", "tasks_place", `"key" priority (front<>3) place`, inLine},
	rows.TaskKinds: {"tasks", "tasks_kinds", `"key" kind priority front place`, inLine},
	rows.TaskShown: {
		"tasks", "tasks_shown", `"key" takeable id`,
		inLine + " AND (hidden OR takeable AND front = 3)",
	},
	rows.TaskWake:  {"tasks", "tasks_wake", "wake", "wake > 0"},
	rows.TaskSince: {"tasks", "tasks_since", "consumer since", "state IN (3, 4)"},
	rows.TaskState: {"tasks", "tasks_state", "state id", "state <> 1 AND state <> 3"},
	rows.TaskGroup: {"tasks", "tasks_group", `"group" id`, `"group" <> ''`},

	rows.KeyName:          {"keys", "", `"key"`, ""},
	rows.KeyUntil:         {"keys", "keys_until", "waits until", "until > 0"},
	rows.KeyLimits:        {"keys", "keys_limits", `"key"`, "limits <> ''"},
	rows.ServedLine:       {"served", "", `priority "key"`, ""},
	rows.ServedRound:      {"served", "served_round", "priority round", ""},
	rows.ConsumerNumber:   {"consumers", "", "number", ""},
	rows.ConsumerName:     {"consumers", "consumers_name", "name", ""},
	rows.ConsumerDeadline: {"consumers", "consumers_deadline", "deadline", "deadline > 0"},
	rows.GroupName:        {"groups", "", "name", ""},
	rows.OutcomeKey:       {"outcomes", "", "unique_key", ""},
	rows.OutcomeUntil:     {"outcomes", "outcomes_until", "until", "until > 0"},
	rows.HistoryID:        {"history", "", "id", ""},
	rows.HistoryUntil:     {"history", "history_until", "until", "until > 0"},
}

// columnsOf has the columns of each table in the order of reading.
var columnsOf = map[string]string{
	"tasks": taskColumns,
	"keys": `"key", ready, delayed, taken, buried, held, paused, waits, until, hold, held_by, ` +
		`filled, limits`,
	"served":    `"key", priority, round, used`,
	"consumers": `number, name, epoch, deadline`,
	"groups":    `name, started, cancelled, tasks, members`,
	"outcomes":  `unique_key, id, result, err_code, err, until`,
	"history": `id, "key", kind, unique_key, attempts, created, finished, result, ` +
		`err_code, err, until, ` +
		`payload`,
}

// shape is the part of a range that decides the text of its statement. A statement is prepared
// once for each shape, because preparing it takes longer than running it. There are few shapes,
// because values are no part of it (see TestPreparedOnce).
type shape struct {
	index                rows.Index
	prefix, from, to     int // fields
	desc, limit, payload bool
	state, key, kind     bool
}

func (s *shape) statement() *statement {
	in := &sources[s.index]
	columns, fields := columnsOf[in.table], strings.Fields(in.fields)
	if s.payload {
		columns = withPayload
	}
	var b strings.Builder
	b.WriteString("SELECT " + columns + " FROM ~" + in.table)
	if in.index != "" { // instead of SQLite's choice
		b.WriteString(" INDEXED BY ~" + in.index)
	}
	b.WriteString(" WHERE ")
	rest := fields[s.prefix:]
	and := ""
	where := func(is bool, condition string) {
		if is {
			b.WriteString(and + condition)
			and = " AND "
		}
	}
	if in.fields == "id" {
		where(s.prefix == 1, "id = ?")
		where(s.prefix == 0, "id > ? AND id <= ?")
	} else {
		where(true, "queue = ?")
		for _, f := range fields[:s.prefix] {
			where(true, f+" = ?")
		}
		where(s.from > 0, tuple(rest, s.from)+" >= "+tuple(nil, s.from))
		where(s.to > 0, tuple(rest, s.to)+" < "+tuple(nil, s.to))
	}
	where(in.where != "", in.where)
	where(s.state, "+state = ?")
	where(s.key, `+"key" = ?`)
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
	return &statement{"read " + in.table, b.String()}
}

// tuple returns n fields as one value, or if there are none marks for them.
func tuple(fields []string, n int) string {
	list := placeholders(n)
	if fields != nil {
		list = strings.Join(fields[:n], ", ")
	}
	if n == 1 {
		return list
	}
	return "(" + list + ")"
}

// scan calls read for each row of a range.
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

// each is scan for one prefix. Of tasks without a kind only tasks with a shared turn are in
// the index of kinds; the others are found in the index of all.
func (v *view) each(r *rows.Range, prefix rows.Tuple, read func(c *cells)) error {
	if r.Index == rows.TaskKind && prefix[0] == "" {
		all := *r
		all.Index, all.Only.Kind = rows.TaskReady, new("")
		if err := v.each(&all, nil, read); err != nil {
			return err
		}
	}
	s := &shape{prefix: len(prefix), from: len(r.From), limit: r.Limit > 0}
	return v.run(r, s, prefix, r.From, read)
}

// run completes a shape from a range, and runs its statement.
func (v *view) run(r *rows.Range, s *shape, prefix, from rows.Tuple, read func(c *cells)) error {
	s.index, s.to, s.desc, s.payload = r.Index, len(r.To), r.Desc, r.Payload
	o := r.Only
	s.state, s.key, s.kind = o.State != 0, o.Key != nil, o.Kind != nil
	var room [12]sqldriver.Value
	args := room[:0]
	if sources[s.index].fields == "id" {
		args = v.ids(args, prefix, from)
	} else {
		args = appendTuple(append(args, v.queue), prefix)
		args = appendTuple(args, from)
		// The id at the end of these indexes is a rowid here, which includes the queue.
		if s.from > 0 && (s.index == rows.TaskGroup || s.index == rows.TaskState) {
			args[2] = v.rowid(uint64(from[0].(int64)-1)) + 1
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
	return v.session.each(v.session.scan(s), read, args...)
}

func appendTuple(args []sqldriver.Value, fields rows.Tuple) []sqldriver.Value {
	for _, f := range fields {
		args = append(args, f)
	}
	return args
}

// ids adds the bounds of rowids. A rowid begins with the queue, so a range of ids is a range of
// the table. An id that is too great has no rowid. From is the first id, and the statement asks
// for those after its argument.
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
func (s *session) scan(of *shape) *statement {
	st := s.scans[*of]
	if st == nil {
		if s.scans == nil {
			s.scans = map[shape]*statement{}
		}
		st = of.statement()
		s.scans[*of] = st
	}
	return st
}
