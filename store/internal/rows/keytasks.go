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
	lines  []*readyLine // in the order of priorities, without those that have no task
	hidden []*Row       // those that are Shared and not Takeable
}

// readyLine is what is known of the ready tasks of a line.
type readyLine struct {
	priority int
	front    []*Row                // all that have a turn of their own, in the order of Place
	rest     []*Row                // the others, in the order of Place
	kinds    map[string]*readyKind // all that it has tasks of
	used     map[string]bool       // kinds of which there may be others, though none is known
}

// lineKind is where a task queues, with its kind.
type lineKind struct {
	Line
	kind string
}

// readyKind is what is known of the tasks of a kind in a line.
type readyKind struct {
	front int    // how many have a turn of their own
	rest  []*Row // the first of the others, in the order of Place
	limit int    // how many of these are known at most
	more  bool   // there may be others behind them
}

// parkedAtFirst is how many parked tasks of each line and kind are read at first.
const parkedAtFirst = 4

// parkedLater is how many more of a kind are read when these are used up.
const parkedLater = 16

// maxKnownKeys is of how many keys the tasks are remembered at most.
const maxKnownKeys = 1 << 12

// prepare reads what the calls of a transaction will ask for. It comes before all that is written,
// so a driver that has read the ranges of the Plan need not know what becomes of them: from now on
// that is up to what is cached here.
func (u *unit) prepare() {
	for _, l := range slices.Concat(u.plan.Lines, u.plan.LastRounds) {
		u.account(l)
	}
	if u.q.byKey() {
		u.read(false, u.plan.Keys...)
	}
	if u.q.store.traits.Exclusive {
		return // there each read costs the same, now or later
	}
	if ids := u.plan.unread(u.head); len(ids) > 0 {
		for _, id := range ids {
			u.got[id] = nil
		}
		for _, r := range must(u.v.Rows(RowRange(false, ForUpdate, ids...))) {
			u.got[r.ID] = r
		}
	}
	if u.plan.Take > 0 && !u.head.Paused {
		u.readReady(u.plan.Filter, u.plan.Take)
	}
	if !u.q.byKey() {
		return
	}
	rows := slices.Clone(u.readAhead.rows)
	for _, id := range u.plan.Get {
		if r := cmp.Or(u.head.taken[id], u.got[id]); r != nil {
			rows = append(rows, r)
		}
	}
	keys := keysOf(rows)
	if u.q.putsBehind && !u.q.guardsFronts() {
		for _, at := range u.plan.Puts {
			if k := u.head.readyTasks[at.Key]; k != nil {
				p := k.line(at.Priority).kinds[at.kind]
				u.behind[at] = p != nil && p.parked() > 0
			}
		}
		if puts := u.head.unknownPuts(u.plan.Puts); len(puts) > 0 {
			for _, r := range must(u.v.Rows(parkedKeysRange(puts))) {
				u.behind[r.lineKind()] = true
			}
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
	u.fetch(u.head.unknown(keys, u.q.frontsOnly), u.q.frontsOnly, payload)
}

// unknown returns those of some keys whose rows are not known, or whose tasks if these are asked
// for.
func (h *Head) unknown(keys []string, tasks bool) (unknown []string) {
	for _, key := range keys {
		if h.keys[key] == nil || tasks && h.readyTasks[key] == nil {
			unknown = append(unknown, key)
		}
	}
	slices.Sort(unknown)
	return slices.Compact(unknown)
}

// unknownPuts returns those of some puts of whose keys the tasks are not known.
func (h *Head) unknownPuts(puts []lineKind) []lineKind {
	known := func(at lineKind) bool { return h.readyTasks[at.Key] != nil }
	return slices.DeleteFunc(slices.Clone(puts), known)
}

// fetch reads the rows of keys, and if they are wanted their tasks: all that have a turn, and of
// each line and kind the first parked ones.
func (u *unit) fetch(keys []string, tasks, payload bool) {
	if len(keys) == 0 {
		return
	}
	limit := 0
	if tasks {
		limit = parkedAtFirst
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
		if tasks {
			u.head.readyTasks[key] = &readyTasks{}
		}
	}
	for _, r := range ready {
		u.noteLarge(r)
		u.head.readyTasks[r.Key].add(r)
	}
	for _, key := range keys {
		if k := u.head.readyTasks[key]; tasks {
			for _, l := range k.lines {
				for _, p := range l.kinds {
					p.more = p.parked() >= limit
				}
			}
		}
	}
}

// readMore reads the first parked tasks of a line and kind, more than are known.
func (u *unit) readMore(l Line, kind string, payload bool) {
	line := u.head.readyTasks[l.Key].line(l.Priority)
	p := line.kinds[kind]
	n := len(p.rest) + parkedLater
	parked := must(u.v.Parked(l, kind, n, payload))
	isParked := func(r *Row) bool { return r.Round == 0 }
	line.rest = slices.DeleteFunc(line.rest, func(r *Row) bool { return r.Kind == kind && isParked(r) })
	p.rest, p.more, p.limit = slices.DeleteFunc(p.rest, isParked), false, 2*n
	delete(line.used, kind)
	for _, r := range parked {
		u.noteLarge(r)
		line.insert(p, r)
	}
	p.more = len(parked) == n
	line.dropIfUsed(kind)
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

// add adds a task that is ready. It must not be known yet.
func (k *readyTasks) add(r *Row) {
	i, found := k.at(r.Priority)
	if !found {
		k.lines = slices.Insert(k.lines, i, &readyLine{priority: r.Priority, kinds: map[string]*readyKind{}})
	}
	l := k.lines[i]
	p := l.kinds[r.Kind]
	if p == nil {
		p = &readyKind{limit: 2 * parkedAtFirst}
		l.kinds[r.Kind] = p
	}
	if r.Shared && !r.Takeable {
		k.hidden = append(k.hidden, r)
	}
	l.insert(p, r)
}

// insert adds a task that is not known yet, of a kind that has p.
func (l *readyLine) insert(p *readyKind, r *Row) {
	if r.Round != 0 && !r.Shared {
		l.front = insertRow(l.front, r)
		p.front++
		return
	}
	if n := len(p.rest); r.Round == 0 && p.more && (n == 0 || r.Place > p.rest[n-1].Place) {
		return // it may not be the next one: others that are not known may come before it
	}
	delete(l.used, r.Kind)
	l.rest, p.rest = insertRow(l.rest, r), insertRow(p.rest, r)
	if n := len(p.rest); n > p.limit {
		l.rest = deleteRow(l.rest, p.rest[n-1].ID)
		p.rest, p.more = p.rest[:n-1], true
	}
}

func insertRow(in []*Row, r *Row) []*Row {
	at, _ := slices.BinarySearchFunc(in, r, byPlace)
	return slices.Insert(in, at, r)
}

func deleteRow(from []*Row, id uint64) []*Row {
	return slices.DeleteFunc(from, func(r *Row) bool { return r.ID == id })
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
	k.hidden = deleteRow(k.hidden, r.ID)
	l := k.lines[i]
	p, n := l.kinds[r.Kind], len(l.front)
	l.front, l.rest, p.rest = deleteRow(l.front, r.ID), deleteRow(l.rest, r.ID), deleteRow(p.rest, r.ID)
	p.front -= n - len(l.front)
	if l.dropIfUsed(r.Kind); len(l.kinds) == 0 {
		k.lines = slices.Delete(k.lines, i, i+1)
	}
}

// dropIfUsed forgets a kind if the line has no task of it, and notes it if none is known.
func (l *readyLine) dropIfUsed(kind string) {
	switch p := l.kinds[kind]; {
	case len(p.rest) > 0:
	case p.more:
		if l.used == nil {
			l.used = map[string]bool{}
		}
		l.used[kind] = true
	case p.front == 0:
		delete(l.kinds, kind)
	}
}

// parked returns how many of the tasks that are known have no turn.
func (p *readyKind) parked() (n int) {
	for _, r := range p.rest {
		if r.Round == 0 {
			n++
		}
	}
	return n
}

// find returns a task as it is known, nil if it is not.
func (k *readyTasks) find(r *Row) *Row {
	same := func(other *Row) bool { return other.ID == r.ID }
	l := k.line(r.Priority)
	all := l.front
	if p := l.kinds[r.Kind]; p != nil {
		all = slices.Concat(all, p.rest)
	}
	if i := slices.IndexFunc(all, same); i >= 0 {
		return all[i]
	}
	return nil
}

// lacks returns a kind of which tasks that are not known may be among the first n tasks of the line,
// or the next one after these, where first are the first n that are known.
func (l *readyLine) lacks(first []*Row) (kind string, lacks bool) {
	for kind := range l.used {
		return kind, true
	}
	for _, r := range first {
		if p := l.kinds[r.Kind]; p.more && p.rest[len(p.rest)-1].ID == r.ID {
			return r.Kind, true
		}
	}
	return "", false
}

func byPlace(a, b *Row) int { return cmp.Compare(a.Place, b.Place) }

// firstOf returns the first n ready tasks of a line in the order of Place. It reads those that are
// not known yet, and so that of each of their kinds the next one is known too.
func (u *unit) firstOf(l Line, n int) (first []*Row) {
	payload := u.plan.Take > 0 && !u.q.store.traits.Exclusive
	for u.read(payload, l.Key); ; {
		line := u.head.readyTasks[l.Key].line(l.Priority)
		first = slices.Concat(line.front, line.rest[:min(n, len(line.rest))])
		slices.SortFunc(first, byPlace)
		first = first[:min(n, len(first))]
		kind, lacks := line.lacks(first)
		if !lacks {
			return first
		}
		u.readMore(l, kind, payload)
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
		r.Shared = now.Shared
	}
	return r
}
