package rows

import (
	"cmp"
	"slices"

	"github.com/fairq/fairq/internal/account"
	"github.com/fairq/fairq/internal/driver"
)

// In most queues each ready task has a turn. In some, lines have the turns: a Line is a key in a
// priority. These are queues with KeepPlace or limits by key, and queues in which a task ever had
// a kind, or a key was ever paused or waited. Such a queue has a table of turns, and the first
// task of a line takes the line's turn. So a take passes over no task that it may not have, and
// blocking or freeing a key changes few rows.
//
// The invariant, whenever updateLine returns:
//
//   - A line with ready tasks has a Turn for each of their kinds, with the place of the first task
//     of that kind. The Turn with the first place in the line leads: its round is that of the
//     line. The rounds of the other Turns may be out of date, which is earlier: see isNext.
//   - A task that was handed back with its turn has a Turn of its own, and is in no line.
//   - A Turn is Takeable if its key is not blocked, and no earlier line of the key has a task of
//     its kind, because a take would have to take that task first. A Turn that does not lead may
//     be Takeable when it should not be: see isNext.

// change is a change of a task for its line.
type change uint8

const (
	came change = iota // it has become ready
	used               // it has used the turn: it was taken
	left               // it has left in another way
)

// lineKind is a line and a kind.
type lineKind struct {
	Line
	kind string
}

// turnID is the primary key of a Turn.
type turnID struct {
	lineKind
	task uint64
}

func (t *Turn) id() turnID { return turnID{lineKind{t.Line, t.Kind}, t.Task} }

func (t *Turn) turn() account.Account { return account.Account{Round: t.Round, Used: t.Used} }

func (t *Turn) set(a account.Account) { t.Round, t.Used = a.Round, a.Used }

// knownKey is the cache of a key. It has the row of the key. In a queue with lines it also has the
// turns of the key, and the first tasks of some of its lines and kinds. The invariant: a read of
// the database now would return the same. So each write is noted here too.
//
// If another process has written since the last transaction, the driver does not keep the Head,
// and the cache goes with it. During this transaction others cannot change the rows of the key,
// because the transaction is in the queue exclusively, or has locked the key. With
// Traits.Optimistic they can. But each change of a turn also writes the row of the key, and so
// conflicts.
type knownKey struct {
	*Key
	turns  []*Turn // all of the key, in the order of TurnLine
	firsts map[lineKind]*firsts
}

// find returns where the turn with that primary key is, or would be.
func (k *knownKey) find(id turnID) (i int, found bool) {
	return slices.BinarySearchFunc(k.turns, id, func(t *Turn, id turnID) int {
		return cmp.Or(t.Priority-id.Priority, cmp.Compare(t.Kind, id.kind), cmp.Compare(t.Task, id.task))
	})
}

// firsts has the first ready tasks of a kind in a line, in the order of Place. No unknown task is
// between them.
type firsts struct {
	rows []*Row
	more bool // there may be further tasks behind them
}

// firstsRead is the number of tasks that the first read of a line reads.
const firstsRead = 4

// moreRead is the number of further tasks that the next read reads.
const moreRead = 16

// maxKnownKeys is the greatest number of keys in the cache.
const maxKnownKeys = 1 << 12

// updateLine restores the invariant of a key after one of its tasks has changed, or the number of
// its taken tasks. r is the task after it came, or before it left.
func (u *unit) updateLine(r *Row, how change) {
	if !u.q.lines {
		return
	}
	of := Turn{Line: r.line(), Kind: r.Kind, Task: r.ID}
	switch {
	case how == came && r.Returned:
		of.Round, of.Used, of.Place, of.Leads = r.Round, r.Used, r.Place, true
		u.putTurn(of)
	case u.turn(of.id()) != nil:
		u.putTurn(of)
	default:
		u.moveLine(r, how)
	}
	u.countLines(r.Key)
	u.show(r.Key)
}

// moveLine is updateLine for a task in its line.
func (u *unit) moveLine(r *Row, how change) {
	at, own := r.lineKind(), Turn{Line: r.line(), Kind: r.Kind}
	var turn account.Account // of the line
	var line []Turn
	for _, t := range u.turnsOf(r.Key) {
		switch {
		case t.Line != at.Line || t.Task != 0:
			continue
		case t.Kind == r.Kind:
			own = *t
		default:
			line = append(line, *t)
		}
		if t.Leads {
			turn = t.turn()
		}
	}
	isNew := own.Place == 0
	switch {
	case how == came && (isNew || r.Place < own.Place):
		own.Place = r.Place
	case how == came || r.Place != own.Place: // it is not the first
		return
	default:
		own.Place = u.firstPlace(at)
	}
	switch {
	case turn.Round == 0:
		turn = u.firstTurn(r)
	case how == used:
		turn = u.following(turn, r)
	}
	if isNew {
		own.set(turn)
		u.head.keys[r.Key].firsts[at] = &firsts{} // there was none
		u.addReady(r)
	}
	line = append(line, own)
	lead := -1
	for i, t := range line {
		if t.Place > 0 && (lead < 0 || t.Place < line[lead].Place) {
			lead = i
		}
	}
	for i, t := range line {
		if t.Leads = i == lead; t.Leads {
			t.set(turn)
		}
		u.putTurn(t)
	}
}

