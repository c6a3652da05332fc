package postgres

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/fairq/fairq/store/internal/columns"
	"github.com/fairq/fairq/store/internal/rows"
)

// ofKeys are the tables whose rows are not to be changed without the lock of their key.
var ofKeys = []string{"tasks", "turns", "keys"}

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

// statement returns the query for a range.
func (v *view) statement(r *rows.Range, selected string) (string, []any) {
	in := &columns.Indexes[r.Index]
	q := &query{args: []any{v.queue}}
	several := len(r.Prefixes) > 1
	if several {
		// The rows are looked up one by one, because with = ANY the planner scans a whole queue if
		// it is nearly empty at planning time.
		q.sql.WriteString("SELECT t.* FROM " + q.rows(r.Prefixes) + " CROSS JOIN LATERAL (")
	}
	q.sql.WriteString("SELECT " + selected + " FROM fairq." + in.Table + " WHERE queue = $1")
	rest := in.Fields
	switch {
	case len(r.Prefixes) == 0 && r.Prefixes != nil:
		q.and("false")
		return q.sql.String(), q.args
	case several:
		n := len(r.Prefixes[0])
		for i := range n {
			q.and(fmt.Sprintf("%s = u.f%d", in.Fields[i], i))
		}
		rest = rest[n:]
	case r.Prefixes != nil:
		for i, x := range r.Prefixes[0] {
			q.and(in.Fields[i] + " = " + q.arg(x))
		}
		rest = rest[len(r.Prefixes[0]):]
	}
	q.compare(rest, ">=", r.From)
	q.compare(rest, "<", r.To)
	if in.Where != "" {
		q.and(in.Where)
	}
	q.only(&r.Only)
	if v.locksKeys && r.Lock == rows.SkipLocked && slices.Contains(ofKeys, in.Table) {
		q.and(sqlTryKey)
	}
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
	lock := lockOf(r)
	q.sql.WriteString(lock)
	if several {
		if lock == "" { // keeps the planner from looking for another way, as locks do
			q.sql.WriteString(" OFFSET 0")
		}
		q.sql.WriteString(") t")
	}
	return q.sql.String(), q.args
}

// rows adds prefixes to the arguments, and returns SQL for them: rows u with the fields f0, f1 and
// so on. Each argument is an array with the values of one field.
func (q *query) rows(prefixes []rows.Tuple) string {
	var arrays, names []string
	for f, x := range prefixes[0] {
		numbers, texts := make([]int64, len(prefixes)), make([][]byte, len(prefixes))
		_, isText := x.(string)
		for i, p := range prefixes {
			if isText {
				texts[i] = []byte(p[f].(string))
			} else {
				numbers[i] = p[f].(int64)
			}
		}
		if isText {
			arrays = append(arrays, q.arg(texts)+"::bytea[]")
		} else {
			arrays = append(arrays, q.arg(numbers)+"::bigint[]")
		}
		names = append(names, fmt.Sprintf("f%d", f))
	}
	return "unnest(" + strings.Join(arrays, ", ") + ") u (" + strings.Join(names, ", ") + ")"
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

// lockOf returns the lock clause for rows. Turns need none, because their key stands for them, or
// the transaction is exclusive. Consumers read with ForUpdate are not deleted, so reads with
// ForShare need not wait.
func lockOf(r *rows.Range) string {
	switch {
	case columns.Indexes[r.Index].Table == "turns":
		return ""
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

// fetched is a range that was read ahead.
type fetched struct {
	rows.Range
	found any // the result of Scan
}

// forgetFetched forgets the rows read ahead from a table that is being written.
func (v *view) forgetFetched(table string) {
	kept := v.fetched[:0]
	for _, f := range v.fetched {
		if columns.Indexes[f.Index].Table != table {
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
func (v *view) Fetch(ranges ...rows.Range) error { return v.fetch("fetch", ranges...) }

func (v *view) fetch(what string, ranges ...rows.Range) error {
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
	return v.tx.send(what)
}

// addRange adds the reading of a range to the batch, for a later Scan.
func (v *view) addRange(r *rows.Range) {
	if isSearch(*r) {
		v.addSearch(v.newSearch(r, someExtra))
		return
	}
	var found any
	if table := columns.Indexes[r.Index].Table; table == "tasks" {
		found = v.addTasks(r)
	} else {
		found = tables[table].add(v, r)
	}
	v.fetched = append(v.fetched, fetched{*r, found})
}
