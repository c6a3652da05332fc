package kv

import (
	"bytes"
	"math/rand/v2"
	"slices"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/store/internal/rows"
)

// taskTable is the table of tasks. It counts them by state, and stores payloads by keys of their
// own.
type taskTable struct{ table[rows.Row] }

// takes reports whether a range has tasks that the transaction will take while others take tasks.
func (v *view) takes(r *rows.Range) bool {
	return !v.exclusive && !v.db.options.Strict &&
		r.Lock == rows.SkipLocked && r.Limit > 0 &&
		(r.Index == rows.TaskReady || r.Index == rows.TaskKind)
}

// Scan implements rows.Table. Transactions that take tasks at the same time choose different ones.
func (t taskTable) Scan(r rows.Range) ([]*rows.Row, error) {
	var hits []hit[rows.Row]
	var err error
	switch {
	case t.takes(&r):
		t.took = true
		hits, err = t.findByLane(r)
	case r.Lock == rows.NoMore:
		return t.table.Scan(r)
	default:
		hits, err = t.find(&r)
	}
	if err != nil {
		return nil, err
	}
	found, err := t.load(hits, &r)
	for _, row := range found {
		if r.Payload && err == nil {
			var payload []byte
			payload, err = t.tx.get(t.payloadKey(row.ID))
			row.Payload = bytes.Clone(payload)
		}
	}
	return found, err
}

// find is find of the table, but moves the mark forward if the transaction takes tasks.
func (t taskTable) find(r *rows.Range) ([]hit[rows.Row], error) {
	hits, err := t.table.find(r)
	if r.Index == rows.TaskReady && r.Lock == rows.SkipLocked && len(hits) > 0 {
		t.moveMark(hits[0].rest)
	}
	return hits, err
}

// findByLane chooses the entries of a range that this process takes. First come tasks that it has
// skipped too often, then the first tasks of its lane, then any others. The next tasks of its lane
// are its prediction for the next transaction.
func (t taskTable) findByLane(r rows.Range) ([]hit[rows.Row], error) {
	wanted := r.Limit
	r.Limit *= t.head.lanes.window()
	hits, err := t.find(&r)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.likelyNext = nil; len(hits) <= wanted && !t.byKey {
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
	if t.byKey {
		limit /= 2 // when a task is taken, other tasks of its key take its place
	}
	for i, h := range hits {
		// Other processes have skipped the task as often. If all of them took it at the limit, all
		// but one would conflict. So some processes try earlier, at random.
		n := t.skips.count(id(h))
		early := n >= limit-2 && rand.IntN(t.head.lanes.count*wanted) == 0
		choose(i, !alone && (n >= limit || early))
	}
	for i, h := range hits {
		own := alone || t.head.lanes.has(h)
		if choose(i, own); own && !chooses[i] && len(t.likelyNext) < wanted {
			t.likelyNext = append(t.likelyNext, t.rowKey(h.key))
		}
	}
	for i := rand.IntN(max(1, len(hits))); len(chosen) < wanted && !t.byKey; i = (i + 1) % len(hits) {
		choose(i, true)
	}
	slices.Sort(chosen)
	found := make([]hit[rows.Row], 0, wanted)
	if len(chosen) == wanted {
		hits = hits[:chosen[wanted-1]+1]
	}
	for i, h := range hits {
		if chooses[i] {
			found = append(found, h)
		} else {
			t.skips.add(id(h))
		}
	}
	return found, nil
}

// id returns the ID of the task to which an entry leads.
func id(h hit[rows.Row]) uint64 { return uintAt(last(h.key, 1)) }

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
	if old.State == driver.Ready && r.State == driver.Taken { // SetTaken has all changes of r
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