// firstPlace returns the place of the first task of a kind in a line. If there is none it returns
// 0, and guards the line: no other transaction may put one there before the commit.
func (u *unit) firstPlace(at lineKind) uint64 {
	if first := u.first(at); first != nil {
		return first.Place
	}
	if u.q.guardsLines() {
		_, err := u.v.Tasks().Scan(Range{Index: TaskPlace, Prefixes: prefixesOf(at), Lock: NoMore})
		check(err)
	}
	return 0
}

// putTurn puts a turn, unless it is as it was. Without a Place it deletes it.
func (u *unit) putTurn(now Turn) {
	if now.Place == 0 {
		now = Turn{Line: now.Line, Kind: now.Kind, Task: now.Task}
	}
	u.needKeys(now.Key)
	k, was := u.known(now.Key), Turn{Line: now.Line, Kind: now.Kind, Task: now.Task}
	i, found := k.find(now.id())
	if found {
		was = *k.turns[i]
	}
	switch {
	case now == was:
		return
	case now.Place == 0:
		k.turns = slices.Delete(k.turns, i, i+1)
	case found:
		k.turns[i] = &now
	default:
		k.turns = slices.Insert(k.turns, i, &now)
	}
	if _, known := u.unsavedTurns[now.id()]; !known {
		u.written++
		u.bytes += inIndexes * (len(now.Key) + len(now.Kind))
	}
	u.unsavedTurns[now.id()] = &now
	u.readAhead.move(&now)
	if now.Takeable && (!was.Takeable || now.Leads && !was.Leads) {
		u.canBeTaken(now.Priority, now.Kind)
	}
}

// show makes the turns of a key Takeable, or not, after the key was blocked or freed, or its lines
// have changed.
func (u *unit) show(key string) {
	if len(u.wrong(key)) > 0 {
		u.do(&work{What: showTurns, Name: []byte(key)})
	}
}

// showSome is show for up to n turns.
func (u *unit) showSome(w *work, n int) (done bool) {
	wrong := u.wrong(string(w.Name))
	for _, t := range wrong[:min(n, len(wrong))] {
		now := *t
		now.Takeable = !t.Takeable
		u.putTurn(now)
	}
	return len(wrong) <= n
}

// wrong returns the turns of a key that show must change.
func (u *unit) wrong(key string) (wrong []*Turn) {
	mayTake := u.mayTake(key)
	for _, t := range u.turnsOf(key) {
		is := mayTake(t)
		if t.Takeable != is && (is || t.Leads) {
			wrong = append(wrong, t)
		}
	}
	return wrong
}

// mayTake returns a function that reports whether a turn of a key should be Takeable.
func (u *unit) mayTake(key string) func(t *Turn) bool {
	blocked, first := u.blocked(key), map[string]int{} // the first priority of each kind
	for _, t := range slices.Backward(u.turnsOf(key)) {
		first[t.Kind] = t.Priority
	}
	return func(t *Turn) bool { return !blocked && t.Priority == first[t.Kind] }
}

// isNext reports whether a turn that a take has found is the next turn of its key.
//
// A turn that does not lead may have an old round, and may be Takeable although its key is
// blocked. Each take of a task of the key would have to write a turn for each kind to prevent
// that. Instead isNext corrects such a turn when a take finds it, and returns false, so that the
// take looks again.
func (u *unit) isNext(t *Turn) bool {
	if t.Leads {
		return true
	}
	all, now := u.turnsOf(t.Key), *t
	lead := all[slices.IndexFunc(all, func(o *Turn) bool {
		return o.Line == t.Line && o.Task == 0 && o.Leads
	})]
	now.set(lead.turn())
	now.Takeable = u.mayTake(t.Key)(t)
	switch {
	case now == *t:
		return true
	case u.room(1) == 0:
		u.passed[t.id()] = true
		return now.Takeable
	}
	u.putTurn(now)
	u.countLines(t.Key)
	return false
}

