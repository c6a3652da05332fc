package rowstest

import (
	"bytes"
	"cmp"
	"iter"
	"maps"
	"reflect"
	"slices"

	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/task/driver"
)

// memView is a queue in a transaction of a DB.
type memView struct {
	tx        *memTx
	id        uint64
	head      *rows.Head
	now       int64
	exclusive bool            // no row need be locked
	strict    bool            // the plan was not exclusive, so only tasks that were locked may be changed
	read      map[uint64]bool // tasks that may be changed
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

// lock locks a row, and waits if another transaction has.
func (v *memView) lock(e entry) {
	if !v.exclusive {
		v.tx.lockLocked(e, false)
	}
}

// free tells whether no other transaction has locked a row.
func (v *memView) free(e entry) bool {
	return v.exclusive || len(v.tx.data.locks[e]) == 0 || v.tx.hasLocked(e)
}

func (v *memView) table(name string) table { return table{v.id, name} }

func (v *memView) tasks() memTable[rows.Row]          { return tableOf(v, "Tasks", rows.Tasks) }
func (v *memView) consumers() memTable[rows.Consumer] { return tableOf(v, "Consumers", rows.Consumers) }

func (v *memView) Tasks() rows.Table[rows.Row]          { return taskTable{v.tasks()} }
func (v *memView) Keys() rows.Table[rows.Key]           { return tableOf(v, "Keys", rows.Keys) }
func (v *memView) Served() rows.Table[rows.Served]      { return tableOf(v, "Served", rows.ServedLines) }
func (v *memView) Consumers() rows.Table[rows.Consumer] { return v.consumers() }
func (v *memView) Groups() rows.Table[rows.Group]       { return tableOf(v, "Groups", rows.Groups) }
func (v *memView) Outcomes() rows.Table[rows.Outcome]   { return tableOf(v, "Outcomes", rows.Outcomes) }

func (v *memView) History() rows.Table[rows.Ended] { return tableOf(v, "History", rows.History) }

func tableOf[R any](v *memView, name string, schema rows.Schema[R]) memTable[R] {
	return memTable[R]{v, table{v.id, name}, schema}
}

// memTable is one of the tables that package rows declares, in a View.
type memTable[R any] struct {
	v *memView
	table
	schema rows.Schema[R]
}

// at returns where the row with a primary key is.
func (t memTable[R]) at(fields ...any) entry {
	var key [2]any
	copy(key[:], fields)
	return entry{t.table, key}
}

func (t memTable[R]) of(r *R) entry { return t.at(t.schema[0].Place(r)...) }

func (t memTable[R]) get(e entry) *R {
	r, _ := t.v.tx.get(e).(*R)
	return r
}

func (t memTable[R]) set(e entry, r *R) { t.v.tx.own[e] = r }
func (t memTable[R]) delete(e entry)    { t.v.tx.own[e] = nil }

func (t memTable[R]) all() iter.Seq[*R] {
	return func(yield func(*R) bool) {
		for _, r := range t.v.tx.all(t.table) {
			if !yield(r.(*R)) {
				return
			}
		}
	}
}

// some yields the rows with these primary keys.
func (t memTable[R]) some(keys []rows.Tuple) iter.Seq[*R] {
	return func(yield func(*R) bool) {
		for _, key := range keys {
			if r := t.get(t.at(key...)); r != nil && !yield(r) {
				return
			}
		}
	}
}

// scan returns the rows of a range that free lets through, as they are kept.
func (t memTable[R]) scan(r rows.Range, free func(entry) bool) []*R {
	return t.schema.Select(&r, func(yield func(*R) bool) {
		all := t.all()
		if r.Index == t.schema[0].Index && r.Prefixes != nil {
			all = t.some(r.Prefixes)
		}
		for row := range all {
			if free(t.of(row)) && !yield(row) {
				return
			}
		}
	})
}

// anyone lets all rows through.
func anyone(entry) bool { return true }

func (t memTable[R]) Scan(r rows.Range) (found []*R, err error) {
	err = t.v.do(t.name+".Scan", func() {
		for _, row := range t.locked(r) {
			found = append(found, copyOf(row))
		}
	})
	return found, err
}

// locked returns the rows of a range, locked as it says.
func (t memTable[R]) locked(r rows.Range) []*R {
	free := anyone
	switch r.Lock {
	case rows.NoLock:
		return t.scan(r, free)
	case rows.SkipLocked:
		free = t.v.free
	default:
		must(r.Index == t.schema[0].Index && r.Prefixes != nil, "a Range that waits for locks, but not by the primary key")
		for _, p := range r.Prefixes {
			if e := t.at(p...); t.get(e) != nil {
				t.v.lock(e)
			}
		}
	}
	found := t.scan(r, free)
	for _, row := range found {
		t.v.lock(t.of(row))
	}
	return found
}

func (t memTable[R]) Put(r *R) error {
	return t.v.do(t.name+".Put", func() { t.put(copyOf(r)) })
}

func (t memTable[R]) put(r *R) {
	if t.get(t.of(r)) == nil {
		t.unique(r)
	}
	t.v.lock(t.of(r))
	t.set(t.of(r), r)
}

// unique is called before a new row is put. Whoever could not see that there is another one may
// try again.
func (t memTable[R]) unique(r *R) {
	for _, s := range t.schema {
		at := s.Place(r)
		if !s.Unique || at == nil {
			continue
		}
		same := func() bool {
			return t.scan(rows.Range{Index: s.Index, Prefixes: []rows.Tuple{at}}, anyone) != nil
		}
		must(!same(), "a unique field of "+t.name+" is used twice")
		t.v.lock(entry{t.v.table(t.name + " unique"), at[0]})
		if same() {
			panic(giveUp{ErrAgain})
		}
	}
}

func (t memTable[R]) Delete(r *R) error {
	return t.v.do(t.name+".Delete", func() {
		t.v.lock(t.of(r))
		t.delete(t.of(r))
	})
}

func (t memTable[R]) Sweep(r rows.Range) error {
	return t.v.do(t.name+".Sweep", func() {
		r.Lock = rows.SkipLocked
		for _, row := range t.locked(r) {
			t.delete(t.of(row))
		}
	})
}

// copyOf copies a row with all that it points to.
func copyOf[R any](r *R) *R {
	c := new(*r)
	switch c := any(c).(type) {
	case *rows.Row:
		c.Payload, c.Err = bytes.Clone(c.Payload), cloneError(c.Err)
	case *rows.Ended:
		c.Payload, c.Err = bytes.Clone(c.Payload), cloneError(c.Err)
	case *rows.Outcome:
		if c.Err = cloneError(c.Err); c.Result != rows.Failed {
			c.Err = nil
		}
	}
	return c
}

func cloneError(err *driver.Error) *driver.Error {
	if err == nil {
		return nil
	}
	return new(*err)
}

// taskTable is the table of tasks, with what is told of it besides.
type taskTable struct{ memTable[rows.Row] }

func (t taskTable) Scan(r rows.Range) ([]*rows.Row, error) {
	found, err := t.memTable.Scan(r)
	for _, row := range found {
		if row.Was = 0; !r.Payload {
			row.Payload = nil
		}
		if r.Lock != rows.NoLock || !t.v.strict {
			t.v.read[row.ID] = true
		}
	}
	return found, err
}

func (t taskTable) Put(r *rows.Row) error {
	return t.v.do("Tasks.Put", func() {
		must(r.State >= driver.Ready && r.State <= driver.Held, "a row without a State")
		must(!r.Takeable || r.State == driver.Ready, "a row that is Takeable but not Ready")
		c, old := copyOf(r), t.get(t.of(r))
		switch {
		case r.Was == 0:
			must(r.ID > 0 && r.ID <= t.v.tx.data.numbers[t.v.id], "an ID that is no Number")
			must(old == nil, "an ID is used twice")
		case t.writable(r).State == driver.Ready && r.State == driver.Taken:
			must(!r.Takeable, "a row whose State was set to Taken, and that is Takeable")
			*c = *old
			c.SetTaken(r)
		default:
			*c = *old
			copyChanging(c, r)
		}
		t.v.read[r.ID] = true
		t.put(c)
	})
}

// copyChanging copies the fields that change.
func copyChanging(to, from *rows.Row) {
	to.Group, to.Priority, to.State, to.Takeable = from.Group, from.Priority, from.State, from.Takeable
	to.Round, to.Used, to.Seq = from.Round, from.Used, from.Seq
	to.Gap, to.Returned, to.Place = from.Gap, from.Returned, from.Place
	to.Since, to.Evictable, to.Consumer = from.Since, from.Evictable, from.Consumer
	to.Attempts, to.ReadyAt, to.Until, to.Expires = from.Attempts, from.ReadyAt, from.Until, from.Expires
	to.Wake, to.Err = from.Wake, cloneError(from.Err)
}

func (t taskTable) Delete(r *rows.Row) error {
	return t.v.do("Tasks.Delete", func() {
		t.writable(r)
		t.delete(t.of(r))
	})
}

// writable returns the row as it is, if it may be changed.
func (t taskTable) writable(r *rows.Row) *rows.Row {
	must(!t.v.strict || t.v.read[r.ID], "a row is changed that was not read in this View, or not in a way that locks it")
	s := t.get(t.of(r))
	must(s != nil, "a row is changed that is gone")
	must(r.Was == s.State, "a row is changed that is not as it was read or written last, or its Was was changed")
	return s
}

func (taskTable) Sweep(rows.Range) error { panic("rowstest: a Sweep of tasks") }

func (v *memView) Fetch(...rows.Range) error { return v.do("Fetch", func() {}) }

func (v *memView) Now() int64 { return v.now }

func (v *memView) Number() (uint64, error) {
	return get(v, "Number", func() uint64 {
		if len(v.numbers) == 0 {
			return v.newNumber()
		}
		n := v.numbers[0]
		v.numbers = v.numbers[1:]
		return n
	})
}

func (v *memView) newNumber() uint64 {
	n := v.tx.data.numbers[v.id] + 1
	if v.tx.db.given != 0 {
		n = v.tx.db.given
	}
	v.tx.data.numbers[v.id] = max(v.tx.data.numbers[v.id], n)
	return n
}

func (v *memView) Counts() ([driver.Held + 1]int, error) {
	return get(v, "Counts", func() (n [driver.Held + 1]int) {
		for r := range v.tasks().all() {
			n[0]++
			n[r.State]++
		}
		return n
	})
}

func (v *memView) LastRound(l rows.Line, after uint64) (round uint64, n int, err error) {
	err = v.do("LastRound", func() {
		line := rows.Range{Index: rows.TaskLine, Prefixes: []rows.Tuple{{l.Key, int64(l.Priority)}}, From: rows.Tuple{int64(after) + 1}}
		for _, r := range v.tasks().scan(line, anyone) {
			if r.Round > round {
				round, n = r.Round, 0
			}
			n++
		}
	})
	return round, n, err
}

func (v *memView) Hide(key string) error {
	return v.do("Hide", func() {
		for _, r := range v.tasks().scan(rows.Range{Index: rows.TaskLine, Prefixes: []rows.Tuple{{key}}}, anyone) {
			if r.Takeable {
				hidden := *r
				hidden.Takeable = false
				v.tasks().set(v.tasks().of(r), &hidden)
			}
		}
	})
}

func (v *memView) KeyStats(n int) ([]rows.Key, error) {
	return get(v, "KeyStats", func() []rows.Key {
		stats := map[string]rows.Key{}
		for k := range tableOf(v, "Keys", rows.Keys).all() {
			if k.Paused {
				stats[k.Key] = rows.Key{Key: k.Key, Paused: true}
			}
		}
		for r := range v.tasks().all() {
			k := stats[r.Key]
			k.Key = r.Key
			k.Tasks[0]++
			k.Tasks[r.State]++
			first := k.Tasks[driver.Ready]+k.Tasks[driver.Delayed] == 1
			if waits := r.State == driver.Ready || r.State == driver.Delayed; waits && (first || r.Created < k.Oldest) {
				k.Oldest = r.Created
			}
			stats[r.Key] = k
		}
		list := slices.SortedFunc(maps.Values(stats), func(a, b rows.Key) int {
			return cmp.Or(cmp.Compare(b.Tasks[0], a.Tasks[0]), cmp.Compare(a.Key, b.Key))
		})
		return list[:min(n, len(list))]
	})
}

func (v *memView) CountKeys() (int, error) {
	return get(v, "CountKeys", func() int {
		keys := map[string]bool{}
		for r := range v.tasks().all() {
			keys[r.Key] = true
		}
		return len(keys)
	})
}

// Ended returns all there are.
func (v *memView) Ended(mark string) (ended []*rows.Outcome, _ string, err error) {
	err = v.do("Ended", func() {
		for o := range tableOf(v, "Outcomes", rows.Outcomes).all() {
			if mark != "" {
				ended = append(ended, copyOf(o))
			}
		}
	})
	return ended, "all", err
}

func (v *memView) Head() *rows.Head { return v.head }

func (v *memView) Save() error {
	return v.do("Save", func() {
		h, own := v.head, v.tx.own
		for priority, round := range h.Rounds {
			at := entry{v.table("rounds"), priority}
			if old, _ := v.tx.get(at).(uint64); round > old {
				own[at] = round
			}
		}
		if h.Removed != v.removed && v.tx.db.Shared {
			own[entry{v.table("removed"), nil}], v.removed = v.newNumber(), h.Removed
		}
		now := head{bytes.Clone(h.Settings), h.Paused, h.PausedKeys}
		if !reflect.DeepEqual(now, v.tx.get(heads(v.id))) {
			own[heads(v.id)] = now
		}
	})
}

// Drop leaves rows that nobody will find.
func (v *memView) Drop() (done bool, err error) {
	return get(v, "Drop", func() bool {
		v.dropped = true
		for name, id := range v.tx.all(allNames) {
			if id == v.id {
				v.tx.own[entry{allNames, name}] = nil
			}
		}
		v.tx.own[heads(v.id)] = nil
		delete(v.tx.db.heads, v.id)
		return true
	})
}
