package rows

import (
	"cmp"
	"fmt"
	"math"

	"github.com/fairq/fairq/internal/driver"
)

// How many rows a transaction writes is known only when it has written them. Where a transaction
// may not write many (Traits.MaxWrites), one estimate decides. With each row of a task, a
// transaction writes at most two other rows, of its key, its group, its outcome or the history. So
// the transaction may write maxRows rows of tasks, which bounds its calls:
//
//   - A change of a task writes two rows of tasks or turns: the task, and the turn of its line. In
//     a queue without lines the second row is the next task of the line, which gets the turn.
//     (With kinds a change may write more, for which there is room.) So a transaction works on
//     half as many tasks: see step and room. The end of a lease of a task with a follower writes
//     about three times as many: see isLarge.
//   - A Put writes one row.
//
// unit.written is the number of rows of tasks that a transaction has written. unit.bytes counts
// for Traits.MaxBytes: the bytes of a Put are known before it runs, and at most one other task is
// written beyond the limit. A deleted task counts with its names.
//
// A call in a caller's own transaction has no limits, because it cannot leave work to another
// transaction.
const (
	rowsWithEach = 3 // rows of all tables for each row of a task, with that one
	rowsOfTask   = 2 // rows of tasks
)

// maxRows returns the greatest number of rows of tasks that a transaction may write.
func (s *Store) maxRows() int {
	if s.traits.MaxWrites == 0 {
		return math.MaxInt
	}
	return max(1, s.traits.MaxWrites/rowsWithEach)
}

func (u *unit) maxRows() int {
	if u.q.joined {
		return math.MaxInt
	}
	return u.q.store.maxRows()
}

// limited reports whether the number of rows of a transaction has a limit.
func (u *unit) limited() bool { return u.maxRows() < math.MaxInt }

// step returns how many of n tasks one transaction works on.
func (s *Store) step(n int) int { return min(n, max(1, s.maxRows()/rowsOfTask)) }

// room returns how many of n tasks the transaction can still work on: at least one if it has
// written nothing yet.
func (u *unit) room(n int) int {
	left := (u.maxRows() - u.written) / rowsOfTask
	if u.written == 0 {
		left = max(1, left)
	}
	return max(0, min(n, left))
}

// isFull reports whether a call must be left to the next transaction.
func (u *unit) isFull(c *call) bool {
	tasks := max(1, c.tasks)
	return u.written > 0 && u.room(tasks) < tasks || u.bytes > 0 && u.bytes+c.bytes > u.maxBytes()
}

// maxBytes is maxRows for bytes.
func (u *unit) maxBytes() int {
	if u.q.joined {
		return math.MaxInt
	}
	return u.q.store.maxBytes()
}

func (s *Store) maxBytes() int { return cmp.Or(s.traits.MaxBytes, math.MaxInt) }

// isLarge reports whether the transaction has written as many rows or bytes as it may.
func (u *unit) isLarge() bool { return u.room(1) == 0 || u.bytes >= u.maxBytes() }

// sizeOf returns the bytes of a Put of a task. Its names are in indexes, too.
func sizeOf(n *driver.New) int {
	payload, _ := n.Payload.([]byte)
	size := len(payload) + inIndexes*(len(n.Key)+len(n.Kind)+len(n.UniqueKey)+len(n.Group))
	for name, value := range n.Metadata {
		size += len(name) + len(value)
	}
	return size
}

// size is sizeOf for a task that is written again, without its payload.
func (r *Row) size() int {
	size := len(r.Metadata) + r.namesSize()
	if r.Err != nil {
		size += len(r.Err.Message)
	}
	return size
}

// namesSize is sizeOf for a deleted task.
func (r *Row) namesSize() int {
	return inIndexes * (len(r.Key) + len(r.Kind) + len(r.UniqueKey) + len(r.Group))
}

const inIndexes = 4 // the number of times that a name is written, in the row and in indexes

// tooMany returns the error of a call that is too large for a transaction.
func (u *unit) tooMany(what string, is, most int) error {
	return &driver.FieldError{Field: what, Value: is, Limit: fmt.Sprintf(
		"%d at most, because a transaction of this store may write only %d rows", most,
		u.q.store.traits.MaxWrites)}
}