// countLines is for queues where staysBehind relies on the row of a key. It makes the transaction
// write that row whenever turns of the key may have changed, and keeps the row while there are
// any.
func (u *unit) countLines(key string) {
	if u.q.guardsLines() {
		k, n := u.key(key), min(1, len(u.turnsOf(key)))
		k.Tasks[0] += n - k.Tasks[driver.Ready]
		k.Tasks[driver.Ready] = n
		u.unsaved[k] = true
	}
}

// staysBehind reports whether a new task comes behind another task of its line and kind, and the
// transaction may rely on that task to stay. Then no turn changes. So the transaction need not
// write the row of the key, and does not conflict with changes of turns, which all write it. A
// change that finds no more tasks of a line and kind guards that line (see firstPlace).
func (u *unit) staysBehind(at lineKind, place uint64) bool {
	if !u.q.guardsLines() {
		return false
	}
	last := must(one(u.v.Rows(lastRange(at))))
	return last != nil && last.Place < place
}

// isBehind reports whether another ready task of the line, handed back or not, has an earlier
// place.
func (u *unit) isBehind(r *Row) bool {
	return slices.ContainsFunc(u.turnsOf(r.Key), func(t *Turn) bool {
		return t.Line == r.line() && t.Place < r.Place
	})
}

// park goes through the next n tasks of a queue that gets lines. It moves the turns of ready tasks
// to their lines; tasks that were handed back keep theirs.
func (u *unit) park(w *work, n int) (done bool) {
	rows := must(u.v.Rows(w.page(n)))
	u.readKeys(keysOf(rows)...)
	return u.eachOf(rows, n, func(r *Row) {
		w.pass(r)
		if r.Round == 0 || r.State == driver.Taken { // it has used its turn
			return
		}
		turn := r.turn()
		switch r.Takeable, r.Gap = false, false; {
		case r.State != driver.Ready:
			r.setTurn(account.Account{}, false)
		case !r.Returned:
			r.setTurn(account.Account{}, false)
			if r.InLine = true; u.turn(turnID{r.lineKind(), 0}) == nil {
				u.putTurn(Turn{
					Line: r.line(), Round: turn.Round, Used: turn.Used, Place: r.Place, Leads: true,
				})
			}
		}
		if u.update(r); r.Returned {
			u.updateLine(r, came)
		}
		u.countLines(r.Key)
		u.show(r.Key)
	})
}

// showAll goes through the turns of a queue with other limits: of the keys of the next n.
func (u *unit) showAll(w *work, n int) (done bool) {
	if !u.q.lines {
		return true
	}
	u.saveKeys()
	page := must(u.v.Turns().Scan(Range{Index: TurnLine, From: Tuple{string(w.Name)}, Limit: n}))
	for _, t := range page {
		switch {
		case t.Key < string(w.Name): // it is done
			continue
		case u.workLeft() || u.isLarge():
			return false
		}
		w.Name = []byte(t.Key + "\x00")
		u.countLines(t.Key)
		u.bytes += inIndexes * len(t.Key) // save writes the key
		u.show(t.Key)
	}
	return len(page) < n
}

// known returns a key, and reads it if it is unknown.
func (u *unit) known(key string) *knownKey {
	if u.head.keys[key] == nil {
		u.readKeys(key)
	}
	return u.head.keys[key]
}

// turnsOf returns the turns of a key, in the order of TurnLine.
func (u *unit) turnsOf(key string) []*Turn { return u.known(key).turns }

// turn returns the turn with that primary key, nil if there is none.
func (u *unit) turn(id turnID) *Turn {
	k := u.known(id.Key)
	if i, found := k.find(id); found {
		return k.turns[i]
	}
	return nil
}

// readKeys reads the rows of unknown keys, and in a queue with lines their turns.
func (u *unit) readKeys(keys ...string) { u.fetch(keys, nil, nil) }

// unknown returns those of some keys that are unknown, each once.
func (h *Head) unknown(keys []string) (unknown []string) {
	for _, key := range keys {
		if h.keys[key] == nil {
			unknown = append(unknown, key)
		}
	}
	slices.Sort(unknown)
	return slices.Compact(unknown)
}

