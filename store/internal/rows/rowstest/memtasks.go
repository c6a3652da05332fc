package rowstest

import (
	"bytes"
	"cmp"
	"iter"
	"slices"

	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/task"
)

// memView is a queue in a transaction of a DB.
type memView struct {
	tx        *memTx
	id        uint64
	q         *queue
	head      *rows.Head
	now       int64
	exclusive bool            // no row need be locked
	strict    bool            // the plan was not exclusive, so only rows that were read may be changed
	read      map[uint64]bool // tasks that may be changed: they were read, and are locked
	removed   uint64          // what Head.Removed was
	numbers   []uint64        // that will be given next
	dropped   bool
}

// do makes a call.
func (v *memView) do(op string, f func()) error {
	return v.tx.do(op, func() {
		must(!v.dropped, op+" after Drop")
		f()
	})
}

// get makes a call with a result.
func get[T any](v *memView, op string, f func() T) (result T, err error) {
	err = v.do(op, func() { result = f() })
	return result, err
}

func (v *memView) Tasks() ([task.Held + 1]int, error) {
	return get(v, "Tasks", func() (n [task.Held + 1]int) {
		for r := range v.q.tasks.values() {
			n[0]++
			n[r.State]++
		}
		return n
	})
}

func (v *memView) Now() int64 { return v.now }

func (v *memView) Number() (uint64, error) {
	return get(v, "Number", v.number)
}

func (v *memView) number() uint64 {
	if len(v.numbers) > 0 {
		n := v.numbers[0]
		v.numbers = v.numbers[1:]
		return n
	}
	return v.newNumber()
}

func (v *memView) newNumber() uint64 {
	n := v.tx.data.numbers[v.id] + 1
	if v.tx.db.given != 0 {
		n = v.tx.db.given
	}
	v.tx.data.numbers[v.id] = max(v.tx.data.numbers[v.id], n)
	return n
}

// lock locks a row, and waits if another transaction has.
func (v *memView) lock(table string, key any) {
	if !v.exclusive {
		v.tx.lockLocked(lock{v.id, table, key}, false)
	}
}

// free tells whether no other transaction has locked a row.
func (v *memView) free(table string, key any) bool {
	l := lock{v.id, table, key}
	return v.exclusive || len(v.tx.data.locks[l]) == 0 || v.tx.hasLocked(l)
}

// The names of what a row is read with.
const (
	withPayload = true
	locked      = true
)

// out returns a copy of a row for the caller, which from now on may change it if the row is locked.
func (v *memView) out(r *rows.Row, payload, lock bool) *rows.Row {
	c := *r
	c.Payload = nil
	if payload {
		c.Payload = bytes.Clone(r.Payload)
	}
	c.Err = cloneError(r.Err)
	c.Was = r.State
	if lock {
		v.lock("tasks", r.ID)
	}
	if lock || !v.strict {
		v.read[r.ID] = true
	}
	return &c
}

// first returns the first n of the rows that match, in the given order and then in that of ids. If they are to be locked,
// it passes over those that others have locked.
func (v *memView) first(from iter.Seq[*rows.Row], n int, payload, lock bool, match func(r *rows.Row) bool, order func(a, b *rows.Row) int) []*rows.Row {
	full := func(a, b *rows.Row) int {
		if c := order(a, b); c != 0 {
			return c
		}
		return byID(a, b)
	}
	var found []*rows.Row
	for r := range from {
		switch {
		case !match(r) || lock && !v.free("tasks", r.ID):
		case n != 1 || found == nil:
			found = append(found, r)
		case full(r, found[0]) < 0:
			found[0] = r
		}
	}
	slices.SortFunc(found, full)
	found = found[:min(n, len(found))]
	for i, r := range found {
		found[i] = v.out(r, payload, lock)
	}
	return found
}

// one returns the first row that matches, nil if there is none.
func (v *memView) one(from iter.Seq[*rows.Row], payload, lock bool, match func(r *rows.Row) bool, order func(a, b *rows.Row) int) *rows.Row {
	if found := v.first(from, 1, payload, lock, match, order); len(found) > 0 {
		return found[0]
	}
	return nil
}

