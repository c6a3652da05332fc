package rowstest

import (
	"bytes"
	"cmp"
	"iter"
	"maps"
	"slices"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/store/internal/rows"
)

// memView is a queue in a transaction of a DB.
type memView struct {
	tx        *memTx
	at        entry // where its row is
	id        uint64
	head      *rows.Head
	now       int64
	exclusive bool     // tasks that were not locked may be changed too
	locksKeys bool     // those of locked keys may
	numbers   []uint64 // that will be given next
	dropped   bool
}

// view enters a queue. Its Head is the last one of the handle, if no other handle has written
// since. Where transactions run at the same time, the Head is new, and view fetches the planned
// numbers.
func (tx *memTx) view(at entry, q *queueRow, plan *rows.Plan) *memView {
	h := tx.db.heads[q.id]
	if h == nil || tx.db.Shared {
		h = &q.with(&q.head).head
		tx.db.heads[q.id] = h
	}
	v := &memView{tx: tx, at: at, id: q.id, head: h, exclusive: plan.Exclusive}
	v.locksKeys = plan.LocksKeys && !plan.Exclusive && tx.db.Shared
	v.now = tx.data.now().UnixNano()
	for range plan.Numbers {
		if tx.db.Shared {
			v.numbers = append(v.numbers, tx.number(q.id))
		}
	}
	return v
}

// do makes a call.
func (v *memView) do(op string, f func()) error {
	return v.tx.do(op, func() {
		must(!v.dropped, op+" after Drop")
		f()
	})
}

func (v *memView) tasks() memTable[rows.Row] { return tableOf(v, "Tasks", rows.Tasks) }
func (v *memView) keys() memTable[rows.Key]  { return tableOf(v, "Keys", rows.Keys) }
func (v *memView) consumers() memTable[rows.Consumer] {
	return tableOf(v, "Consumers", rows.Consumers)
}

func (v *memView) Tasks() rows.Table[rows.Row]  { return taskTable{v.tasks()} }
func (v *memView) Turns() rows.Table[rows.Turn] { return tableOf(v, "Turns", rows.Turns) }
func (v *memView) Keys() rows.Table[rows.Key]   { return v.keys() }
func (v *memView) Served() rows.Table[rows.Served] {
	return tableOf(v, "Served", rows.ServedLines)
}
func (v *memView) Consumers() rows.Table[rows.Consumer] { return v.consumers() }
func (v *memView) Groups() rows.Table[rows.Group] {
	return tableOf(v, "Groups", rows.Groups)
}

func (v *memView) Outcomes() rows.Table[rows.Outcome] {
	return tableOf(v, "Outcomes", rows.Outcomes)
}

func (v *memView) History() rows.Table[rows.Ended] { return tableOf(v, "History", rows.History) }

func tableOf[R any](v *memView, name string, schema rows.Schema[R]) memTable[R] {
	return memTable[R]{v, name, schema}
}

// memTable is one of the tables that package rows declares, in a View.
type memTable[R any] struct {
	v      *memView
	name   string
	schema rows.Schema[R]
}

// at returns where the row with a primary key is.
func (t memTable[R]) at(key rows.Tuple) entry {
	e := entry{queue: t.v.id, table: t.name}
	copy(e.key[:], key)
	return e
}

func (t memTable[R]) of(r *R) entry { return t.at(t.schema[0].Place(r)) }

func (t memTable[R]) get(e entry) *R {
	r, _ := t.v.tx.get(e).(*R)
	return r
}

func (t memTable[R]) all() iter.Seq[*R] {
	return func(yield func(*R) bool) {
		for _, row := range t.v.tx.all(t.v.id, t.name) {
			if !yield(row.(*R)) {
				return
			}
		}
	}
}

// scan returns the stored rows of a range, without the rows that it passes over.
func (t memTable[R]) scan(r rows.Range) []*R {
	from := t.all()
	whole := len(t.schema[0].Place(new(R)))
	if r.Index == t.schema[0].Index && len(r.Prefixes) > 0 && len(r.Prefixes[0]) == whole {
		var found []*R
		for _, key := range r.Prefixes {
			if row := t.get(t.at(key)); row != nil {
				found = append(found, row)
			}
		}
		from = slices.Values(found)
	}
	return t.schema.Select(&r, func(yield func(*R) bool) {
		for row := range from {
			if (r.Lock != rows.SkipLocked || t.v.free(t.of(row), row)) && !yield(row) {
				return
			}
		}
	})
}

