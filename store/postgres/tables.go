package postgres

import (
	"bytes"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fairq/fairq/store/internal/columns"
	"github.com/fairq/fairq/store/internal/rows"
)

// rowTable implements rows.Table.
type rowTable[R any] struct {
	*view
	*tableOps[R]
}

// tableOps write the rows of a table.
type tableOps[R any] struct {
	*columns.Table[R]
	names       string // of the columns
	set, remove rowsSQL
}

var (
	taskOps     = tableOf(columns.Tasks, "", "")
	keyOps      = tableOf(columns.Keys, "", "")
	turnOps     = tableOf(columns.Turns, "", "")
	servedOps   = tableOf(columns.Served, "", "")
	consumerOps = tableOf(columns.Consumers, "", "")
	groupOps    = tableOf(columns.Groups, "", "")
	outcomeOps  = tableOf(columns.Outcomes, ", written", ", pg_current_xact_id()")
	historyOps  = tableOf(columns.History, "", "")
)

// tables are the operations of the tables, by their names.
var tables = map[string]interface {
	add(v *view, r *rows.Range) any
	search(v *view, s *search) any
}{}

// tableOf returns the operations of a table, perhaps with a further column and its value.
func tableOf[R any](of *columns.Table[R], column, value string) *tableOps[R] {
	t, updates := &tableOps[R]{Table: of, names: of.Names(of.All)}, of.Updates()
	if column != "" {
		updates += column + " = excluded." + column[2:]
	}
	t.set = withRows(of.Columns, "INSERT INTO fairq."+of.Name+" (queue, "+t.names+column+
		") SELECT $1, "+of.List(of.All, stored)+value+" FROM %s ON CONFLICT (queue, "+
		of.Names(of.Key)+") DO UPDATE SET "+updates)
	theirs := of.List(of.Key, func(c *columns.Column) string { return "u." + c.Name })
	t.remove = withRows(of.Pick(of.Key), "DELETE FROM fairq."+of.Name+" WHERE ctid = ANY(ARRAY("+
		"SELECT t.ctid FROM %s CROSS JOIN LATERAL (SELECT ctid FROM fairq."+of.Name+
		" WHERE queue = $1 AND ("+of.Names(of.Key)+") = ("+theirs+") OFFSET 0) t))")
	t.remove.deletes = true
	tables[of.Name] = t
	return t
}

// cell reads a column into a field.
type cell struct {
	field any
	null  int64 // what NULL stands for
}

// ScanInt64 implements pgtype.Int64Scanner.
func (c *cell) ScanInt64(v pgtype.Int8) error {
	if !v.Valid {
		v.Int64 = c.null
	}
	columns.SetInt(c.field, v.Int64)
	return nil
}

// ScanBytes implements pgtype.BytesScanner.
func (c *cell) ScanBytes(b []byte) error {
	if _, isKept := c.field.(*[]byte); isKept { // b is not
		b = bytes.Clone(b)
	}
	_, err := columns.SetBytes(c.field, b, b == nil)
	return err
}

// reader returns a function that reads an answer and calls found with each row. An answer has the
// chosen columns of the table, and then columns that are read into more.
func reader[R any](
	t *columns.Table[R], some columns.Choice, found func(*R), more ...any,
) func(pgx.Rows) error {
	return func(answer pgx.Rows) error {
		cells := t.Cells()
		defer t.Done(cells)
		into, wrapped := make([]any, 0, len(some)+len(more)), make([]cell, len(some))
		for n, i := range some {
			c := &t.Columns[i]
			wrapped[n] = cell{cells.Fields[i], c.Zero}
			if into = append(into, &wrapped[n]); c.Int && !c.Null { // the driver knows it
				into[n] = cells.Fields[i]
			}
		}
		into = append(into, more...)
		return each(func(answer pgx.Rows) error {
			err := answer.Scan(into...)
			row := cells.Row
			found(&row)
			return err
		})(answer)
	}
}