// all yields all tasks.
func (v *memView) all() iter.Seq[*rows.Row] { return v.q.tasks.values() }

func byID(a, b *rows.Row) int    { return cmp.Compare(a.ID, b.ID) }
func byPlace(a, b *rows.Row) int { return cmp.Compare(a.Place, b.Place) }
func bySince(a, b *rows.Row) int { return cmp.Compare(a.Since, b.Since) }
func byWake(a, b *rows.Row) int  { return cmp.Compare(a.Wake, b.Wake) }

func byTurn(a, b *rows.Row) int {
	switch {
	case a.Priority != b.Priority:
		return cmp.Compare(a.Priority, b.Priority)
	case a.Round != b.Round:
		return cmp.Compare(a.Round, b.Round)
	case a.Seq != b.Seq:
		return cmp.Compare(a.Seq, b.Seq)
	}
	return cmp.Compare(a.Place, b.Place)
}

func (v *memView) Get(id uint64, payload bool) (*rows.Row, error) {
	return get(v, "Get", func() *rows.Row {
		if v.q.tasks.get(id) == nil {
			return nil
		}
		v.lock("tasks", id)
		if r := v.q.tasks.get(id); r != nil { // still
			return v.out(r, payload, locked)
		}
		return nil
	})
}

func (v *memView) ByUniqueKey(uniqueKey string, payload bool) (*rows.Row, error) {
	return get(v, "ByUniqueKey", func() *rows.Row {
		r := v.q.tasks.at(uniqueKey)
		if uniqueKey == "" || r == nil {
			return nil
		}
		return v.out(r, payload, !locked)
	})
}

func (v *memView) Peek(ids []uint64, payload bool) ([]*rows.Row, error) {
	return get(v, "Peek", func() (found []*rows.Row) {
		for _, id := range ids {
			if r := v.q.tasks.get(id); r != nil {
				found = append(found, v.out(r, payload, !locked))
			}
		}
		return found
	})
}

func (v *memView) Insert(r *rows.Row) error {
	return v.do("Insert", func() {
		must(r.ID > 0 && r.ID <= v.tx.data.numbers[v.id], "an ID that is no Number")
		must(v.q.tasks.get(r.ID) == nil, "an ID is used twice")
		if r.UniqueKey != "" {
			v.unique("unique key", r.UniqueKey, func() bool { return v.q.tasks.at(r.UniqueKey) == nil })
		}
		s := rows.Row{
			ID: r.ID, Key: r.Key, Kind: r.Kind, UniqueKey: r.UniqueKey, Role: r.Role, Priority: r.Priority, Weight: r.Weight, Payload: bytes.Clone(r.Payload), TTR: r.TTR, MaxAttempts: r.MaxAttempts, Created: r.Created,
			Deadline: r.Deadline,
		}
		v.lock("tasks", r.ID)
		v.read[r.ID] = true
		v.write(s, r)
	})
}

// unique is called before something is inserted that must be unique. Whoever could not see that it is there may try again.
func (v *memView) unique(what, key string, is func() bool) {
	must(is(), "a "+what+" is used twice")
	v.lock(what, key)
	if !is() {
		panic(giveUp{ErrAgain})
	}
}

func (v *memView) Update(r *rows.Row) error {
	return v.do("Update", func() { v.write(v.writable(r), r) })
}

// write writes a row: what never changes is taken from s, what does from r.
func (v *memView) write(s rows.Row, r *rows.Row) {
	must(r.State >= task.Ready && r.State <= task.Held, "a row without a State")
	must(!r.Takeable || r.State == task.Ready, "a row that is Takeable but not Ready")
	copyChanging(&s, r)
	v.q.tasks.set(r.ID, &s)
	r.Was = r.State
}

