package postgres

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fairq/fairq/store/internal/rows"
)

// source is the table or index behind an index of package rows.
type source struct {
	table  string
	fields []string // as in rows.Index, after the queue
	where  string   // a condition from which the planner recognizes the index
}

var sources = [rows.NumIndexes]source{
	rows.TaskID:        {"tasks", []string{"id"}, ""},
	rows.TaskUniqueKey: {"tasks", []string{"unique_key"}, ""},
	// see also ready.go
	rows.TaskReady: {"tasks", []string{"priority", "round", "seq"}, "takeable AND NOT shared"},
	rows.TaskKind:  {table: "tasks"},
	rows.TaskLine:  {"tasks", []string{"key", "priority", "round", "seq", "place"}, ""},
	// see also eachStatement
	rows.TaskParked: {"tasks", []string{"key", "priority", "kind", "place"}, isParked},
	rows.TaskWake:   {"tasks", []string{"wake"}, "wake IS NOT NULL"},
	rows.TaskSince:  {"tasks", []string{"coalesce(consumer, 0)", "since"}, "state IN (3, 4)"},
	rows.TaskState:  {"tasks", []string{"state", "id"}, "state <> 1 AND state <> 3"},
	rows.TaskGroup:  {"tasks", []string{"grp", "id"}, ""},

	rows.KeyName:          {"keys", []string{"key"}, ""},
	rows.KeyUntil:         {"keys", []string{"until"}, "until IS NOT NULL"},
	rows.ServedLine:       {"served", []string{"priority", "key"}, ""},
	rows.ServedRound:      {"served", []string{"priority", "round"}, "round IS NOT NULL"},
	rows.ConsumerNumber:   {"consumers", []string{"number"}, ""},
	rows.ConsumerName:     {"consumers", []string{"name"}, ""},
	rows.ConsumerDeadline: {"consumers", []string{"deadline"}, "deadline IS NOT NULL"},
	rows.GroupName:        {"groups", []string{"name"}, ""},
	rows.OutcomeKey:       {"outcomes", []string{"unique_key"}, ""},
	rows.OutcomeUntil:     {"outcomes", []string{"until"}, "until IS NOT NULL"},
	rows.HistoryID:        {"history", []string{"id"}, ""},
	rows.HistoryUntil:     {"history", []string{"until"}, "until IS NOT NULL"},
}

// query builds the statement for a range.
type query struct {
	sql  strings.Builder
	args []any
}

func (q *query) arg(x any) string {
	if s, ok := x.(string); ok {
		x = []byte(s)
	}
	q.args = append(q.args, x)
	return fmt.Sprintf("$%d", len(q.args))
}

func (q *query) and(condition string) { q.sql.WriteString(" AND " + condition) }

// compare compares the first fields with a tuple.
func (q *query) compare(fields []string, op string, with rows.Tuple) {
	if with == nil {
		return
	}
	list := make([]string, len(with))
	for i, x := range with {
		list[i] = q.arg(x)
	}
	names := strings.Join(fields[:len(with)], ", ")
	q.and("(" + names + ") " + op + " (" + strings.Join(list, ", ") + ")")
}