// addRows adds a statement that reads the chosen columns of rows. They are there after send.
func addRows[R any](
	v *view, t *columns.Table[R], some columns.Choice, sql string, args []any,
) *[]*R {
	all := new([]*R)
	read := reader(t, some, func(r *R) { *all = append(*all, r) })
	v.tx.add(sql, args...).Query(func(answer pgx.Rows) error {
		*all = nil // the batch may be sent again
		return read(answer)
	})
	return all
}

func (v *view) Tasks() rows.Table[rows.Row] {
	return taskTable{rowTable[rows.Row]{v, taskOps}}
}

func (v *view) Turns() rows.Table[rows.Turn] {
	return turnTable{rowTable[rows.Turn]{v, turnOps}}
}

func (v *view) Keys() rows.Table[rows.Key]      { return rowTable[rows.Key]{v, keyOps} }
func (v *view) Served() rows.Table[rows.Served] { return rowTable[rows.Served]{v, servedOps} }
func (v *view) Groups() rows.Table[rows.Group]  { return rowTable[rows.Group]{v, groupOps} }
func (v *view) History() rows.Table[rows.Ended] { return rowTable[rows.Ended]{v, historyOps} }
func (v *view) Consumers() rows.Table[rows.Consumer] {
	return rowTable[rows.Consumer]{v, consumerOps}
}

func (v *view) Outcomes() rows.Table[rows.Outcome] {
	return rowTable[rows.Outcome]{v, outcomeOps}
}

// Scan implements rows.Table.
func (t rowTable[R]) Scan(r rows.Range) ([]*R, error) {
	found := t.take(&r)
	if found == nil {
		if err := t.fetch("read "+t.Name, r); err != nil {
			return nil, err
		}
		found = t.take(&r)
	}
	return t.Merged(&r, *found.(*[]*R)), nil
}

// add adds the reading of a range to the batch. The rows are there after send.
func (t *tableOps[R]) add(v *view, r *rows.Range) any {
	sql, args := v.statement(r, t.names)
	return addRows(v, t.Table, t.All, sql, args)
}

// Put implements rows.Table.
func (t rowTable[R]) Put(r *R) error {
	t.write(r, t.set, t.remove, t.All)
	return nil
}

// Delete implements rows.Table.
func (t rowTable[R]) Delete(r *R) error {
	t.write(r, t.remove, t.set, t.Key)
	return nil
}

// write buffers a row for a statement, after the buffered change of the same row by another one.
func (t rowTable[R]) write(r *R, sql, other rowsSQL, some columns.Choice) {
	t.forgetFetched(t.Name)
	var key rowKey
	copy(key[:], t.Schema[0].Place(r))
	for _, b := range t.buffers {
		if _, ok := b.at[key]; ok && b.sql == other {
			t.tx.flush()
			break
		}
	}
	t.buffer(sql).set(key, valuesOf(t.Table, r, some))
}

// Sweep implements rows.Table.
func (t rowTable[R]) Sweep(r rows.Range) error {
	t.forgetFetched(t.Name)
	r.Lock = rows.SkipLocked
	sql, args := t.statement(&r, "ctid")
	t.tx.flush()
	t.tx.add("DELETE FROM fairq."+t.Name+" WHERE ctid = ANY(ARRAY("+sql+"))", args...)
	return nil
}

// turnTable is the table of turns.
type turnTable struct{ rowTable[rows.Turn] }

// Put implements rows.Table.
func (t turnTable) Put(r *rows.Turn) error {
	if r.Takeable {
		t.moveMarksBack(r.Priority, r.Round, r.Place, t.Name, nameOf(r.Kind))
	}
	return t.rowTable.Put(r)
}

// Scan implements rows.Table. If a search of kinds finds nothing, others may have locked the keys
// of all turns that it has read.
func (t turnTable) Scan(r rows.Range) ([]*rows.Turn, error) {
	found, err := t.rowTable.Scan(r)
	if len(found) > 0 || err != nil || !t.locksKeys || r.Index != rows.TurnKind || !isSearch(r) {
		return found, err
	}
	t.addSearch(t.newSearch(&r, manyExtra))
	if err := t.tx.send("search"); err != nil {
		return nil, err
	}
	return t.rowTable.Scan(r)
}
