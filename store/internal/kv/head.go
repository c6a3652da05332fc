package kv

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/task/driver"
)

// head is what is known of a queue: what is kept with it, and what all tallies come to. was is what
// they came to when they were read. By how much head has changed since is what this transaction
// counts, and flush adds just that to the own tally. Who is alone in the queue also adds the old
// tallies to its own, and deletes them; otherwise nobody writes those of others.
type head struct {
	rows.Head
	name        string
	lockedBy    uint64 // the process that has locked the queue, see tx.await
	lockedUntil int64
	tasks       [driver.Held + 1]int
	number      uint64 // the greatest of all tallies
	mark        mark
	gone        uint64 // how many entries of ready tasks were deleted

	lanes lanes
	own   tally
	old   [][]byte // the keys of tallies that are old, and
	folds tally    // what they come to, which is to be added to the own one
	saved []byte   // the row as it is in the database, and what the tallies came to
	was   tally
}

// tally is what the transactions of one process have counted.
type tally struct {
	number uint64 // the last one that was given, which tells one commit from another
	at     int64  // when it was written
	took   int64  // when tasks were taken last
	gone   uint64
	tasks  [driver.Held + 1]int
	rounds map[int]uint64
}

// mark is an entry in TaskReady, without what all begin with, before which there is no other one.
type mark struct {
	entry []byte
	gone  uint64 // head.gone when it was moved on
	moved bool   // since it was read

	guarded bool
}

func (m *mark) code(c *coder) {
	text(c, &m.entry)
	number(c, &m.gone)
}

func (v *view) markKey() []byte { return appendInt(v.about(aboutLock), 0) }

// moveMark moves the mark on to the entry that comes first, if that is worth it. Of processes that
// take at the same time the first one does so, and the others if it does not.
//
// A task before the mark is never found, so nobody may put one there unnoticed. Who moves the mark
// on guards all that it passes over, and who puts a task guards the mark: of two that do so at the
// same time one fails.
func (v *view) moveMark(first []byte) {
	step := cmp.Or(v.db.options.MarkStep, 4000)
	if v.head.lanes.own > 0 {
		step *= 2
	}
	if gone := v.head.gone; gone-v.head.mark.gone >= step {
		v.guardMark()
		m, at := &v.head.mark, v.index(rows.TaskReady)
		v.Guard(append(bytes.Clone(at), m.entry...), append(at, first...))
		m.entry, m.gone, m.moved = bytes.Clone(first), gone, true
	}
}

// keepMark keeps the mark right where an entry, which may be nil, is put in the place of another one.
func (v *view) keepMark(was, is []byte) {
	if was != nil {
		v.head.gone++
	}
	if is == nil {
		return
	}
	v.guardMark()
	if is = is[len(v.index(rows.TaskReady)):]; bytes.Compare(is, v.head.mark.entry) < 0 {
		v.head.mark.entry, v.head.mark.moved = bytes.Clone(is), true
	}
}

func (v *view) guardMark() {
	if !v.alone && !v.head.mark.guarded {
		v.head.mark.guarded = true
		v.Guard(v.markKey(), nil)
	}
}

// keepTally is how long at least a tally is kept that is not written any more. By then the process
// knows whether its last commit was done.
const keepTally = time.Minute

// code codes what rarely changes.
func (h *head) code(c *coder) {
	text(c, &h.name)
	text(c, &h.Settings)
	c.flag(&h.Paused)
	number(c, &h.PausedKeys)
}

func (h *head) lock(c *coder) {
	number(c, &h.lockedBy)
	number(c, &h.lockedUntil)
}

func (t *tally) code(c *coder) {
	number(c, &t.number)
	number(c, &t.at)
	number(c, &t.took)
	number(c, &t.gone)
	c.counts(&t.tasks)
	n := len(t.rounds)
	if number(c, &n); c.decoding {
		t.rounds = map[int]uint64{}
	}
	priorities := slices.Sorted(maps.Keys(t.rounds))
	for i := 0; i < n && !c.damaged; i++ {
		var priority int
		var round uint64
		if !c.decoding {
			priority, round = priorities[i], t.rounds[priorities[i]]
		}
		number(c, &priority)
		number(c, &round)
		t.rounds[priority] = round
	}
}

func (v *view) saveMark() error {
	if !v.head.mark.moved {
		return nil
	}
	v.head.mark.moved = false
	return v.put(v.markKey(), encode(v.head.mark.code))
}