// locked returns the rows of a range, locked as it says.
func (t memTable[R]) locked(r rows.Range) []*R {
	if r.Lock == rows.ForUpdate || r.Lock == rows.ForShare { // they may change while it waits
		must(r.Index == t.schema[0].Index && r.Prefixes != nil,
			"a Range that waits, but not by the primary key")
		for _, key := range r.Prefixes {
			if e := t.at(key); t.get(e) != nil {
				t.v.tx.lock(e, false)
			}
		}
	}
	found := t.scan(r)
	for _, row := range found {
		if r.Lock != rows.NoLock {
			t.v.tx.lock(t.of(row), false)
		}
		if key, of := t.v.lockOf(row); of && r.Lock == rows.SkipLocked {
			t.v.tx.lock(key, false)
		}
	}
	return found
}

// keyLock is what a transaction locks that locks a key.
func keyLock(queue uint64, key string) entry { return entry{queue, "key lock", [4]any{key}} }

// lockOf returns the lock of the key that a row belongs to: a task, a turn or the row of a key. of
// is false for other rows, and if this transaction does not lock keys.
func (v *memView) lockOf(row any) (e entry, of bool) {
	switch r := row.(type) {
	case *rows.Row:
		e = keyLock(v.id, r.Key)
	case *rows.Turn:
		e = keyLock(v.id, r.Key)
	case *rows.Key:
		e = keyLock(v.id, r.Key)
	}
	return e, v.locksKeys && e != entry{}
}

// free reports whether no other transaction has locked a row, or its key.
func (v *memView) free(e entry, row any) bool {
	key, of := v.lockOf(row)
	return v.tx.free(e, false) && (!of || v.tx.free(key, false))
}

func (t memTable[R]) Scan(r rows.Range) (found []*R, err error) {
	err = t.v.do(t.name+".Scan", func() {
		for _, row := range t.locked(r) {
			c := copyOf(row, r.Payload)
			if r.Turns {
				c = turnOf(row)
			}
			found = append(found, c)
		}
	})
	return found, err
}

func (t memTable[R]) Put(r *R) error {
	return t.v.do(t.name+".Put", func() { t.put(copyOf(r, true)) })
}

func (t memTable[R]) put(r *R) {
	if t.get(t.of(r)) == nil {
		t.unique(r)
	}
	t.write(r, r)
}

// write writes a row, or deletes it if to is nil.
func (t memTable[R]) write(r *R, to any) {
	key, of := t.v.lockOf(r)
	must(!of || t.v.tx.hasLocked(key), "a task, a turn or a key is written whose key is not locked")
	_, isTurn := any(r).(*rows.Turn)
	must(of || !isTurn || t.v.exclusive || !t.v.tx.db.Shared,
		"a turn is written that others may write")
	t.v.tx.lock(t.of(r), false)
	t.v.tx.own[t.of(r)] = to
}

// unique is called before a new row is put. It fails if a visible row has the same value in a
// unique field. If such a row was not yet visible, the transaction may be tried again.
func (t memTable[R]) unique(r *R) {
	for _, s := range t.schema {
		at := s.Place(r)
		if !s.Unique || at == nil {
			continue
		}
		other := rows.Range{Index: s.Index, Prefixes: []rows.Tuple{at}}
		must(t.scan(other) == nil, "a unique field of "+t.name+" is used twice")
		t.v.tx.lock(entry{t.v.id, t.name + " unique", [4]any{at[0]}}, false)
		if t.scan(other) != nil {
			panic(giveUp{ErrAgain})
		}
	}
}

func (t memTable[R]) Delete(r *R) error {
	return t.v.do(t.name+".Delete", func() { t.write(r, nil) })
}

func (t memTable[R]) Sweep(r rows.Range) error {
	return t.v.do(t.name+".Sweep", func() {
		r.Lock = rows.SkipLocked
		for _, row := range t.locked(r) {
			t.write(row, nil)
		}
	})
}

// copyOf copies a row with its payload; of a task only if that is wanted.
func copyOf[R any](r *R, payload bool) *R {
	c := new(*r)
	switch c := any(c).(type) {
	case *rows.Row:
		if c.Payload = bytes.Clone(c.Payload); !payload {
			c.Payload = nil
		}
	case *rows.Ended:
		c.Payload = bytes.Clone(c.Payload)
	}
	return c
}

// turnOf returns a task with the fields that it has with Range.Turns.
func turnOf[R any](r *R) *R {
	t := any(r).(*rows.Row)
	return any(&rows.Row{
		ID: t.ID, Key: t.Key, Priority: t.Priority, Weight: t.Weight, Cost: t.Cost, State: t.State,
		Returned: t.Returned, Round: t.Round, Used: t.Used, Place: t.Place,
	}).(*R)
}

// taskTable is the table of tasks.
type taskTable struct{ memTable[rows.Row] }

