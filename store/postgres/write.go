package postgres

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/store/internal/rows"
)

// rowsSQL is a statement that writes rows. Many rows are arrays, one for each column. A single
// row, the usual case, has plain parameters, because the server would spend most of the
// statement's time on arrays.
type rowsSQL struct {
	many, one string
	deletes   bool
}

// withRows makes a statement from a text in which %s stands for the rows. The rows are named u,
// with the given columns in the order of the arguments; the first n are bigint.
func withRows(n int, columns, sql string) rowsSQL {
	var arrays, values []string
	for i := range strings.Count(columns, ",") + 1 {
		value := "$" + strconv.Itoa(i+2) + "::bytea"
		if i < n {
			value = "$" + strconv.Itoa(i+2) + "::bigint"
		}
		arrays, values = append(arrays, value+"[]"), append(values, value)
	}
	return rowsSQL{
		many: fmt.Sprintf(sql, "unnest("+strings.Join(arrays, ", ")+") u ("+columns+")"),
		one:  fmt.Sprintf(sql, "(VALUES ("+strings.Join(values, ", ")+")) u ("+columns+")"),
	}
}

// rowBuffer collects rows that one statement writes, by columns.
type rowBuffer struct {
	sql   rowsSQL
	n     int
	at    map[[2]any]int // the index of a row by its key, if they have one
	ints  [][]int64
	bytes [][][]byte
}

// add adds a row.
func (t *rowBuffer) add(ints []int64, bytes ...[]byte) {
	if t.ints == nil {
		t.ints, t.bytes = make([][]int64, len(ints)), make([][][]byte, len(bytes))
	}
	t.n++
	for c, n := range ints {
		t.ints[c] = append(t.ints[c], n)
	}
	for c, b := range bytes {
		t.bytes[c] = append(t.bytes[c], b)
	}
}

// set adds a row, which takes the place of an earlier one with the same key.
func (t *rowBuffer) set(key [2]any, ints []int64, bytes [][]byte) {
	i, ok := t.at[key]
	if !ok {
		if t.at == nil {
			t.at = map[[2]any]int{}
		}
		t.at[key] = len(t.at)
		t.add(ints, bytes...)
		return
	}
	for c, n := range ints {
		t.ints[c][i] = n
	}
	for c, b := range bytes {
		t.bytes[c][i] = b
	}
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
	if t.n == 0 {
		return
	}
	sql, args := t.sql.many, make([]any, 1, 1+len(t.ints)+len(t.bytes))
	if t.n == 1 {
		sql = t.sql.one
	}
	args[0] = v.queue
	for _, c := range t.ints {
		args = append(args, column(c))
	}
	for _, c := range t.bytes {
		args = append(args, column(c))
	}
	v.tx.add(sql, args...)
}

// column returns a column as an argument of rowsSQL.
func column[T any](values []T) any {
	if len(values) == 1 {
		return values[0]
	}
	return values
}

const changingColumns = `priority, state, takeable, gap, returned, untried, front, hidden,
	round, used, place, since, consumer, follower, attempts, ready_at, until, expires,
	latest, wake, err_code`

var (
	sqlInsert = withRows(29,
		"id, role, weight, cost, ttr, max_attempts, created, deadline, "+changingColumns+
			", grp, err_message, key, kind, unique_key, metadata, payload", `
INSERT INTO fairq.tasks (queue, id, role, weight, cost, ttr, max_attempts, created, deadline,
	`+changingColumns+`,
	grp, err_message, key, kind, unique_key, metadata, payload)
SELECT $1, id, role, nullif(weight, 1), nullif(cost, 1), nullif(ttr, 0),
	nullif(max_attempts, 0), created, nullif(deadline, 0),
	priority, state, takeable <> 0, gap <> 0, returned <> 0, untried <> 0, front, hidden <> 0,
	round, nullif(used, 0), place, since, nullif(consumer, 0), nullif(follower, 0), attempts,
	nullif(ready_at, 0),
	nullif(until, 0), nullif(expires, 0), nullif(latest, 0), nullif(wake, 0),
	nullif(err_code, 0), grp, err_message,
	key, kind, unique_key, metadata, payload
FROM %s`)

	// The rows are looked up one by one before the join, and are locked already. If the table
	// itself were joined, the planner might scan all of it while the queue seems short.
	sqlUpdate = withRows(22, "id, "+changingColumns+", grp, err_message", `
UPDATE fairq.tasks t SET
	priority = u.priority, state = u.state, takeable = u.takeable <> 0, gap = u.gap <> 0,
	returned = u.returned <> 0, untried = u.untried <> 0, front = u.front, hidden = u.hidden <> 0,
	round = u.round, used = nullif(u.used, 0),
	place = u.place, since = u.since,
	consumer = nullif(u.consumer, 0), follower = nullif(u.follower, 0), attempts = u.attempts,
	ready_at = nullif(u.ready_at, 0),
	until = nullif(u.until, 0), expires = nullif(u.expires, 0), latest = nullif(u.latest, 0),
	wake = nullif(u.wake, 0), err_code = nullif(u.err_code, 0),
	grp = u.grp, err_message = u.err_message
FROM (
	SELECT at, u.* FROM %s CROSS JOIN LATERAL (
		SELECT ctid AS at FROM fairq.tasks WHERE queue = $1 AND id = u.id OFFSET 0
	) t
) u WHERE t.ctid = u.at`)

	sqlTake = withRows(6, "id, since, consumer, attempts, until, wake", `
UPDATE fairq.tasks t SET
	state = 3, takeable = false, since = u.since, consumer = nullif(u.consumer, 0),
	attempts = u.attempts, until = nullif(u.until, 0), wake = nullif(u.wake, 0)
FROM (
	SELECT at, u.* FROM %s CROSS JOIN LATERAL (
		SELECT ctid AS at FROM fairq.tasks WHERE queue = $1 AND id = u.id OFFSET 0
	) t
) u WHERE t.ctid = u.at`)
)