// fetch reads unknown keys, the first tasks of some kinds in lines, and some tasks with their
// payloads.
func (u *unit) fetch(keys []string, of []lineKind, ids []uint64) {
	keys = u.head.unknown(keys)
	known := u.q.keyRanges(keys)
	ranges := slices.Clone(known)
	first := FirstRange(TaskPlace, prefixesOf(of...), firstsRead, u.readsPayload())
	if len(of) > 0 {
		ranges = append(ranges, first)
	}
	tasks := RowRange(true, ForUpdate, ids...)
	if len(ids) > 0 {
		ranges = append(ranges, tasks)
	}
	if len(ranges) == 0 {
		return
	}
	u.needKeys(keys...)
	check(u.v.Fetch(ranges...))
	for _, key := range keys {
		u.head.keys[key] = &knownKey{&Key{Key: key}, nil, map[lineKind]*firsts{}}
	}
	for i, r := range known {
		if i == 0 {
			for _, k := range must(u.v.Keys().Scan(r)) {
				u.head.keys[k.Key].Key = k
			}
			continue
		}
		for _, t := range must(u.v.Turns().Scan(r)) {
			k := u.head.keys[t.Key]
			k.turns = append(k.turns, t)
		}
	}
	if len(of) > 0 {
		for _, at := range of {
			u.head.keys[at.Key].firsts[at] = &firsts{}
		}
		u.note(must(u.v.Rows(first)), firstsRead)
	}
	if len(ids) > 0 {
		for _, r := range must(u.v.Rows(tasks)) {
			u.head.tasks[r.ID] = r
		}
	}
}

// keyRanges returns the ranges of the rows of keys, and of their turns.
func (q *queue) keyRanges(keys []string) (ranges []Range) {
	if len(keys) > 0 {
		ranges = append(ranges, KeyRange(keys))
		if q.lines {
			ranges = append(ranges, turnsRange(keys))
		}
	}
	return ranges
}

// note notes the first tasks of lines, of each kind up to n.
func (u *unit) note(rows []*Row, n int) {
	for _, r := range rows {
		u.noteLarge(r)
		f := u.head.firstsOf(r)
		f.rows = append(f.rows, r)
		f.more = len(f.rows) == n
	}
}

// first returns the first ready task of a kind in a line, nil if there is none.
func (u *unit) first(at lineKind) *Row {
	k := u.known(at.Key)
	if k.firsts[at] == nil {
		u.fetch(nil, []lineKind{at}, nil)
	}
	f := k.firsts[at]
	if len(f.rows) == 0 && f.more {
		f.more = false
		r := FirstRange(TaskPlace, prefixesOf(at), moreRead, u.readsPayload())
		u.note(must(u.v.Rows(r)), moreRead)
	}
	if len(f.rows) == 0 {
		return nil
	}
	return f.rows[0]
}

// firstTask returns the first task of a turn, with its payload.
func (u *unit) firstTask(t *Turn) *Row {
	if t.Task != 0 {
		r := u.head.tasks[t.Task]
		if delete(u.head.tasks, t.Task); r == nil || r.Payload == nil {
			r = must(u.v.Get(t.Task, true))
		}
		return r
	}
	r := u.first(t.id().lineKind)
	if r.Payload == nil {
		r.Payload = must(u.v.Get(r.ID, true)).Payload
	}
	return r
}

// readsPayload reports whether the first tasks of lines are read with their payloads, because this
// transaction may take them.
func (u *unit) readsPayload() bool { return u.plan.Take > 0 && !u.q.store.traits.Exclusive }

// addReady adds a task that is not known yet to the cached tasks of its line. Where the cache
// would keep its payload for long, it adds the task without the payload.
func (u *unit) addReady(r *Row) {
	f := u.head.firstsOf(r)
	if f == nil || r.State != driver.Ready || !r.InLine {
		return
	}
	n := len(f.rows)
	if f.more && (n == 0 || byPlace(r, f.rows[n-1]) > 0) {
		return // unknown tasks may come before it
	}
	if r.Payload != nil && u.q.store.traits.Exclusive {
		known := *r
		known.Payload = nil
		r = &known
	}
	u.noteLarge(r)
	i, _ := slices.BinarySearchFunc(f.rows, r, byPlace)
	f.rows = slices.Insert(f.rows, i, r)
	if n := firstsRead + moreRead; len(f.rows) > n+moreRead {
		f.rows, f.more = slices.Clone(f.rows[:n]), true
	}
}

// forgetReady forgets a task, if it is known.
func (h *Head) forgetReady(r *Row) {
	if f := h.firstsOf(r); f != nil {
		f.rows = slices.DeleteFunc(f.rows, func(o *Row) bool { return o.ID == r.ID })
	}
}

// firstsOf returns the known tasks of the line and kind of a task, nil if none are known.
func (h *Head) firstsOf(r *Row) *firsts {
	if k := h.keys[r.Key]; k != nil {
		return k.firsts[r.lineKind()]
	}
	return nil
}

func byPlace(a, b *Row) int { return cmp.Compare(a.Place, b.Place) }