// statement returns the query for a range of one prefix or none, or of several values of a field.
func statement(queue int64, r *rows.Range, columns string) (string, []any) {
	in := &sources[r.Index]
	q := &query{args: []any{queue}}
	several := r.Prefixes != nil && len(r.Prefixes) != 1
	if several {
		// The rows are looked up one by one, because with = ANY the planner scans a whole queue if
		// it is nearly empty at planning time.
		values := q.array(r.Prefixes)
		q.sql.WriteString("SELECT t.* FROM unnest(" + values + ") u CROSS JOIN LATERAL (")
	}
	q.sql.WriteString("SELECT " + columns + " FROM fairq." + in.table + " WHERE queue = $1")
	rest := in.fields
	switch {
	case several:
		q.and(in.fields[0] + " = u")
		rest = rest[1:]
	case r.Prefixes != nil:
		for i, x := range r.Prefixes[0] {
			q.and(in.fields[i] + " = " + q.arg(x))
		}
		rest = rest[len(r.Prefixes[0]):]
	}
	q.compare(rest, ">=", r.From)
	q.compare(rest, "<", r.To)
	if in.where != "" {
		q.and(in.where)
	}
	q.only(&r.Only)
	if len(rest) > 0 {
		desc := ""
		if r.Desc {
			desc = " DESC"
		}
		q.sql.WriteString(" ORDER BY " + strings.Join(rest, desc+", ") + desc)
	}
	if r.Limit > 0 {
		q.sql.WriteString(" LIMIT " + q.arg(int64(r.Limit)))
	}
	q.sql.WriteString(lockOf(r))
	if several {
		if r.Lock == rows.NoLock { // keeps the planner from looking for another way, as locks do
			q.sql.WriteString(" OFFSET 0")
		}
		q.sql.WriteString(") t")
	}
	return q.sql.String(), q.args
}

// array adds the values of prefixes with one field, all as one argument.
func (q *query) array(prefixes []rows.Tuple) string {
	if len(prefixes) > 0 {
		if _, ok := prefixes[0][0].(string); ok {
			return q.arg(stringsOf(prefixes)) + "::bytea[]"
		}
	}
	return q.arg(numbersOf(prefixes)) + "::bigint[]"
}

func stringsOf(prefixes []rows.Tuple) [][]byte {
	list := make([][]byte, len(prefixes))
	for i, p := range prefixes {
		list[i] = []byte(p[0].(string))
	}
	return list
}

func numbersOf(prefixes []rows.Tuple) []int64 {
	list := make([]int64, len(prefixes))
	for i, p := range prefixes {
		list[i] = p[0].(int64)
	}
	return list
}

func (q *query) only(o *rows.Only) {
	if o.State != 0 {
		q.and("state = " + q.arg(int64(o.State)))
	}
	if o.Key != nil {
		q.and("key = " + q.arg(*o.Key))
	}
	if o.Kind != nil {
		q.and("kind = " + q.arg(*o.Kind))
	}
}

// lockOf returns the lock clause for rows. Consumers read with ForUpdate are not deleted, so reads
// with ForShare need not wait.
func lockOf(r *rows.Range) string {
	switch {
	case r.Lock == rows.SkipLocked:
		return " FOR UPDATE SKIP LOCKED"
	case r.Lock == rows.ForShare:
		return " FOR KEY SHARE"
	case r.Lock == rows.ForUpdate && r.Index == rows.ConsumerNumber:
		return " FOR NO KEY UPDATE"
	case r.Lock == rows.ForUpdate:
		return " FOR UPDATE"
	}
	return ""
}

// unlocked returns a query that locks nothing. OFFSET 0 keeps the planner from looking for
// another way, as the locks did.
func unlocked(sql string) string {
	return strings.NewReplacer("FOR UPDATE SKIP LOCKED", "OFFSET 0").Replace(sql)
}

const (
	// The priorities of a key are looked up one after the other, and so are the priorities and
	// kinds of its parked tasks. OFFSET 0 makes Postgres look everything up for one of them at a
	// time.
	inLines = `
FROM unnest($2::bytea[]) u (key) CROSS JOIN LATERAL (
	WITH RECURSIVE p (priority) AS (
		SELECT (
			SELECT priority FROM fairq.tasks WHERE queue = $1 AND key = u.key ORDER BY priority LIMIT 1
		)
		UNION ALL
		SELECT (
			SELECT priority FROM fairq.tasks WHERE queue = $1 AND key = u.key AND priority > p.priority
			ORDER BY priority LIMIT 1
		)
		FROM p WHERE p.priority IS NOT NULL
	)
	SELECT priority FROM p WHERE priority IS NOT NULL OFFSET 0
) l CROSS JOIN LATERAL (`

	isParked = "state = 1 AND NOT takeable AND round = 0"
	ofKey    = "queue = $1 AND key = u.key AND " + isParked
	inKinds  = `
FROM unnest($2::bytea[]) u (key) CROSS JOIN LATERAL (
	WITH RECURSIVE s (priority, kind) AS (
		(
			SELECT priority, kind FROM fairq.tasks WHERE ` + ofKey + `
			ORDER BY priority, kind LIMIT 1
		)
		UNION ALL
		SELECT next.* FROM s CROSS JOIN LATERAL (
			SELECT priority, kind FROM fairq.tasks
			WHERE ` + ofKey + ` AND (priority, kind) > (s.priority, s.kind)
			ORDER BY priority, kind LIMIT 1
		) next
	)
	SELECT priority, kind FROM s OFFSET 0
) s CROSS JOIN LATERAL (`
)

