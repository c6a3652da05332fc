package postgres

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fairq/fairq/store/internal/columns"
)

// rowsSQL is a statement that writes rows. Many rows are arrays, one for each column. A single
// row, the usual case, has plain parameters, because the server would spend most of the
// statement's time on arrays.
type rowsSQL struct {
	many, one string
	deletes   bool
}

// withRows makes a statement from a text in which %s stands for the rows. The rows are named u,
// with these columns.
func withRows(all []columns.Column, sql string) rowsSQL {
	var arrays, values, names []string
	for i, c := range all {
		kind := "bytea"
		if c.Int {
			kind = "bigint"
		}
		value := "$" + strconv.Itoa(i+2) + "::" + kind
		arrays, values, names = append(arrays, value+"[]"), append(values, value), append(names, c.Name)
	}
	as := " u (" + strings.Join(names, ", ") + ")"
	return rowsSQL{
		many: fmt.Sprintf(sql, "unnest("+strings.Join(arrays, ", ")+")"+as),
		one:  fmt.Sprintf(sql, "(VALUES ("+strings.Join(values, ", ")+"))"+as),
	}
}

// rowBuffer collects rows that one statement writes. A value is an int64 or []byte.
type rowBuffer struct {
	sql  rowsSQL
	rows [][]any
	at   map[rowKey]int // the index of a row by its key, if they have one
}

func (t *rowBuffer) add(row ...any) { t.rows = append(t.rows, row) }

// rowKey is the primary key of a row.
type rowKey [4]any

// set adds a row, which takes the place of an earlier one with the same key.
func (t *rowBuffer) set(key rowKey, row []any) {
	if i, ok := t.at[key]; ok {
		t.rows[i] = row
		return
	}
	if t.at == nil {
		t.at = map[rowKey]int{}
	}
	t.at[key] = len(t.rows)
	t.add(row...)
}

// buffer returns the buffer of a statement. Rows are deleted before others are written, which may
// have their unique names.
func (v *view) buffer(sql rowsSQL) *rowBuffer {
	for _, t := range v.buffers {
		if t.sql == sql {
			return t
		}
	}
	t := &rowBuffer{sql: sql}
	if sql.deletes {
		v.buffers = slices.Insert(v.buffers, 0, t)
	} else {
		v.buffers = append(v.buffers, t)
	}
	return t
}

// do adds a statement to the batch, after all earlier writes.
func (v *view) do(sql string, args ...any) {
	v.tx.flush()
	v.tx.add(sql, append([]any{v.queue}, args...)...)
}

// addTo adds the statement to the batch, if there are rows.
func (t *rowBuffer) addTo(v *view) {
	switch len(t.rows) {
	case 0:
	case 1:
		v.tx.add(t.sql.one, append([]any{v.queue}, t.rows[0]...)...)
	default:
		args := []any{v.queue}
		for c, value := range t.rows[0] {
			if _, isNumber := value.(int64); isNumber {
				args = append(args, column[int64](t.rows, c))
			} else {
				args = append(args, column[[]byte](t.rows, c))
			}
		}
		v.tx.add(t.sql.many, args...)
	}
}

// column returns a column of some rows.
func column[T any](rows [][]any, c int) []T {
	values := make([]T, len(rows))
	for i, row := range rows {
		values[i] = row[c].(T)
	}
	return values
}

var (
	sqlInsert = withRows(columns.Tasks.Columns,
		"INSERT INTO fairq.tasks (queue, "+taskColumns+") SELECT $1, "+
			columns.Tasks.List(columns.Tasks.All, stored)+" FROM %s")
	sqlUpdate = updateOf(columns.Updated, "")
	sqlTake   = updateOf(columns.Taken, ", state = 3, takeable = false")
)

// stored returns the value of a column, as the database keeps it.
func stored(c *columns.Column) string { return storedOf("", c) }

func storedOf(of string, c *columns.Column) string {
	value := of + c.Name
	switch {
	case c.Bool:
		return value + " <> 0"
	case c.Int && c.Null:
		return fmt.Sprintf("nullif(%s, %d)", value, c.Zero)
	}
	return value
}

// updateOf returns a statement that updates columns of tasks. The rows are looked up one by one
// before the join, and are locked already. If the table itself were joined, the planner might scan
// all of it while the queue seems short.
func updateOf(some columns.Choice, more string) rowsSQL {
	sets := columns.Tasks.List(some[:len(some)-1], func(c *columns.Column) string { // without the id
		return c.Name + " = " + storedOf("u.", c)
	})
	return withRows(columns.Tasks.Pick(some), "UPDATE fairq.tasks t SET "+sets+more+` FROM (
	SELECT at, u.* FROM %s CROSS JOIN LATERAL (
		SELECT ctid AS at FROM fairq.tasks WHERE queue = $1 AND id = u.id OFFSET 0
	) t
) u WHERE t.ctid = u.at`)
}

// flush adds the buffered writes to the batch. It deletes rows before it inserts others, which may
// have their unique keys. Each kind of write is one statement, with all its rows as arrays. So a
// transaction has few statements with constant texts, and the database plans each once.
func (v *view) flush() {
	gone, updates := rowBuffer{sql: taskOps.remove}, rowBuffer{sql: sqlUpdate}
	takes, inserts := rowBuffer{sql: sqlTake}, rowBuffer{sql: sqlInsert}
	var copied *copyData
	if v.inserts >= v.tx.db.config.copyFrom && v.tx.user == nil {
		copied = newCopyData(v.inserts)
	}
	for i := range v.changes {
		r := &v.changes[i].Row
		switch v.changes[i].op {
		case opDelete:
			gone.add(int64(r.ID))
		case opUpdate:
			updates.add(valuesOf(columns.Tasks, r, columns.Updated)...)
		case opTake:
			takes.add(valuesOf(columns.Tasks, r, columns.Taken)...)
		case opInsert:
			if copied != nil {
				copied.add(v.queue, r)
			} else {
				inserts.add(valuesOf(columns.Tasks, r, columns.Tasks.All)...)
			}
		}
	}
	v.changes, v.inserts = v.changes[:0], 0
	clear(v.changed)
	gone.addTo(v)
	updates.addTo(v)
	takes.addTo(v)
	if copied != nil {
		v.tx.copyIn(copied)
	}
	inserts.addTo(v)
	for _, t := range v.buffers {
		t.addTo(v)
	}
	v.buffers = nil
}

// valuesOf returns the chosen columns of a row for a rowBuffer.
func valuesOf[R any](t *columns.Table[R], r *R, some columns.Choice) []any {
	cells := t.CellsOf(r)
	defer t.Done(cells)
	values := make([]any, len(some))
	for n, i := range some {
		values[n] = columns.Value(cells.Fields[i])
		switch text := values[n].(type) {
		case string:
			if values[n] = []byte(text); t.Columns[i].Null && text == "" {
				values[n] = []byte(nil)
			}
		case nil:
			values[n] = []byte(nil)
		}
	}
	return values
}
