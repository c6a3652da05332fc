package kv

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"slices"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/store/internal/rows"
)

// taskTable is the table of tasks. It counts them by state, and stores payloads by keys of their
// own.
type taskTable struct{ table[rows.Row] }

// takes reports whether a range has tasks or turns that the transaction will take while others
// take some.
func (v *view) takes(r *rows.Range) bool {
	return !v.exclusive && !v.db.options.Strict &&
		r.Lock == rows.SkipLocked && r.Limit > 0 &&
		(isMarked(r.Index) || r.Index == rows.TurnKind)
}

// Scan implements rows.Table.
func (t taskTable) Scan(r rows.Range) ([]*rows.Row, error) {
	found, err := t.table.Scan(r)
	for _, row := range found {
		if r.Payload && err == nil {
			var payload []byte
			payload, err = t.tx.get(t.payloadKey(row.ID))
			row.Payload = bytes.Clone(payload)
		}
	}
	return found, err
}

// findByLane chooses the entries of a range that this process takes: tasks that it has skipped too
// often, then the first tasks of its lane, then any others. It predicts that the process takes the
// next tasks of its lane in its next transaction.
//
// It takes no turns of other lanes, unless it has skipped them often. Turns are few, and if one is
// taken, another one of its line takes its place.
func (t table[R]) findByLane(r *rows.Range) ([]hit[R], error) {
	wanted, ofLines, all := r.Limit, r.Index != rows.TaskReady, *r
	all.Limit *= t.head.lanes.window()
	hits, err := t.find(&all)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.likelyNext = nil; len(hits) <= wanted && !ofLines {
		return hits, nil
	}
	var chosen []int
	chooses := make([]bool, len(hits))
	choose := func(i int, is bool) {
		if is && !chooses[i] && len(chosen) < wanted {
			chooses[i] = true
			chosen = append(chosen, i)
		}
	}
	alone, limit := t.head.lanes.count == 1, maxSkips
	if ofLines {
		limit /= 2
	}
	for i, h := range hits {
		// Other processes have skipped the task as often. If all took it at the limit, all but one
		// would conflict: so some try earlier, at random.
		n := t.skips.count(h.id())
		early := n >= limit-2 && rand.IntN(t.head.lanes.count*wanted) == 0
		choose(i, !alone && (n >= limit || early))
	}
	for i, h := range hits {
		own := alone || t.head.lanes.distance(h.lane()) == 0
		if choose(i, own); own && !chooses[i] && len(t.likelyNext) < wanted {
			t.likelyNext = append(t.likelyNext, t.rowKey(h.key))
		}
	}
	for i := rand.IntN(max(1, len(hits))); len(chosen) < wanted && !ofLines; i = (i + 1) % len(hits) {
		choose(i, true)
	}
	slices.Sort(chosen)
	found := make([]hit[R], 0, wanted)
	if len(chosen) == wanted {
		hits = hits[:chosen[wanted-1]+1]
	}
	for i, h := range hits {
		if chooses[i] {
			found = append(found, h)
		} else {
			t.skips.add(h.id())
		}
	}
	return found, nil
}

// id identifies an entry. A line has another entry when its turn was taken.
func (h *hit[R]) id() uint64 { return uint64(crc32.ChecksumIEEE(h.rest)) }

// lane returns the lane of an entry: that of the key of a turn, or one for the ID of a task.
func (h *hit[R]) lane() []byte {
	if len(h.value) == 4 {
		return h.value
	}
	spread := uintAt(last(h.key, 1)) * 0x9e3779b97f4a7c15 >> 40
	return binary.BigEndian.AppendUint32(nil, uint32(spread))
}

// Put implements rows.Table.
func (t taskTable) Put(r *rows.Row) error {
	if r.Was == 0 {
		t.notePut(r)
		rows.Count(&t.head.tasks, 0, r.State)
		if len(r.Payload) > 0 {
			if err := t.tx.put(t.payloadKey(r.ID), bytes.Clone(r.Payload)); err != nil {
				return err
			}
		}
		return t.replace(nil, r)
	}
	key := t.entry(0, r)
	old, err := t.get(key)
	switch {
	case err != nil:
		return err
	case old == nil:
		return t.fail("write", key, errDamaged)
	}
	rows.Count(&t.head.tasks, old.State, r.State)
	if old.State == driver.Ready && r.State == driver.Taken && !old.InLine { // see rows.Row
		taken := *old
		taken.SetTaken(r)
		r = &taken
	}
	return t.replace(old, r)
}

// Delete implements rows.Table.
func (t taskTable) Delete(r *rows.Row) error {
	old, err := t.get(t.entry(0, r))
	if old == nil || err != nil {
		return err
	}
	rows.Count(&t.head.tasks, old.State, 0)
	if err := t.tx.remove(t.payloadKey(r.ID)); err != nil {
		return err
	}
	return t.replace(old, nil)
}
