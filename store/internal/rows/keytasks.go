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
// those that are known of a priority and kind; if more is true, unknown ones may follow. So a task
// that comes after the last known one is left out: unknown ones may come before it.
type readyTasks struct {
	front  []*Row                   // all that have a turn, in any order
	parked map[priorityKind]*parked // the first of those that have none
	limit  int                      // of each priority and kind so many parked ones are known at most
}

// priorityKind is a part of a key's tasks: the first one of it must be at the front.
type priorityKind struct {
	priority int
	kind     string
}

// lineKind is where a task queues, with its kind.
type lineKind struct {
	Line
	kind string
}

// parked are the first tasks of a priority and kind, in the order of Place.
type parked struct {
	rows []*Row
	more bool // there may be others behind them
}

// parkedAtFirst is how many parked tasks of each priority and kind are read at first.
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
			u.head.readyTasks[key] = &readyTasks{parked: map[priorityKind]*parked{}, limit: limit}
		}
	}
	for _, r := range ready {
		k := u.head.readyTasks[r.Key]
		k.add(r)
		k.parkedLike(r).more = len(k.parkedLike(r).rows) == limit
	}
}

// add adds a task, if it is ready. It must not be known yet. A nil receiver knows nothing, and
// need not.
func (k *readyTasks) add(r *Row) {
	if k == nil || r.State != driver.Ready {
		return
	}
	if r.Round != 0 {
		k.front = append(k.front, r)
		return
	}
	p := k.parkedLike(r)
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
	same := func(other *Row) bool { return other.ID == r.ID }
	k.front = slices.DeleteFunc(k.front, same)
	p := k.parkedLike(r)
	if p.rows = slices.DeleteFunc(p.rows, same); len(p.rows) == 0 && !p.more {
		delete(k.parked, priorityKind{r.Priority, r.Kind})
	}
}

// find returns a task as it is known, nil if it is not.
func (k *readyTasks) find(r *Row) *Row {
	same := func(other *Row) bool { return other.ID == r.ID }
	all := k.front
	if p := k.parked[priorityKind{r.Priority, r.Kind}]; p != nil {
		all = slices.Concat(all, p.rows)
	}
	if i := slices.IndexFunc(all, same); i >= 0 {
		return all[i]
	}
	return nil
}

// lacks tells whether, of some kind, there may be parked tasks among the first n of that priority
// that are not known.
func (k *readyTasks) lacks(priority, n int) bool {
	for s, p := range k.parked {
		if s.priority == priority && p.more && len(p.rows) < n {
			return true
		}
	}
	return false
}

// parkedLike returns the parked tasks of the priority and kind of a task.
func (k *readyTasks) parkedLike(r *Row) *parked {
	of := priorityKind{r.Priority, r.Kind}
	if k.parked[of] == nil {
		k.parked[of] = &parked{}
	}
	return k.parked[of]
}

func byPlace(a, b *Row) int { return cmp.Compare(a.Place, b.Place) }

// readyOf returns the ready tasks of a line in the order of Place: all that have a turn, and of
// each kind the first parked ones, as many as may get a turn if n tasks are to have one. It reads
// those that are not known yet.
func (u *unit) readyOf(l Line, n int) (found []*Row) {
	payload := u.plan.Take > 0 && !u.q.store.traits.Exclusive
	for u.read(payload, l.Key); ; {
		k := u.head.readyTasks[l.Key]
		found = found[:0]
		for _, r := range k.front {
			if r.Priority == l.Priority {
				found = append(found, r)
			}
		}
		n = max(n, len(found)+1)
		if k.lacks(l.Priority, n) {
			u.fetch([]string{l.Key}, n+min(2*k.limit, parkedAtMost), payload)
			continue
		}
		for of, p := range k.parked {
			if of.priority == l.Priority {
				found = append(found, p.rows[:min(n, len(p.rows))]...)
			}
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
