package sqlite

import (
	sqldriver "database/sql/driver"
	"fmt"
	"slices"
	"strings"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/store/internal/columns"
	"github.com/fairq/fairq/store/internal/rows"
)

// table implements rows.Table.
type table[R any] struct {
	*view
	*tableOps[R]
}

// tableOps write the rows of a table. A rowid, the first column, is made of the queue and an id.
type tableOps[R any] struct {
	*columns.Table[R]
	hasRowid    bool
	put, remove *statement
}

var (
	taskOps     = tableOf(columns.Tasks, "")
	keyOps      = tableOf(columns.Keys, "")
	turnOps     = tableOf(columns.Turns, "")
	servedOps   = tableOf(columns.Served, "")
	consumerOps = tableOf(columns.Consumers, "")
	groupOps    = tableOf(columns.Groups, "")
	outcomeOps  = tableOf(columns.Outcomes, ", written")
	historyOps  = tableOf(columns.History, "")
)

// texts has, by the name of a table, the columns to read, and its primary key.
var texts = map[string]struct{ columns, key string }{}

// tableOf returns the operations of a table, perhaps with one more column. Rows with a rowid are
// never put again.
func tableOf[R any](of *columns.Table[R], column string) *tableOps[R] {
	names, key := of.Names(of.All), of.Names(of.Key)
	t := &tableOps[R]{Table: of, hasRowid: key == "id"}
	into, read, conflict, all := names+column, names, "", "queue = ?"
	if t.hasRowid {
		all = fmt.Sprintf("id BETWEEN ?1 << %d AND ?1 << %[1]d | %d", idBits, maxID)
		read = fmt.Sprintf("id & %d, %s", maxID, names[len("id, "):])
	} else {
		key = "queue, " + key
		conflict = " ON CONFLICT (" + key + ") DO UPDATE SET " + of.Updates()
	}
	texts[of.Name] = struct{ columns, key string }{read, key}
	if column != "" {
		conflict += column + " = excluded." + column[2:]
	}
	t.put = &statement{"write " + of.Name, "INSERT INTO ~" + of.Name + " (queue, " + into +
		") VALUES (?, " + marks(into) + ")" + conflict}
	drops = append(drops, &statement{"drop", "DELETE FROM ~" + of.Name + " WHERE " + all})
	t.remove = &statement{"delete " + of.Name, "DELETE FROM ~" + of.Name + " WHERE (" + key +
		") = (" + marks(key) + ")"}
	return t
}

// marks returns a question mark for each of some names.
func marks(names string) string {
	return strings.TrimSuffix(strings.Repeat("?, ", strings.Count(names, ", ")+1), ", ")
}

func (v *view) Tasks() rows.Table[rows.Row] {
	return taskTable{table[rows.Row]{v, taskOps}}
}
func (v *view) Keys() rows.Table[rows.Key]      { return table[rows.Key]{v, keyOps} }
func (v *view) Turns() rows.Table[rows.Turn]    { return table[rows.Turn]{v, turnOps} }
func (v *view) Served() rows.Table[rows.Served] { return table[rows.Served]{v, servedOps} }
func (v *view) Groups() rows.Table[rows.Group]  { return table[rows.Group]{v, groupOps} }
func (v *view) History() rows.Table[rows.Ended] { return table[rows.Ended]{v, historyOps} }
func (v *view) Consumers() rows.Table[rows.Consumer] {
	return table[rows.Consumer]{v, consumerOps}
}

func (v *view) Outcomes() rows.Table[rows.Outcome] {
	return outcomeTable{table[rows.Outcome]{v, outcomeOps}}
}

// reader returns a function that reads the columns of a row into cells, or the first of them.
func reader[R any](row *columns.Cells[R], all *[]*R) func(c *cells) {
	return func(c *cells) {
		for _, field := range row.Fields[:c.n] {
			c.read(field)
		}
		one := row.Row
		*all = append(*all, &one)
	}
}

// Scan implements rows.Table. It locks nothing, because no other connection can write.
func (t table[R]) Scan(r rows.Range) (all []*R, err error) {
	row := t.Cells()
	defer t.Done(row)
	err = t.scan(&r, reader(row, &all))
	return t.Merged(&r, all), err
}

