package sqlite

import (
	"bytes"
	"errors"
	"fmt"
	"maps"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/store/internal/rows"
)

// tx implements rows.Tx. A transaction of our own holds the slot while it is open, and with it the
// connection and the cache. A transaction of the caller's runs on the caller's connection and uses
// neither.
type tx struct {
	db      *db
	session *session
	views   []*view
	joined  *joined // nil unless it is the caller's own
	done    bool
}

// head is the cached state of a queue, and the part of it that is saved. It stays from one
// transaction to the next (db.heads). Invariant: it equals the database. So checkDataVersion
// forgets all heads if another connection has committed. A rollback forgets them too, because they
// may have changes that were rolled back.
type head struct {
	rows.Head
	number     uint64 // the greatest that was given
	tasks      [driver.Held + 1]int
	saved      saved
	savedRound map[int]uint64

	savedSettings []byte
}

// saved is the row of a queue in the database.
type saved struct {
	number     uint64
	paused     bool
	pausedKeys int
	tasks      [driver.Held + 1]int
}

func (t *tx) Queue(name string, settings []byte) (*rows.Queue, error) {
	q, err := t.queue(name)
	if q != nil || err != nil || settings == nil {
		return q, err
	}
	if _, err := t.session.exec(insertQueue, name, settings); err != nil {
		return nil, err
	}
	q, err = t.queue(name)
	if err == nil && q.ID > maxQueue {
		err = fmt.Errorf("sqlite: queue %q would be the %d. that was ever made, there can be %d", name,
			q.ID, maxQueue)
	}
	return q, err
}

func (t *tx) queue(name string) (q *rows.Queue, err error) {
	err = t.session.each(selectQueue,
		func(c *cells) { q = &rows.Queue{ID: c.uint(), Settings: c.blob()} }, name)
	return q, err
}

// Queues implements rows.Tx.
func (t *tx) Queues(from string, n int) (names []string, err error) {
	err = t.session.each(selectQueues, func(c *cells) { names = append(names, c.text()) }, from,
		int64(n))
	return names, err
}

// Enter implements rows.Tx. It ignores the plan, because SQLite runs no two writing transactions
// at the same time, and a statement costs little more than its work.
func (t *tx) Enter(queue uint64, _ *rows.Plan) (rows.View, error) {
	var h *head
	if t.joined == nil { // otherwise another transaction has the slot, and with it the cache
		h = t.db.heads[queue]
	}
	if h == nil {
		var err error
		if h, err = t.readHead(queue); h == nil {
			return nil, err
		}
		if t.joined == nil {
			t.db.heads[queue] = h
		}
	}
	v := &view{
		tx: t, session: t.session, head: h, id: queue, queue: int64(queue),
		now: t.db.options.now().UnixNano(),
	}
	t.views = append(t.views, v)
	return v, nil
}

// readHead returns nil if the queue does not exist.
func (t *tx) readHead(queue uint64) (h *head, err error) {
	err = t.session.each(selectHead, func(c *cells) {
		h = &head{}
		h.Settings, h.number = c.blob(), c.uint()
		h.Paused, h.PausedKeys = c.bool(), int(c.int())
		for state := driver.Ready; state <= driver.Held; state++ {
			h.tasks[state] = int(c.int())
			h.tasks[0] += h.tasks[state]
		}
		h.savedSettings = bytes.Clone(h.Settings)
		h.saved = saved{h.number, h.Paused, h.PausedKeys, h.tasks}
	}, int64(queue))
	if err != nil || h == nil {
		return nil, err
	}
	h.savedRound = make(map[int]uint64)
	err = t.session.each(selectRounds, func(c *cells) { h.savedRound[int(c.int())] = c.uint() },
		int64(queue))
	h.Rounds = maps.Clone(h.savedRound)
	return h, err
}

// Notify implements rows.Tx. Other processes poll.
func (t *tx) Notify(uint64) {}

func (t *tx) Commit() error {
	if t.done {
		return errors.New("sqlite: commit: the transaction is over")
	}
	for _, v := range t.views {
		if err := v.flush(); err != nil {
			t.Rollback()
			return err
		}
	}
	if t.joined != nil {
		t.Rollback()
		return nil
	}
	if _, err := t.session.exec(commitStatement); err != nil {
		t.Rollback()
		return err
	}
	t.done = true
	<-t.db.slot
	return nil
}

func (t *tx) Rollback() {
	if t.done {
		return
	}
	t.done = true
	if t.joined != nil {
		t.joined.close() // the rest is the caller's
		return
	}
	t.db.rollback()
	<-t.db.slot
}