func (t taskTable) Put(r *rows.Row) error {
	return t.v.do("Tasks.Put", func() {
		must(r.State >= driver.Ready && r.State <= driver.Held, "a row without a State")
		must(!r.Takeable || r.State == driver.Ready && !r.InLine,
			"a row that is Takeable but not Ready, or is InLine")
		c := copyOf(r, true)
		if r.Was == 0 {
			must(r.ID > 0 && r.ID <= t.v.tx.data.numbers[t.v.id], "an ID that is no Number")
			must(t.get(t.of(r)) == nil, "an ID is used twice")
		} else {
			old := t.writable(r)
			if c.Payload = old.Payload; old.State == driver.Ready && r.State == driver.Taken {
				must(r.InLine == old.InLine, "a row is taken and enters or leaves its line")
				if !r.InLine {
					*c = *old
					c.SetTaken(r)
				}
			}
		}
		t.put(c)
	})
}

func (t taskTable) Delete(r *rows.Row) error {
	return t.v.do("Tasks.Delete", func() { t.write(t.writable(r), nil) })
}

// writable returns the row as it is, if it may be changed.
func (t taskTable) writable(r *rows.Row) *rows.Row {
	must(t.v.mayWrite(r), "a row is changed that was not read, or not in a way that locks it")
	old := t.get(t.of(r))
	must(old != nil, "a row is changed that is gone")
	must(r.Was == old.State,
		"a row is changed that is not as it was read or written last, or its Was is not")
	return old
}

// mayWrite reports whether a task may be changed.
func (v *memView) mayWrite(r *rows.Row) bool {
	key, of := v.lockOf(r)
	return v.exclusive || of && v.tx.hasLocked(key) || v.tx.hasLocked(v.tasks().of(r))
}

func (v *memView) Fetch(...rows.Range) error { return v.do("Fetch", func() {}) }

func (v *memView) Now() int64 { return v.now }

func (v *memView) Number() (n uint64, err error) {
	err = v.do("Number", func() {
		if len(v.numbers) == 0 {
			v.numbers = []uint64{v.tx.number(v.id)}
		}
		n, v.numbers = v.numbers[0], v.numbers[1:]
	})
	return n, err
}

// stats returns the KeyStats of all keys.
func (v *memView) stats() map[string]rows.Key {
	stats := map[string]rows.Key{}
	for k := range v.keys().all() {
		if k.Paused {
			stats[k.Key] = rows.Key{Key: k.Key, Paused: true}
		}
	}
	for r := range v.tasks().all() {
		k := stats[r.Key]
		k.Key = r.Key
		rows.Count(&k.Tasks, 0, r.State)
		first := k.Tasks[driver.Ready]+k.Tasks[driver.Delayed] == 1
		if waits := r.State <= driver.Delayed; waits && (first || r.Created < k.Oldest) {
			k.Oldest = r.Created
		}
		stats[r.Key] = k
	}
	return stats
}

func (v *memView) KeyStats(n int) (list []rows.Key, err error) {
	err = v.do("KeyStats", func() {
		all := slices.SortedFunc(maps.Values(v.stats()), func(a, b rows.Key) int {
			return cmp.Or(cmp.Compare(b.Tasks[0], a.Tasks[0]), cmp.Compare(a.Key, b.Key))
		})
		for i, k := range all {
			if i < n || k.Paused {
				list = append(list, k)
			}
		}
	})
	return list, err
}

func (v *memView) CountKeys(from string, n int) (keys int, next string, err error) {
	err = v.do("CountKeys", func() {
		stats := v.stats()
		for _, key := range slices.Sorted(maps.Keys(stats)) {
			if stats[key].Tasks[0] > 0 && key >= from && keys < n {
				if next, keys = key+"\x00", keys+1; keys < n {
					next = ""
				}
			}
		}
	})
	return keys, next, err
}

func (v *memView) Counts() (n [driver.Held + 1]int, err error) {
	err = v.do("Counts", func() {
		for r := range v.tasks().all() {
			rows.Count(&n, 0, r.State)
		}
	})
	return n, err
}

// Ended returns all there are.
func (v *memView) Ended(mark string) (ended []*rows.Outcome, _ string, err error) {
	err = v.do("Ended", func() {
		if mark != "" {
			ended = slices.Collect(tableOf(v, "Outcomes", rows.Outcomes).all())
		}
	})
	return ended, "all", err
}

func (v *memView) Head() *rows.Head { return v.head }

func (v *memView) Save() error {
	return v.do("Save", func() {
		v.tx.own[v.at] = v.tx.get(v.at).(*queueRow).with(v.head)
	})
}

// Drop leaves rows that nobody will find.
func (v *memView) Drop() (done bool, err error) {
	err = v.do("Drop", func() {
		v.dropped, v.tx.own[v.at] = true, nil
		delete(v.tx.db.heads, v.id)
	})
	return err == nil, err
}
