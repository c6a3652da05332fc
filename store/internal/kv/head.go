package kv

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/store/internal/rows"
)

// head is the row of a queue and the sum of its tallies. base is that sum as it was read. So the
// difference between head and base is what this transaction has counted. flush adds only the
// difference to the own tally. An exclusive transaction also adds the stale tallies to its own
// tally, and deletes them. No other transaction writes the tallies of other processes.
type head struct {
	rows.Head
	name        string
	lockedBy    uint64 // the process that has locked the queue; see tx.awaitLock
	lockedUntil int64
	tasks       [driver.Held + 1]int
	number      uint64 // the greatest number in a tally
	mark        mark
	deleted     uint64 // the number of deleted entries in TaskReady and TurnReady

	lanes     lanes
	own       tally
	base      tally
	staleKeys [][]byte // the keys of the stale tallies
	stale     tally    // their sum
	savedRow  []byte   // the row as the database has it
}

// tally has the counters of transactions of one process. No two transactions that run at the same
// time write the same tally.
type tally struct {
	number  uint64 // the newest number of its transactions; each commit has another
	at      int64  // when the tally was written
	took    int64  // when its transactions took tasks last
	deleted uint64
	tasks   [driver.Held + 1]int
	rounds  map[int]uint64
}

// mark is a key in TaskReady or TurnReady that no entry of its index precedes. Reads of that index
// begin there. One mark is enough, because a queue has entries in one of these indexes only.
type mark struct {
	entry   []byte
	deleted uint64 // head.deleted at the last move
	moved   bool   // this transaction has moved it, and not written it yet

	guarded bool
}

func isMarked(i rows.Index) bool { return i == rows.TaskReady || i == rows.TurnReady }

// first returns the first key that an entry of an index may have.
func (v *view) first(i rows.Index) []byte {
	at, entry := v.index(i), v.head.mark.entry
	if bytes.HasPrefix(entry, at) {
		return bytes.Clone(entry)
	}
	return at
}

func (m *mark) code(c *coder) {
	text(c, &m.entry)
	number(c, &m.deleted)
}

func (v *view) markKey() []byte { return appendInt(v.section(sectionLock), 0) }

// moveMark moves the mark forward to the first entry of an index, once enough entries were
// deleted since the last move. If several processes take tasks, the process of the first lane
// moves it; the others wait for twice as many deletions, in case that process has stopped.
//
// No transaction finds a task before the mark, so no task may be put there unnoticed. Moving the
// mark guards the skipped keys, and putting a task guards the mark. If both happen at once, one of
// the two transactions fails.
func (v *view) moveMark(i rows.Index, entry []byte) {
	step := cmp.Or(v.db.options.MarkStep, 4000)
	if v.head.lanes.own > 0 {
		step *= 2
	}
	if deleted := v.head.deleted; deleted-v.head.mark.deleted >= step {
		v.guardMark()
		v.Guard(v.first(i), entry)
		m := &v.head.mark
		m.entry, m.deleted, m.moved = bytes.Clone(entry), deleted, true
	}
}

// adjustMark counts the deleted key of an entry, and moves the mark back if the added key comes
// before it. Either key may be nil.
func (v *view) adjustMark(i rows.Index, deleted, added []byte) {
	if deleted != nil {
		v.head.deleted++
	}
	if added == nil {
		return
	}
	v.guardMark()
	if bytes.Compare(added, v.first(i)) < 0 {
		v.head.mark.entry, v.head.mark.moved = bytes.Clone(added), true
	}
}

func (v *view) guardMark() {
	if !v.exclusive && !v.head.mark.guarded {
		v.head.mark.guarded = true
		v.Guard(v.markKey(), nil)
	}
}

// staleAfter is the time after which a tally that nobody writes is stale. Until then its process
// may need the tally, to find out whether its last commit happened.
const staleAfter = time.Minute

// code codes the row of the queue, which rarely changes.
func (h *head) code(c *coder) {
	text(c, &h.name)
	text(c, &h.Settings)
	c.flag(&h.Paused)
	number(c, &h.PausedKeys)
}

func (h *head) codeLock(c *coder) {
	number(c, &h.lockedBy)
	number(c, &h.lockedUntil)
}