// add adds what another process has counted.
func (t *tally) add(other *tally) {
	t.number = max(t.number, other.number)
	t.gone += other.gone
	for state := range t.tasks {
		t.tasks[state] += other.tasks[state]
	}
	for priority, round := range other.rounds {
		t.rounds[priority] = max(t.rounds[priority], round)
	}
}

// headSpan returns where all is that is in a head.
func (v *view) headSpan() Span {
	return Span{From: v.about(aboutQueue), To: behind(v.about(aboutLock))}
}

// readHead returns nil if there is no such queue.
func (x *tx) readHead(v *view) (*head, error) {
	h := &head{own: tally{rounds: map[int]uint64{}}, folds: tally{rounds: map[int]uint64{}}}
	sum := tally{rounds: map[int]uint64{}}
	row, lock, mark, own := v.about(aboutQueue), v.about(aboutLock), v.markKey(), v.tally()
	h.lanes.own = -1
	for e, err := range x.scan(v.headSpan()) {
		if err != nil {
			return nil, err
		}
		switch {
		case bytes.Equal(e.Key, row):
			h.saved = bytes.Clone(e.Value)
			err = decode(e.Value, h.code)
		case bytes.Equal(e.Key, lock):
			err = decode(e.Value, h.lock)
		case bytes.Equal(e.Key, mark):
			err = decode(e.Value, h.mark.code)
		default:
			var t tally
			if err = decode(e.Value, t.code); err == nil {
				sum.add(&t)
			}
			takes := t.took > v.now-int64(lately)
			if takes {
				h.lanes.all++
			}
			switch {
			case bytes.Equal(e.Key, own):
				if h.own = t; takes {
					h.lanes.own = h.lanes.all - 1
				}
			case t.at < v.now-int64(keepTally):
				h.old = append(h.old, e.Key)
				h.folds.add(&t)
			}
		}
		if err != nil {
			return nil, x.fail("read", e.Key, err)
		}
	}
	if h.saved == nil {
		return nil, nil //nolint:nilnil // that is how to say none
	}
	if h.lanes.own < 0 {
		h.lanes.all++
	}
	h.tasks, h.Rounds, h.number, h.gone = sum.tasks, sum.rounds, sum.number, sum.gone
	h.remember()
	return h, nil
}

// remember remembers what the tallies came to.
func (h *head) remember() {
	h.was = tally{gone: h.gone, tasks: h.tasks, rounds: maps.Clone(h.Rounds)}
}

// flush writes what has changed in the head, and guards what of it others must not write.
func (v *view) flush() error {
	h, row := v.head, v.about(aboutQueue)
	if v.dropped {
		return nil
	}
	if h.lockedBy == v.db.process {
		if err := v.remove(v.about(aboutLock)); err != nil {
			return err
		}
		h.lockedBy = 0
	}
	v.Guard(row, nil)
	if v.alone {
		first := v.about(aboutTally)
		v.Guard(first, behind(first))
		h.own.add(&h.folds)
		for _, key := range h.old {
			if err := v.remove(key); err != nil {
				return err
			}
		}
	}
	if is := encode(h.code); !bytes.Equal(is, h.saved) || v.alone {
		if err := v.put(row, is); err != nil {
			return err
		}
		h.saved = is
	}
	own := &h.own
	for state := range own.tasks {
		own.tasks[state] += h.tasks[state] - h.was.tasks[state]
	}
	own.gone += h.gone - h.was.gone
	for priority, round := range h.Rounds {
		if round > h.was.rounds[priority] {
			own.rounds[priority] = round
		}
	}
	h.remember()
	if err := v.saveMark(); err != nil {
		return err
	}
	if err := v.saveTally(); err != nil || !v.notifies {
		return err
	}
	return v.put(v.about(lastNotifier), encode(func(c *coder) { // never the same value again
		number(c, &v.db.process)
		number(c, &v.head.own.number)
	}))
}

// saveTally writes the own tally. Who does that guards the row of the queue, which conflicts with
// nobody but who is alone in the queue.
func (v *view) saveTally() error {
	own := &v.head.own
	if own.at = v.now; v.took {
		own.took = v.now
	}
	v.Guard(v.tally(), nil)
	if _, err := v.Number(); err != nil {
		return err
	}
	own.number = max(own.number, v.number)
	return v.put(v.tally(), encode(own.code))
}

// changed tells whether something is to be written.
func (v *view) changed() bool {
	h := v.head
	locked := h.lockedBy == v.db.process
	return !v.dropped && (locked || v.number > h.own.number ||
		h.tasks != h.was.tasks || !maps.Equal(h.Rounds, h.was.rounds) || !bytes.Equal(encode(h.code), h.saved))
}
