package sqlite

import (
	"bytes"
	sqldriver "database/sql/driver"
	"fmt"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/store/internal/rows"
)

// A rowid of the table of tasks has the number of the queue in its upper bits, and the id of the
// task below. With two numbers for each task, 10,000 tasks a second use up a queue's numbers in 7
// years.
const (
	idBits          = 42
	maxID    uint64 = 1<<idBits - 1
	maxQueue uint64 = 1<<(63-idBits) - 1
)

// view implements rows.View. It writes rows immediately, because a statement costs little more
// than its work; only the head, which nearly every call changes, is written once, at the commit.
type view struct {
	tx      *tx
	session *session
	head    *head
	id      uint64
	queue   int64 // the same, as the driver takes it
	now     int64
	changed bool // Save was called
	dropped bool
}

func (v *view) Head() *rows.Head { return &v.head.Head }

func (v *view) Counts() ([driver.Held + 1]int, error) { return v.head.tasks, nil }

func (v *view) Now() int64 { return v.now }

// Save implements rows.View. Nothing can read the head before the commit, so the write can wait.
func (v *view) Save() error {
	v.changed = true
	return nil
}

// flush writes the changed parts of the head, once, before the commit, because the counts and the
// last number change with every task.
func (v *view) flush() error {
	if v.dropped {
		return nil
	}
	h := v.head
	now := h.saved
	now.number, now.tasks = h.number, h.tasks
	if v.changed {
		v.changed = false
		now.paused, now.pausedKeys = h.Paused, h.PausedKeys
		if !bytes.Equal(h.Settings, h.savedSettings) {
			if err := v.do(updateSettings, h.Settings, v.queue); err != nil {
				return err
			}
			h.savedSettings = bytes.Clone(h.Settings)
		}
		for priority, round := range h.Rounds { // they only grow
			if round != h.savedRound[priority] {
				if err := v.do(setRound, v.queue, int64(priority), int64(round)); err != nil {
					return err
				}
				h.savedRound[priority] = round
			}
		}
	}
	if now == h.saved {
		return nil
	}
	n := now.tasks
	_, err := v.session.exec(updateHead, int64(now.number), bit(now.paused), int64(now.pausedKeys),
		int64(n[driver.Ready]),
		int64(n[driver.Delayed]), int64(n[driver.Taken]), int64(n[driver.Buried]), int64(n[driver.Held]),
		v.queue)
	h.saved = now
	return err
}

func (v *view) Number() (uint64, error) {
	n := v.tx.db.nextNumber(v.id, v.head.number)
	if n > maxID {
		return 0, fmt.Errorf("sqlite: number: the queue has used all %d numbers", maxID)
	}
	v.head.number = n
	return n, nil
}

// Fetch implements rows.View. It reads nothing ahead, because a statement costs little more than
// its work.
func (v *view) Fetch(...rows.Range) error { return nil }

// do runs a statement that writes.
func (v *view) do(st *statement, values ...sqldriver.Value) error {
	_, err := v.session.exec(st, values...)
	return err
}

// Drop implements rows.View.
func (v *view) Drop() (done bool, err error) {
	for _, s := range drops {
		if err := v.do(s, v.queue); err != nil {
			return false, err
		}
	}
	v.dropped = true
	if v.tx.joined == nil {
		delete(v.tx.db.heads, v.id)
	}
	return true, nil
}

// rowid returns the rowid of a task.
func (v *view) rowid(id uint64) int64 { return v.queue<<idBits | int64(min(id, maxID)) }

// bit is a bool as a column.
func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
