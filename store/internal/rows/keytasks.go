package rows

import (
	"cmp"
	"math"
	"slices"

	"github.com/fairq/fairq/task/driver"
)

// readyTasks is what is known of the ready tasks of a key. The invariant: it is what a read of the
// database would find now. So all that is written is noted here too (see unit.write). Nobody else can
// write these tasks meanwhile: the head is not kept if others have written anything, and within a
// transaction the queue is entered exclusively, or with Traits.Optimistic whoever changes a task
// also writes the row of its key, unless it only puts one behind all others (see staysBehind).
//
// There may be very many parked tasks, and only the first ones matter. No unknown one is between
// those that are known of a line and kind; if more is true, unknown ones may follow. So a task
// that comes after the last known one is left out: unknown ones may come before it.
type readyTasks struct {
	lines []*readyLine // in the order of priorities, without those that have no task
	limit int          // of each line and kind so many parked ones are known at most
}

// readyLine is what is known of the ready tasks of a line.
type readyLine struct {
	priority int
	front    []*Row             // all that have a turn, in the order of Place
	kinds    map[string]*parked // all kinds that it has tasks of
}

// lineKind is where a task queues, with its kind.
type lineKind struct {
	Line
	kind string
}

// parked are the first tasks of a line and kind that have no turn, in the order of Place.
type parked struct {
	rows  []*Row
	more  bool // there may be others behind them
	front int  // how many others have a turn
}

// parkedAtFirst is how many parked tasks of each line and kind are read at first.
const parkedAtFirst = 4

// parkedAtMost is how many more are read when these are used up.
const parkedAtMost = 16

// maxKnownKeys is of how many keys the tasks are remembered at most.
const maxKnownKeys = 1 << 12

// prepare reads in one exchange what the calls of a transaction will ask for.
func (u *unit) prepare() {
	for _, l := range u.plan.Lines {
		u.account(l)
	}
	if !u.q.byKey() {
		return
	}
	u.read(false, u.plan.Keys...)
	if u.q.store.traits.Exclusive {
		return // there each read costs the same, now or later
	}
	var rows []*Row
	for _, id := range u.plan.Get {
		if r := must(u.v.Get(id, false)); r != nil {
			rows = append(rows, r)
		}
	}
	if u.plan.Take > 0 && !u.head.Paused {
		u.readReady(u.plan.Filter, u.plan.Take)
		rows = append(rows, u.readAhead.rows...)
	}
	keys := keysOf(rows)
	if len(u.plan.Puts) > 0 && u.q.putsBehind && !u.q.guardsFronts() {
		for _, r := range must(u.v.Rows(parkedKeysRange(u.plan.Puts))) {
			u.behind[r.lineKind()] = true
		}
	}
	for _, at := range u.plan.Puts {
		if !u.staysBehind(at, math.MaxUint64) {
			keys = append(keys, at.Key)
		}
	}
	u.read(u.plan.Take > 0, keys...)
}

func keysOf(rows []*Row) []string {
	keys := make([]string, len(rows))
	for i, r := range rows {
		keys[i] = r.Key
	}
	return keys
}

// read reads the rows of keys that are not known yet, and their tasks if there are fronts.
func (u *unit) read(payload bool, keys ...string) {
	u.fetch(u.unknown(keys, u.q.frontsOnly), parkedAtFirst, payload)
}

// unknown returns those of some keys whose rows are not known, or whose tasks if these are asked
// for.
func (u *unit) unknown(keys []string, tasks bool) (unknown []string) {
	for _, key := range keys {
		if u.head.keys[key] == nil || tasks && u.head.readyTasks[key] == nil {
			unknown = append(unknown, key)
		}
	}
	slices.Sort(unknown)
	return slices.Compact(unknown)
}

// fetch reads the rows of keys, and their tasks if there are fronts: all that have a turn, and of
// each priority and kind the first parked ones, up to a limit, which is 0 if no tasks are wanted.
func (u *unit) fetch(keys []string, limit int, payload bool) {
	if len(keys) == 0 {
		return
	}
	if !u.q.frontsOnly {
		limit = 0
	}
	found, ready, err := u.v.Lines(keys, limit, payload)
	check(err)
	if len(u.head.readyTasks)+len(keys) > maxKnownKeys {
		clear(u.head.readyTasks)
	}
	for _, k := range found {
		if u.head.keys[k.Key] == nil {
			u.head.keys[k.Key] = k
		}
	}
	for _, key := range keys {
		if u.head.keys[key] == nil {
			u.head.keys[key] = &Key{Key: key, Weight: 1}
		}
		if limit > 0 {
			u.head.readyTasks[key] = &readyTasks{limit: limit}
		}
	}
	for _, r := range ready {
		k := u.head.readyTasks[r.Key]
		k.add(r)
		p := k.line(r.Priority).kinds[r.Kind]
		p.more = len(p.rows) == limit
	}
}

// at returns where the line of a priority is, or would be.
func (k *readyTasks) at(priority int) (i int, found bool) {
	return slices.BinarySearchFunc(k.lines, priority, func(l *readyLine, p int) int { return l.priority - p })
}

