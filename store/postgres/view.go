package postgres

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/store/internal/rows"
)

// view is a queue within a transaction. Two things make it fast, and each has an invariant.
//
// Rows read ahead are right as long as this transaction has not written to their table: no other
// transaction can change a row that it has locked, and the contract lets other rows be a little
// old. So every write forgets the rows read ahead of its table. The rules read their plan before
// they write.
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

	// Rows that were read ahead and are still right.
	ready   *search // the plan's
	fetched []fetched

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
	v.ready = nil
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
type taskTable struct{ *view }

// Put implements rows.Table.
func (v taskTable) Put(r *rows.Row) error {
	rows.Count(&v.delta, r.Was, r.State)
	switch {
	case r.Was == 0:
		v.change(r, opInsert)
		v.inserts++
	case r.Was == driver.Ready && r.State == driver.Taken:
		v.change(r, opTake)
		return nil
	default:
		v.change(r, opUpdate)
	}
	if v.marked && r.Takeable {
		v.moveMarksBack(r)
	}
	return nil
}

// Delete implements rows.Table.
func (v taskTable) Delete(r *rows.Row) error {
	rows.Count(&v.delta, r.Was, 0)
	v.change(r, opDelete)
	return nil
}

// Sweep implements rows.Table. It is never called for tasks.
func (v taskTable) Sweep(rows.Range) error {
	return v.tx.db.failed("sweep", errors.ErrUnsupported)
}

// Scan implements rows.Table.
func (v taskTable) Scan(r rows.Range) ([]*rows.Row, error) {
	if found := v.take(&r); found != nil {
		return *found.(*[]*rows.Row), nil
	}
	if isSearch(r) && r.Lock == rows.SkipLocked {
		return v.readyTasks(&r)
	}
	v.tx.flush()
	found := v.addTasks(&r)
	err := v.tx.send("read tasks")
	return *found, err
}

// addTasks adds the reading of tasks to the batch. They are there after send.
func (v *view) addTasks(r *rows.Range) *[]*rows.Row {
	found, payload, selected := new([]*rows.Row), r.Payload, columns
	switch {
	case payload:
		selected += ", payload"
	case r.Turns:
		selected = turnColumns
	case r.Each && !r.Desc, r.Index != rows.TaskID && r.Lock != rows.NoLock:
		// They may be kept, see rows.Plan.
		payload = true
		selected += fmt.Sprintf(", CASE WHEN octet_length(payload) <= %d THEN payload END", rows.MaxKept)
	}
	var sql string
	var args []any
	switch {
	case r.Index == rows.TaskKind:
		payload = true
		sql, args = v.newSearch(r, 0).statement(v.queue)
		sql = unlocked(sql)
	default:
		sql, args = v.statement(r, selected)
	}
	var s scannedRow
	into := s.columns()
	if r.Turns {
		into = s.turnColumns()
	} else if payload {
		into = append(into, &s.Payload)
	}
	v.tx.add(sql, args...).Query(s.reader(into, func(r *rows.Row) { *found = append(*found, r) }))
	return found
}

const columns = `id, key, kind, unique_key, grp, role, priority, weight, cost, ttr,
	max_attempts, created, deadline,
	state, takeable, gap, returned, untried, front, hidden, round, used, place, since, consumer,
	follower, attempts, ready_at, until, expires, latest, wake, err_code, err_message, metadata`

const turnColumns = `id, key, priority, weight, cost, state, returned, round, used, place`

// number is 0 where the database has NULL.
type number int64

// ScanInt64 implements pgtype.Int64Scanner.
func (n *number) ScanInt64(v pgtype.Int8) error {
	*n = number(v.Int64)
	return nil
}

// numberOrOne is 1 where the database has NULL.
type numberOrOne int64

// ScanInt64 implements pgtype.Int64Scanner.
func (n *numberOrOne) ScanInt64(v pgtype.Int8) error {
	if *n = 1; v.Valid {
		*n = numberOrOne(v.Int64)
	}
	return nil
}

// text is a string that the database keeps as bytea; NULL is "".
type text string

// ScanBytes implements pgtype.BytesScanner.
func (t *text) ScanBytes(b []byte) error {
	*t = text(b)
	return nil
}

// reader returns a function that reads an answer with tasks, and calls found with each.
func (s *scannedRow) reader(into []any, found func(*rows.Row)) func(pgx.Rows) error {
	return each(func(answer pgx.Rows) error {
		s.Payload = nil
		if err := answer.Scan(into...); err != nil {
			return err
		}
		found(s.row())
		return nil
	})
}

// scannedRow is a row of the database.
type scannedRow struct {
	rows.Row
	maxAttempts, consumer, follower, used, code, role, state, attempts number

	weight  numberOrOne
	message pgtype.DriverBytes
}

func (s *scannedRow) columns() []any {
	r := &s.Row
	return []any{
		&r.ID, (*text)(&r.Key), (*text)(&r.Kind), (*text)(&r.UniqueKey), (*text)(&r.Group), &s.role,
		&r.Priority, &s.weight,
		(*numberOrOne)(&r.Cost), (*number)(&r.TTR), &s.maxAttempts, &r.Created, (*number)(&r.Deadline),
		&s.state, &r.Takeable, &r.Gap, &r.Returned, &r.Untried, &r.Front, &r.Hidden, &r.Round,
		&s.used, &r.Place,
		&r.Since, &s.consumer, &s.follower, &s.attempts,
		(*number)(&r.ReadyAt), (*number)(&r.Until), (*number)(&r.Expires), (*number)(&r.Latest),
		(*number)(&r.Wake), &s.code, &s.message, (*text)(&r.Metadata),
	}
}

func (s *scannedRow) turnColumns() []any {
	r := &s.Row
	return []any{
		&r.ID, (*text)(&r.Key), &r.Priority, &s.weight, (*numberOrOne)(&r.Cost), &s.state, &r.Returned,
		&r.Round, &s.used, &r.Place,
	}
}

func (s *scannedRow) row() *rows.Row {
	r := s.Row
	r.Role, r.State, r.Weight, r.Used = driver.Role(s.role), driver.State(s.state), int(s.weight),
		uint64(s.used)
	r.Attempts, r.MaxAttempts = int(s.attempts), int(s.maxAttempts)
	r.Consumer, r.Follower = uint64(s.consumer), uint64(s.follower)
	r.Err = errorOf(s.message, s.code)
	return &r
}

// errorOf returns a recorded error, or nil.
func errorOf(message []byte, code number) *driver.Error {
	if message == nil {
		return nil
	}
	return &driver.Error{Code: int(code), Message: string(message)}
}
