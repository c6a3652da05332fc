package postgres

import (
	"fmt"
	"strings"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/store/internal/columns"
	"github.com/fairq/fairq/store/internal/rows"
)

// view is a queue within a transaction. Two things make it fast, and each has an invariant.
//
// Rows read ahead are right as long as this transaction has not written to their table. No other
// transaction can change a row that this one has locked, and the contract lets other rows be a
// little old. So every write forgets the rows read ahead of its table. The rules read their plan
// before they write.
//
// Writes are buffered here, and sent in one batch before the next read, so that each read sees
// them (see tx.query).
type view struct {
	tx    *tx
	queue int64
	kept
	locksKeys    bool
	last         int64 // the writer before
	now          int64
	numbers      []uint64 // fetched and not used yet
	numbersAsked int

	fetched []fetched // rows that were read ahead and are still right

	counted   *byState // as it is in the database; nil if it was not read
	countRows int      // in how many rows
	delta     byState  // the changes of this transaction

	// Buffered writes.
	changes []change
	changed map[uint64]int // by id, where in changes
	inserts int            // number of inserts among them
	buffers []*rowBuffer
}

// change is a row to be written.
type change struct {
	rows.Row
	op op
}

type op uint8

const (
	opNone op = iota // it was inserted, and deleted before it was sent
	opInsert
	opUpdate
	opTake // only what Row.SetTaken sets has changed
	opDelete
)

// change buffers the write of a row for the next flush. Several changes of a row become one,
// because a statement that writes many rows must not have the same row twice. It forgets tasks
// that were read ahead.
func (v *view) change(r *rows.Row, o op) {
	v.forgetFetched("tasks")
	c := change{*r, o}
	if i, ok := v.changed[r.ID]; ok && o == opInsert && v.changes[i].op == opDelete {
		v.flush() // it is put again
	}
	if i, ok := v.changed[r.ID]; ok {
		v.changes[i] = c.after(&v.changes[i])
	} else {
		if v.changed == nil {
			v.changed = map[uint64]int{}
		}
		v.changed[r.ID] = len(v.changes)
		v.changes = append(v.changes, c)
	}
}

// after returns a change merged with this later one.
func (c change) after(first *change) change {
	switch {
	case first.op == opInsert && c.op == opDelete:
		c.op = opNone
	case first.op == opInsert:
		c.op, c.Payload = opInsert, first.Payload // the row may have been read without it
	case first.op == opUpdate && c.op == opTake:
		c.op = opUpdate
	}
	return c
}

// taskTable is the table of tasks.
type taskTable struct{ rowTable[rows.Row] }

// Put implements rows.Table.
func (v taskTable) Put(r *rows.Row) error {
	rows.Count(&v.delta, r.Was, r.State)
	switch {
	case r.Was == 0:
		v.change(r, opInsert)
		v.inserts++
	case r.Was == driver.Ready && r.State == driver.Taken && !r.InLine:
		v.change(r, opTake)
		return nil
	default:
		v.change(r, opUpdate)
	}
	if r.Takeable {
		v.moveMarksBack(r.Priority, r.Round, r.Place, v.Name)
	}
	return nil
}

// Delete implements rows.Table.
func (v taskTable) Delete(r *rows.Row) error {
	rows.Count(&v.delta, r.Was, 0)
	v.change(r, opDelete)
	return nil
}

// The columns of tasks that are read.
var (
	taskColumns   = columns.Tasks.Names(columns.Tasks.All) // the payload is the last
	noPayload     = strings.TrimSuffix(taskColumns, ", payload")
	smallPayloads = noPayload + fmt.Sprintf(
		", CASE WHEN octet_length(payload) <= %d THEN payload END", rows.MaxKept)
	turnColumns = columns.Tasks.Names(columns.TurnFields)
)

// addTasks adds the reading of tasks to the batch. They are there after send.
func (v *view) addTasks(r *rows.Range) *[]*rows.Row {
	selected, some := noPayload, columns.Tasks.All[:len(columns.Tasks.All)-1]
	switch {
	case r.Payload:
		selected, some = taskColumns, columns.Tasks.All
	case r.Turns:
		selected, some = turnColumns, columns.TurnFields
	case r.Each && !r.Desc, r.Index != rows.TaskID && r.Lock != rows.NoLock:
		selected, some = smallPayloads, columns.Tasks.All // they may be kept, see rows.Plan
	}
	sql, args := v.statement(r, selected)
	return addRows(v, columns.Tasks, some, sql, args)
}