// line returns the line of a priority, an empty one if no task of it is known.
func (k *readyTasks) line(priority int) *readyLine {
	if i, found := k.at(priority); found {
		return k.lines[i]
	}
	return &readyLine{priority: priority}
}

// first reports whether a task of that kind is in the line of a priority and in none before it.
func (k *readyTasks) first(priority int, kind string) bool {
	i := slices.IndexFunc(k.lines, func(l *readyLine) bool { return l.kinds[kind] != nil })
	return i >= 0 && k.lines[i].priority == priority
}

// add adds a task, if it is ready. It must not be known yet. A nil receiver knows nothing, and
// need not.
func (k *readyTasks) add(r *Row) {
	if k == nil || r.State != driver.Ready {
		return
	}
	i, found := k.at(r.Priority)
	if !found {
		k.lines = slices.Insert(k.lines, i, &readyLine{priority: r.Priority, kinds: map[string]*parked{}})
	}
	l := k.lines[i]
	p := l.kinds[r.Kind]
	if p == nil {
		p = &parked{}
		l.kinds[r.Kind] = p
	}
	if r.Round != 0 {
		at, _ := slices.BinarySearchFunc(l.front, r, byPlace)
		l.front = slices.Insert(l.front, at, r)
		p.front++
		return
	}
	at, _ := slices.BinarySearchFunc(p.rows, r, byPlace)
	if at == len(p.rows) && p.more {
		return // it may not be the next one: others that are not known may come before it
	}
	if p.rows = slices.Insert(p.rows, at, r); len(p.rows) > k.limit {
		p.rows, p.more = p.rows[:k.limit], true
	}
}

// remove removes a task, if it is known.
func (k *readyTasks) remove(r *Row) {
	if k == nil {
		return
	}
	i, found := k.at(r.Priority)
	if !found || k.lines[i].kinds[r.Kind] == nil {
		return
	}
	same := func(other *Row) bool { return other.ID == r.ID }
	l := k.lines[i]
	p, n := l.kinds[r.Kind], len(l.front)
	l.front = slices.DeleteFunc(l.front, same)
	p.front -= n - len(l.front)
	p.rows = slices.DeleteFunc(p.rows, same)
	if len(p.rows) > 0 || p.more || p.front > 0 {
		return
	}
	if delete(l.kinds, r.Kind); len(l.kinds) == 0 {
		k.lines = slices.Delete(k.lines, i, i+1)
	}
}

// find returns a task as it is known, nil if it is not.
func (k *readyTasks) find(r *Row) *Row {
	same := func(other *Row) bool { return other.ID == r.ID }
	l := k.line(r.Priority)
	all := l.front
	if p := l.kinds[r.Kind]; p != nil {
		all = slices.Concat(all, p.rows)
	}
	if i := slices.IndexFunc(all, same); i >= 0 {
		return all[i]
	}
	return nil
}

// lacks tells whether, of some kind, there may be parked tasks among the first n of the line that
// are not known.
func (l *readyLine) lacks(n int) bool {
	for _, p := range l.kinds {
		if p.more && len(p.rows) < n {
			return true
		}
	}
	return false
}

// inTurn reports whether the tasks of the line that have a turn each have their own, and these are
// in the order of their places.
func (l *readyLine) inTurn() bool {
	for i, r := range l.front[min(1, len(l.front)):] {
		if l.front[i].turn().compare(r.turn()) >= 0 {
			return false
		}
	}
	return true
}

func byPlace(a, b *Row) int { return cmp.Compare(a.Place, b.Place) }

// readyOf returns the ready tasks of a line in the order of Place: all that have a turn, and of
// each kind the first parked ones, as many as may get a turn if n tasks are to have one. It reads
// those that are not known yet.
func (u *unit) readyOf(l Line, n int) (found []*Row) {
	payload := u.plan.Take > 0 && !u.q.store.traits.Exclusive
	for u.read(payload, l.Key); ; {
		k := u.head.readyTasks[l.Key]
		line := k.line(l.Priority)
		n = max(n, len(line.front)+1)
		if line.lacks(n) {
			u.fetch([]string{l.Key}, n+min(2*k.limit, parkedAtMost), payload)
			continue
		}
		found = slices.Clone(line.front)
		for _, p := range line.kinds {
			found = append(found, p.rows[:min(n, len(p.rows))]...)
		}
		slices.SortFunc(found, byPlace)
		return found
	}
}

// withCurrentTurn returns a row with the turn that it has by now: updateFront may have given it
// another one since it was read.
func (u *unit) withCurrentTurn(r *Row) *Row {
	if !u.q.frontsOnly || r.State != driver.Ready {
		return r
	}
	if u.head.readyTasks[r.Key] == nil { // they were forgotten, to make room for others
		return must(u.v.Get(r.ID, u.needsPayload()))
	}
	if now := u.head.readyTasks[r.Key].find(r); now != nil {
		r.Takeable = now.Takeable
		r.setTurn(now.turn())
	}
	return r
}