// exec runs a statement with the queue, if it wants that, the chosen columns of a row, and more.
func (t table[R]) exec(
	st *statement, queue bool, row *columns.Cells[R], some columns.Choice, more ...sqldriver.Value,
) (int64, error) {
	var room [maxArgs]sqldriver.Value
	args := room[:0]
	if queue {
		args = append(args, t.queue)
	}
	for _, i := range some {
		value := columns.Value(row.Fields[i])
		if t.hasRowid && i == 0 {
			value = t.rowid(uint64(value.(int64)))
		}
		args = append(args, value)
	}
	t.Done(row)
	return t.session.exec(st, append(args, more...)...)
}

// Put implements rows.Table.
func (t table[R]) Put(r *R) error {
	_, err := t.exec(t.put, true, t.CellsOf(r), t.All)
	return err
}

// Delete implements rows.Table.
func (t table[R]) Delete(r *R) error {
	_, err := t.exec(t.remove, !t.hasRowid, t.CellsOf(r), t.Key)
	return err
}

// Sweep implements rows.Table.
func (t table[R]) Sweep(r rows.Range) error { return t.scan(&r, nil) }

// outcomeTable is the table of outcomes. Each gets a number when it is written.
type outcomeTable struct{ table[rows.Outcome] }

// Put implements rows.Table.
func (t outcomeTable) Put(o *rows.Outcome) error {
	number, err := t.Number()
	if err == nil {
		_, err = t.exec(t.put, true, t.CellsOf(o), t.All, int64(number))
	}
	return err
}

// taskTable is the table of tasks. The head has their numbers by state and is saved in the same
// transaction, so they change if, and only if, a row was written.
type taskTable struct{ table[rows.Row] }

// updateOf returns a statement that updates columns of a task. The last argument is the id; the
// driver binds numbered arguments more slowly.
func updateOf(name, more string, some columns.Choice) *statement {
	sets := columns.Tasks.List(some[:len(some)-1],
		func(c *columns.Column) string { return c.Name + " = ?" })
	return &statement{name, "UPDATE ~tasks SET " + more + sets + " WHERE id = ?"}
}

// The usual new task has no rare values. So its INSERT has no arguments for their columns, because
// the time to bind arguments grows with the square of their number.
var (
	updateTask  = updateOf("update", "", columns.Updated)
	takeTask    = updateOf("take", "state = 3, takeable = 0, ", columns.Taken)
	insertPlain = &statement{"insert", "INSERT INTO ~tasks (queue, " +
		columns.Tasks.Names(columns.Tasks.All) + ") VALUES (?, " + plain() + ")"}
)

// plain lists the values of a task without rare ones.
func plain() string {
	values := strings.Split(marks(columns.Tasks.Names(columns.Tasks.All)), ", ")
	for _, i := range columns.Rare {
		switch c := &columns.Tasks.Columns[i]; {
		case c.Int:
			values[i] = "0"
		case c.Name == "err_message":
			values[i] = "NULL"
		default:
			values[i] = "''"
		}
	}
	return strings.Join(values, ", ")
}

// isRare reports whether a task has a rare value.
func isRare(row *columns.Cells[rows.Row]) bool {
	return slices.ContainsFunc(columns.Rare, func(i int) bool {
		switch value := columns.Value(row.Fields[i]).(type) {
		case int64:
			return value != 0
		case string:
			return value != "" || columns.Tasks.Columns[i].Name == "err_message"
		}
		return false // no error
	})
}

// Put implements rows.Table. A taken row that was in no line stays at its place in the index by
// keys.
func (t taskTable) Put(r *rows.Row) error {
	st, isNew, some, row := updateTask, r.Was == 0, columns.Updated, t.CellsOf(r)
	switch {
	case isNew && isRare(row):
		st, some = t.put, t.All
	case isNew:
		st, some = insertPlain, columns.Usual
	case r.Was == driver.Ready && r.State == driver.Taken && !r.InLine:
		st, some = takeTask, columns.Taken
	}
	n, err := t.exec(st, isNew, row, some)
	if n > 0 {
		rows.Count(&t.head.tasks, r.Was, r.State)
	}
	return err
}

// Delete implements rows.Table.
func (t taskTable) Delete(r *rows.Row) error {
	n, err := t.exec(t.remove, false, t.CellsOf(r), t.Key)
	if n > 0 {
		rows.Count(&t.head.tasks, r.Was, 0)
	}
	return err
}
