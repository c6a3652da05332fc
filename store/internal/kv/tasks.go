package kv

import (
	"bytes"
	"math/rand/v2"
	"slices"

	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/task/driver"
)

// taskTable is the table of tasks. They are counted by state, and payloads have keys of their own.
type taskTable struct{ table[rows.Row] }

// takes tells whether a range is tasks that are to be taken, while others may take some.
func (v *view) takes(r *rows.Range) bool {
	return !v.alone && v.db.options.Taking != Strict && r.Lock == rows.SkipLocked && r.Limit > 0 &&
		(r.Index == rows.TaskReady || r.Index == rows.TaskKind)
}

func (v *view) takesApart(r *rows.Range) bool { return v.db.options.Taking == Apart && v.takes(r) }

// Scan implements rows.Table. Those who take at the same time are to choose different tasks.
func (t taskTable) Scan(r rows.Range) ([]*rows.Row, error) {
	takes := t.takes(&r)
	t.took = t.took || takes
	var hits []hit[rows.Row]
	var err error
	switch {
	case t.takesApart(&r):
		hits, err = t.findApart(r)
	case r.Lock == rows.NoMore:
		return t.table.Scan(r)
	case takes && t.given != nil && r.To[0] == t.given.before:
		hits, err = t.handed(&r)
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
			payload, err = t.tx.get(t.payload(row.ID))
			row.Payload = bytes.Clone(payload)
		}
	}
	return found, err
}

// find is that of the table, and moves the mark on for who takes.
func (t taskTable) find(r *rows.Range) ([]hit[rows.Row], error) {
	hits, err := t.table.find(r)
	if r.Index == rows.TaskReady && r.Lock == rows.SkipLocked && len(hits) > 0 {
		t.moveMark(hits[0].rest)
	}
	return hits, err
}

// findApart returns those entries of a range that this process is to take: what it has passed over
// too often, the first ones of its lane, and if these are not enough any others. Those that come
// next in its lane it will probably take next.
func (t taskTable) findApart(r rows.Range) ([]hit[rows.Row], error) {
	wanted := r.Limit
	r.Limit *= t.head.lanes.window()
	hits, err := t.find(&r)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.coming = nil; len(hits) <= wanted && !t.byKey {
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
	alone, most := t.head.lanes.all == 1, maxTimesPassed
	if t.byKey {
		most /= 2 // others of the key come in the place of one that is taken
	}
	for i, h := range hits {
		n := t.passed.times(id(h)) // at random, for others have passed it over as often
		choose(i, !alone && (n >= most || n >= most-2 && rand.IntN(t.head.lanes.all*wanted) == 0))
	}
	for i, h := range hits {
		own := alone || t.head.lanes.has(h)
		if choose(i, own); own && !chooses[i] && len(t.coming) < wanted {
			t.coming = append(t.coming, t.primary(h.key))
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
			t.passed.add(id(h))
		}
	}
	return found, nil
}

// id returns the ID of the task to which an entry leads.
func id(h hit[rows.Row]) uint64 { return uintAt(last(h.key, 1)) }

// Put implements rows.Table.
func (t taskTable) Put(r *rows.Row) error {
	if l := (rows.Line{Key: r.Key, Priority: r.Priority}); r.Round > t.knownRound(l) {
		t.knowRound(l, r.Round)
	}
	if r.Was == 0 {
		rows.Count(&t.head.tasks, 0, r.State)
		if len(r.Payload) > 0 {
			if err := t.tx.put(t.payload(r.ID), bytes.Clone(r.Payload)); err != nil {
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
	if old.State == driver.Ready && r.State == driver.Taken { // nothing else of it has changed
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
	if err := t.tx.remove(t.payload(r.ID)); err != nil {
		return err
	}
	return t.replace(old, nil)
}