// eachStatement returns the query for a range with Each: of the fronts of lines, or of the tasks
// parked there.
func eachStatement(queue int64, r *rows.Range, columns string) (string, []any) {
	columns = "SELECT " + columns + " FROM fairq.tasks WHERE "
	if r.Index == rows.TaskParked {
		return "SELECT t.*" + inKinds + columns + ofKey +
				" AND priority = s.priority AND kind = s.kind ORDER BY place LIMIT $3) t",
			[]any{queue, stringsOf(r.Prefixes), r.Limit}
	}
	return "SELECT t.*" + inLines + columns +
			"queue = $1 AND key = u.key AND priority = l.priority AND round >= $3 AND state = $4 OFFSET 0" +
			") t",
		[]any{queue, stringsOf(r.Prefixes), r.From[0], int64(r.Only.State)}
}

// fetched is a range that was read ahead.
type fetched struct {
	rows.Range
	found any // the result of Scan
}

// forgetFetched forgets the rows read ahead from a table that is being written.
func (v *view) forgetFetched(table string) {
	kept := v.fetched[:0]
	for _, f := range v.fetched {
		if sources[f.Index].table != table {
			kept = append(kept, f)
		}
	}
	v.fetched = kept
}

// take returns the rows read ahead of a range, and forgets them, because the caller may change
// them.
func (v *view) take(r *rows.Range) any {
	for i := range v.fetched {
		if reflect.DeepEqual(v.fetched[i].Range, *r) {
			found := v.fetched[i].found
			v.fetched = append(v.fetched[:i:i], v.fetched[i+1:]...)
			return found
		}
	}
	return nil
}

// Fetch implements rows.View.
func (v *view) Fetch(ranges ...rows.Range) error {
	sends := false
	for i := range ranges {
		r := &ranges[i]
		known := func(f fetched) bool { return reflect.DeepEqual(f.Range, *r) }
		if slices.ContainsFunc(v.fetched, known) {
			continue
		}
		if !sends {
			v.tx.flush()
		}
		v.addRange(r)
		sends = true
	}
	if !sends {
		return nil
	}
	return v.tx.send("fetch")
}

// addRange adds the reading of a range to the batch, for a later Scan.
func (v *view) addRange(r *rows.Range) {
	var found any
	switch sources[r.Index].table {
	case "tasks":
		found = v.addTasks(r)
	case "keys":
		found = addRows(v, keyTable, r)
	case "served":
		found = addRows(v, servedTable, r)
	case "consumers":
		found = addRows(v, consumerTable, r)
	case "outcomes":
		found = addRows(v, outcomeTable, r)
	case "history":
		found = addRows(v, historyTable, r)
	}
	v.fetched = append(v.fetched, fetched{*r, found})
}

// addRows adds the reading of a range to the batch. The rows are there after send.
func addRows[R any](v *view, t *tableOps[R], r *rows.Range) *[]*R {
	found := new([]*R)
	sql, args := statement(v.queue, r, t.columns)
	v.tx.add(sql, args...).Query(list(found, func(answer pgx.Rows, row **R) error {
		*row = new(R)
		return t.read(answer, *row)
	}))
	return found
}