func (t *tally) code(c *coder) {
	number(c, &t.number)
	number(c, &t.at)
	number(c, &t.took)
	number(c, &t.deleted)
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

// add adds the counters of another tally, and keeps the greater number and rounds.
func (t *tally) add(other *tally) {
	t.number = max(t.number, other.number)
	t.deleted += other.deleted
	for state := range t.tasks {
		t.tasks[state] += other.tasks[state]
	}
	for priority, round := range other.rounds {
		t.rounds[priority] = max(t.rounds[priority], round)
	}
}

// headSpan returns the span of all keys of a head.
func (v *view) headSpan() Span {
	return Span{From: v.section(sectionQueue), To: prefixEnd(v.section(sectionLock))}
}

// readHead reads a head, nil if the queue does not exist.
func (x *tx) readHead(v *view) (*head, error) {
	h := &head{own: tally{rounds: map[int]uint64{}}, stale: tally{rounds: map[int]uint64{}}}
	sum := tally{rounds: map[int]uint64{}}
	row, lock, mark, own := v.section(sectionQueue), v.section(sectionLock), v.markKey(), v.tallyKey()
	h.lanes.own = -1
	for e, err := range x.scan(v.headSpan()) {
		if err != nil {
			return nil, err
		}
		switch {
		case bytes.Equal(e.Key, row):
			h.savedRow = bytes.Clone(e.Value)
			err = decode(e.Value, h.code)
		case bytes.Equal(e.Key, lock):
			err = decode(e.Value, h.codeLock)
		case bytes.Equal(e.Key, mark):
			err = decode(e.Value, h.mark.code)
		default:
			var t tally
			if err = decode(e.Value, t.code); err == nil {
				sum.add(&t)
			}
			takes := t.took > v.now-int64(lately)
			if takes {
				h.lanes.count++
			}
			switch {
			case bytes.Equal(e.Key, own):
				if h.own = t; takes {
					h.lanes.own = h.lanes.count - 1
				}
			case t.at < v.now-int64(staleAfter):
				h.staleKeys = append(h.staleKeys, e.Key)
				h.stale.add(&t)
			}
		}
		if err != nil {
			return nil, x.fail("read", e.Key, err)
		}
	}
	if h.savedRow == nil {
		return nil, nil //nolint:nilnil // there is none
	}
	if h.lanes.own < 0 {
		h.lanes.count++
	}
	h.tasks, h.Rounds, h.number, h.deleted = sum.tasks, sum.rounds, sum.number, sum.deleted
	h.setBase()
	return h, nil
}

// setBase makes the current counters the base.
func (h *head) setBase() {
	h.base = tally{deleted: h.deleted, tasks: h.tasks, rounds: maps.Clone(h.Rounds)}
}

// flush writes the changes of the head, and guards its keys that others must not write.
func (v *view) flush() error {
	h, row := v.head, v.section(sectionQueue)
	if v.dropped {
		return nil
	}
	if h.lockedBy == v.db.process {
		if err := v.remove(v.section(sectionLock)); err != nil {
			return err
		}
		h.lockedBy = 0
	}
	v.Guard(row, nil)
	if v.exclusive {
		first := v.section(sectionTally)
		v.Guard(first, prefixEnd(first))
		h.own.add(&h.stale)
		for _, key := range h.staleKeys {
			if err := v.remove(key); err != nil {
				return err
			}
		}
	}
	if b := encode(h.code); !bytes.Equal(b, h.savedRow) || v.exclusive {
		if err := v.put(row, b); err != nil {
			return err
		}
		h.savedRow = b
	}
	own := &h.own
	for state := range own.tasks {
		own.tasks[state] += h.tasks[state] - h.base.tasks[state]
	}
	own.deleted += h.deleted - h.base.deleted
	for priority, round := range h.Rounds {
		if round > h.base.rounds[priority] {
			own.rounds[priority] = round
		}
	}
	h.setBase()
	if err := v.saveMark(); err != nil {
		return err
	}
	if err := v.saveTally(); err != nil || !v.notifies {
		return err
	}
	return v.put(v.section(sectionNotifier), encode(func(c *coder) { // each value is a new one
		number(c, &v.db.process)
		number(c, &v.head.own.number)
	}))
}

// saveTally writes the own tally. Its caller guards the row of the queue, which only exclusive
// transactions conflict with.
func (v *view) saveTally() error {
	own := &v.head.own
	if own.at = v.now; v.took {
		own.took = v.now
	}
	v.Guard(v.tallyKey(), nil)
	if _, err := v.Number(); err != nil {
		return err
	}
	own.number = max(own.number, v.number)
	return v.put(v.tallyKey(), encode(own.code))
}

// changed reports whether flush has something to write.
func (v *view) changed() bool {
	h := v.head
	locked := h.lockedBy == v.db.process
	counted := h.tasks != h.base.tasks || !maps.Equal(h.Rounds, h.base.rounds)
	return !v.dropped && (locked || v.number > h.own.number || counted ||
		!bytes.Equal(encode(h.code), h.savedRow))
}