const sqlDelete = `
DELETE FROM fairq.tasks WHERE ctid = ANY(ARRAY(
	SELECT t.ctid FROM unnest($2::bigint[]) i CROSS JOIN LATERAL (SELECT ctid FROM fairq.tasks
		WHERE queue = $1 AND id = i OFFSET 0) t
))`

// flush adds the buffered writes to the batch. It deletes rows before it inserts others, which may
// have their unique keys. Each kind of write is one statement, with all its rows as arrays. So a
// transaction has few statements with constant texts, and the database plans each once.
func (v *view) flush() {
	var gone []int64
	inserts, updates, takes := rowBuffer{sql: sqlInsert}, rowBuffer{sql: sqlUpdate},
		rowBuffer{sql: sqlTake}
	var copied *copyData
	if v.inserts >= v.tx.db.config.copyFrom && v.tx.user == nil {
		copied = newCopyData(v.inserts)
	}
	for i := range v.changes {
		r := &v.changes[i].Row
		switch v.changes[i].op {
		case opDelete:
			gone = append(gone, int64(r.ID))
		case opUpdate:
			updates.add(append([]int64{int64(r.ID)}, changingValues(r)...), optional(r.Group),
				messageOf(r.Err))
		case opTake:
			takes.add([]int64{
				int64(r.ID), int64(r.Since), int64(r.Consumer), int64(r.Attempts), r.Until, r.Wake,
			})
		case opInsert:
			if copied != nil {
				copied.add(v.queue, r)
				continue
			}
			inserts.add(append([]int64{
				int64(r.ID), int64(r.Role), int64(r.Weight), r.Cost, int64(r.TTR), int64(r.MaxAttempts),
				r.Created, r.Deadline,
			}, changingValues(r)...), optional(r.Group), messageOf(r.Err), []byte(r.Key), []byte(r.Kind),
				optional(r.UniqueKey), optional(r.Metadata), r.Payload)
		}
	}
	v.changes, v.inserts = v.changes[:0], 0
	clear(v.changed)
	if gone != nil {
		v.tx.add(sqlDelete, v.queue, gone)
	}
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

func changingValues(r *rows.Row) []int64 {
	return []int64{
		int64(r.Priority), int64(r.State), bit(r.Takeable), bit(r.Gap), bit(r.Returned), bit(r.Untried),
		int64(r.Front), bit(r.Hidden), int64(r.Round), int64(r.Used), int64(r.Place),
		int64(r.Since), int64(r.Consumer), int64(r.Follower), int64(r.Attempts), r.ReadyAt, r.Until,
		r.Expires, r.Latest, r.Wake, codeOf(r.Err),
	}
}

func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// optional returns a string whose NULL is "".
func optional(s string) []byte {
	if s == "" {
		return nil
	}
	return []byte(s)
}

// messageOf returns NULL for no error, but not for an error without a message.
func messageOf(e *driver.Error) []byte {
	if e == nil {
		return nil
	}
	return []byte(e.Message)
}

func codeOf(e *driver.Error) int64 {
	if e == nil {
		return 0
	}
	return int64(e.Code)
}