// copyChanging copies the fields that change.
func copyChanging(to, from *rows.Row) {
	to.Group, to.State, to.Takeable, to.Round, to.Seq = from.Group, from.State, from.Takeable, from.Round, from.Seq
	to.Gap, to.Returned, to.Place = from.Gap, from.Returned, from.Place
	to.Since, to.Counted, to.Consumer = from.Since, from.Counted, from.Consumer
	to.Attempts, to.ReadyAt, to.Until, to.Expires = from.Attempts, from.ReadyAt, from.Until, from.Expires
	to.Wake, to.Err = from.Wake, cloneError(from.Err)
}

// copyTaken copies the fields that Take writes.
func copyTaken(to, from *rows.Row) {
	to.State, to.Takeable, to.Since, to.Counted = from.State, from.Takeable, from.Since, from.Counted
	to.Consumer, to.Attempts, to.Until, to.Wake = from.Consumer, from.Attempts, from.Until, from.Wake
}

func (v *memView) Take(r *rows.Row) error {
	return v.do("Take", func() {
		s := v.writable(r)
		must(s.State == task.Ready && s.Takeable, "Take of a row that cannot be taken")
		must(r.State == task.Taken && !r.Takeable, "Take of a row whose State was not set to Taken")
		copyTaken(&s, r)
		v.q.tasks.set(r.ID, &s)
		r.Was = r.State
	})
}

func (v *memView) Delete(r *rows.Row) error {
	return v.do("Delete", func() {
		v.writable(r)
		v.q.tasks.set(r.ID, nil)
	})
}

// writable returns the row as it is, if it may be changed.
func (v *memView) writable(r *rows.Row) rows.Row {
	must(!v.strict || v.read[r.ID], "a row is changed that was not read in this View, or not in a way that locks it")
	s := v.q.tasks.get(r.ID)
	must(s != nil, "a row is changed that is gone")
	must(r.Was == s.State, "a row is changed that is not as it was read or written last, or its Was was changed")
	return *s
}

func (v *memView) Ready(f rows.Filter, n int) ([]*rows.Row, error) {
	return get(v, "Ready", func() []*rows.Row {
		return v.first(v.all(), n, withPayload, locked, func(r *rows.Row) bool { return canBeTaken(r, f) }, byTurn)
	})
}

func canBeTaken(r *rows.Row, f rows.Filter) bool {
	return r.Takeable && r.Priority <= f.MaxPriority && (f.Kinds == nil || slices.Contains(f.Kinds, r.Kind))
}

func (v *memView) Locked(f rows.Filter) (bool, error) {
	return get(v, "Locked", func() bool {
		for r := range v.all() {
			if canBeTaken(r, f) && !v.free("tasks", r.ID) {
				return true
			}
		}
		return false
	})
}

func (v *memView) Last(l rows.Line, after uint64) (round uint64, n int, err error) {
	err = v.do("Last", func() {
		for r := range v.q.tasks.of(l.Key) {
			switch {
			case r.Priority != l.Priority || r.Round <= after || r.Round < round:
			case r.Round == round:
				n++
			default:
				round, n = r.Round, 1
			}
		}
	})
	return round, n, err
}

func (v *memView) Due(now int64, n int, payload bool) ([]*rows.Row, error) {
	return get(v, "Due", func() []*rows.Row {
		return v.first(v.all(), n, payload, locked, func(r *rows.Row) bool { return r.Wake != 0 && r.Wake <= now }, byWake)
	})
}

func (v *memView) NextWake() (int64, error) {
	return get(v, "NextWake", func() int64 { return earliest(v.all(), func(r *rows.Row) int64 { return r.Wake }) })
}

// earliest returns the least of the times that are not 0, 0 if there is none.
func earliest[R any](from iter.Seq[*R], at func(*R) int64) (least int64) {
	for r := range from {
		if t := at(r); t != 0 && (least == 0 || t < least) {
			least = t
		}
	}
	return least
}

func cloneError(err *task.Error) *task.Error {
	if err == nil {
		return nil
	}
	c := *err
	return &c
}
