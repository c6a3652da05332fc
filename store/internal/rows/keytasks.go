package rows

import (
	"cmp"
	"math"
	"slices"
)

// span has the ready tasks of a key with a common prefix in one of the indexes of lines.
type span struct {
	index     Index
	fields    int // of the prefix
	key, kind string
	n         int64 // the priority, or, in TaskShown, whether they are Takeable
}

func keySpan(key string) span      { return span{TaskPlace, 1, key, "", 0} }
func lineSpan(l Line) span         { return span{TaskPlace, 2, l.Key, "", num(l.Priority)} }
func ofKind(key, kind string) span { return span{TaskKinds, 2, key, kind, 0} }
func kindSpan(at lineKind) span    { return span{TaskKinds, 3, at.Key, at.kind, num(at.Priority)} }
func shownSpan(key string, takeable bool) span {
	return span{TaskShown, 2, key, "", bit(takeable)}
}

func (s span) prefix() Tuple {
	if s.index == TaskKinds {
		return Tuple{s.key, s.kind, s.n}[:s.fields]
	}
	return Tuple{s.key, s.n}[:s.fields]
}

// spansOf returns all spans in which a task can be.
func spansOf(r *Row) [6]span {
	return [...]span{
		keySpan(r.Key), lineSpan(r.line()), ofKind(r.Key, r.Kind), kindSpan(r.lineKind()),
		shownSpan(r.Key, false), shownSpan(r.Key, true),
	}
}

// holds reports whether a task that can be in the span is in it.
func (s span) holds(r *Row) bool {
	return r.inLine() && (s.index != TaskShown || r.isShown() && bit(r.Takeable) == s.n)
}

// order compares tasks of the span by their places in it.
func (s span) order(a, b *Row) int {
	switch s.index {
	case TaskPlace:
		behind := cmp.Compare(bit(a.Front != AtFront), bit(b.Front != AtFront))
		return cmp.Or(a.Priority-b.Priority, behind, byPlace(a, b))
	case TaskKinds:
		return cmp.Or(a.Priority-b.Priority, cmp.Compare(a.Front, b.Front), byPlace(a, b))
	}
	return cmp.Compare(a.ID, b.ID)
}

// firsts has the known tasks of a span. The invariant: a read of the database now would return
// them. So each write is noted here too (see unit.write). If others have written since the last
// transaction, the head is not kept. During one they cannot: it has entered the queue exclusively.
// With Traits.Optimistic it has not, but each change of a task also writes the row of its key, and
// so conflicts, unless it only puts a task behind all others (see staysBehind).
//
// There may be very many tasks, and only the first ones matter. No unknown task is between known
// ones. So a task behind the last known one is left out if more is true.
type firsts struct {
	rows []*Row
	more bool // there may be further tasks behind them
}

// firstsRead is the number of tasks that the first read of a span reads.
const firstsRead = 4

// moreRead is the number of further tasks that the next read reads.
const moreRead = 16

// maxKnownKeys is the greatest number of keys in the cache.
const maxKnownKeys = 1 << 12

// lineKind is a line and a kind.
type lineKind struct {
	Line
	kind string
}

// prepare makes the planned reads of the calls of a transaction. It comes before all writes, so a
// driver that has read the ranges of the Plan need not keep them up to date: from now on the cache
// has the rows.
func (u *unit) prepare() {
	for lines := range byPriority(u.plan.Lines) {
		u.readAccounts(u.q.rounds[lines[0].Priority], lines)
	}
	u.readKeys(u.plan.Keys...)
	u.readFronts(u.readsPayload(), u.plan.Fronts...)
	if u.q.store.traits.Exclusive {
		return // reading ahead saves nothing there
	}
	if ids := u.plan.unread(u.head); len(ids) > 0 {
		for _, id := range ids {
			u.head.tasks[id] = nil
		}
		for _, r := range must(u.v.Rows(RowRange(false, ForUpdate, ids...))) {
			u.head.tasks[r.ID] = r
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
		if r := u.head.tasks[id]; r != nil {
			rows = append(rows, r)
		}
	}
	if unknown := u.head.unknownPuts(u.plan.Puts); !u.q.guardsFronts() && len(unknown) > 0 {
		for _, r := range must(u.v.Rows(lastParkedRange(NoLock, unknown...))) {
			u.behind[r.lineKind()] = true
		}
	}
	var ahead []lineKind
	for _, at := range u.plan.Puts {
		if !u.staysBehind(at, math.MaxUint64) {
			ahead = append(ahead, at)
		}
	}
	u.readFronts(u.plan.Take > 0, ahead...)
	u.readFor(u.plan.Take > 0, rows)
}

// readFor reads the rows that changes of some tasks will need.
func (u *unit) readFor(payload bool, rows []*Row) {
	if !u.q.byKey() {
		return
	}
	at, keys := make([]lineKind, len(rows)), make([]string, len(rows))
	for i, r := range rows {
		at[i], keys[i] = r.lineKind(), r.Key
	}
	if u.q.turns != plain {
		u.readFronts(payload, at...)
	} else {
		u.readKeys(keys...)
	}
}

// readKeys reads the rows of unknown keys.
func (u *unit) readKeys(keys ...string) { u.fetch(u.head.unknownKeys(keys), nil, false) }

// readFronts reads the unknown rows of the keys of some lines, and the first tasks of these lines
// and kinds.
func (u *unit) readFronts(payload bool, at ...lineKind) {
	keys, spans := u.head.unknownFronts(u.q, at)
	u.fetch(keys, spans, payload)
}

// unknownKeys returns the keys whose rows are unknown.
func (h *Head) unknownKeys(keys []string) (unknown []string) {
	for _, key := range keys {
		if h.keys[key] == nil {
			unknown = append(unknown, key)
		}
	}
	slices.Sort(unknown)
	return slices.Compact(unknown)
}

// unknownFronts returns the keys and spans that readFronts must read.
func (h *Head) unknownFronts(q *queue, all []lineKind) (keys []string, spans []span) {
	for _, at := range all {
		keys = append(keys, at.Key)
		wanted := []span{lineSpan(at.Line), kindSpan(at)}
		if q.turns == limits {
			wanted = append(wanted, shownSpan(at.Key, false), shownSpan(at.Key, true))
		}
		if q.guardsFronts() || q.turns == limits && at.Priority != 0 {
			wanted = append(wanted, keySpan(at.Key))
		}
		for _, s := range wanted {
			if h.readyTasks[at.Key][s] == nil {
				spans = append(spans, s)
			}
		}
	}
	return h.unknownKeys(keys), spans
}

// unknownPuts returns the puts for whose lines and kinds no parked task is known.
func (h *Head) unknownPuts(puts []lineKind) []lineKind {
	return slices.DeleteFunc(slices.Clone(puts), func(at lineKind) bool { return h.hasParked(at) })
}

// hasParked reports whether a parked task of a kind is known in a line.
func (h *Head) hasParked(at lineKind) bool {
	f := h.readyTasks[at.Key][kindSpan(at)]
	return f != nil && slices.ContainsFunc(f.rows, func(r *Row) bool { return r.Front == Parked })
}

// fetch reads the rows of keys, and the first tasks of spans.
func (u *unit) fetch(keys []string, spans []span, payload bool) {
	ranges := frontRanges(keys, spans, payload)
	if len(ranges) == 0 {
		return
	}
	u.needKeys(keys...)
	for _, s := range spans {
		u.needKeys(s.key)
	}
	check(u.v.Fetch(ranges...))
	if len(keys) > 0 {
		for _, k := range must(u.v.Keys().Scan(ranges[0])) {
			u.head.keys[k.Key] = k
		}
		ranges = ranges[1:]
	}
	for _, key := range keys {
		if u.head.keys[key] == nil {
			u.head.keys[key] = &Key{Key: key}
		}
	}
	if len(u.head.readyTasks)+len(spans) > maxKnownKeys {
		clear(u.head.readyTasks)
	}
	for _, s := range spans {
		known := u.head.readyTasks[s.key]
		if known == nil {
			known = map[span]*firsts{}
			u.head.readyTasks[s.key] = known
		}
		known[s] = &firsts{}
	}
	for _, r := range ranges {
		u.note(&r, must(u.v.Rows(r)))
	}
}

// note notes the first tasks of some spans after a read.
func (u *unit) note(of *Range, found []*Row) {
	for _, r := range found {
		u.noteLarge(r)
		for s, f := range u.spansIn(of, r) {
			f.rows = append(f.rows, r)
			if f.more = len(f.rows) == of.Limit; f.more {
				slices.SortFunc(f.rows, s.order)
			}
		}
	}
}

// spansIn yields the span of a range in which a task was found.
func (u *unit) spansIn(of *Range, r *Row) func(func(span, *firsts) bool) {
	return func(yield func(span, *firsts) bool) {
		for _, s := range spansOf(r) {
			f := u.head.readyTasks[r.Key][s]
			if f != nil && s.index == of.Index && s.fields == len(of.Prefixes[0]) && s.holds(r) {
				yield(s, f)
				return
			}
		}
	}
}

// frontRanges returns the ranges that fetch reads.
func frontRanges(keys []string, spans []span, payload bool) (ranges []Range) {
	if len(keys) > 0 {
		ranges = append(ranges, KeyRange(keys))
	}
	type shape struct {
		Index
		fields int
	}
	prefixes := map[shape][]Tuple{}
	for _, s := range spans {
		of := shape{s.index, s.fields}
		prefixes[of] = append(prefixes[of], s.prefix())
	}
	for _, of := range [...]shape{
		{TaskPlace, 1}, {TaskPlace, 2}, {TaskKinds, 2}, {TaskKinds, 3}, {TaskShown, 2},
	} {
		if all := prefixes[of]; len(all) > 0 {
			ranges = append(ranges, FirstRange(of.Index, eachOnce(all), firstsRead, payload))
		}
	}
	return ranges
}

// eachOnce sorts prefixes.
func eachOnce(prefixes []Tuple) []Tuple {
	slices.SortFunc(prefixes, Tuple.Compare)
	return slices.CompactFunc(prefixes, func(a, b Tuple) bool { return a.Compare(b) == 0 })
}

// firsts returns the known tasks of a span: at least n, if it has that many.
func (u *unit) firsts(s span, n int) *firsts {
	if u.head.readyTasks[s.key][s] == nil {
		u.fetch(nil, []span{s}, u.readsPayload())
	}
	f := u.head.readyTasks[s.key][s]
	if len(f.rows) < n && f.more {
		u.readMore(s, f, n)
	}
	return f
}

// readMore reads further tasks of a span, so that at least n are known.
func (u *unit) readMore(s span, f *firsts, n int) {
	n = max(n, 2*len(f.rows), len(f.rows)+moreRead)
	r := FirstRange(s.index, []Tuple{s.prefix()}, n, u.readsPayload())
	f.rows = must(u.v.Rows(r))
	slices.SortFunc(f.rows, s.order)
	f.more = len(f.rows) == r.Limit
	for _, r := range f.rows {
		u.noteLarge(r)
	}
}

// readsPayload reports whether tasks that come to the front are read with their payloads, because
// this transaction may take them.
func (u *unit) readsPayload() bool { return u.plan.Take > 0 && !u.q.store.traits.Exclusive }

// addReady notes a ready task, which must not be known yet.
func (h *Head) addReady(r *Row) {
	for _, s := range spansOf(r) {
		f := h.readyTasks[r.Key][s]
		if f == nil || !s.holds(r) {
			continue
		}
		n := len(f.rows)
		if f.more && (n == 0 || s.order(r, f.rows[n-1]) > 0) {
			continue // unknown tasks may come before it
		}
		at, _ := slices.BinarySearchFunc(f.rows, r, s.order)
		f.rows = slices.Insert(f.rows, at, r)
		if n := firstsRead + moreRead + atFront(f.rows); len(f.rows) > n+moreRead {
			f.rows, f.more = slices.Clone(f.rows[:n]), true
		}
	}
}

// atFront returns how many tasks at the beginning of a list have turns of their own.
func atFront(rows []*Row) int {
	n := slices.IndexFunc(rows, func(r *Row) bool { return r.Front != AtFront })
	if n < 0 {
		return len(rows)
	}
	return n
}

// forgetReady forgets a task, if it is known.
func (h *Head) forgetReady(r *Row) {
	same := func(other *Row) bool { return other.ID == r.ID }
	for _, s := range spansOf(r) {
		if f := h.readyTasks[r.Key][s]; f != nil {
			f.rows = slices.DeleteFunc(f.rows, same)
		}
	}
}

func byPlace(a, b *Row) int { return cmp.Compare(a.Place, b.Place) }

// line returns the tasks of a line that have turns of their own; the one of these with the turn of
// the line, nil if there is none; and the first other tasks. They are in the order of Place.
func (u *unit) line(l Line) (front []*Row, first *Row, rest []*Row) {
	s := lineSpan(l)
	f := u.firsts(s, 0)
	for f.more && atFront(f.rows) == len(f.rows) {
		u.readMore(s, f, 0)
	}
	n := atFront(f.rows)
	if i := slices.IndexFunc(f.rows[:n], func(r *Row) bool { return !r.Returned }); i >= 0 {
		first = f.rows[i]
	}
	return f.rows[:n:n], first, f.rows[n:]
}

// firstOfKind returns a task of a kind in the first line of a key with such tasks, nil if there is
// none.
func (u *unit) firstOfKind(key, kind string) *Row {
	if all := u.firsts(keySpan(key), 1); len(all.rows) == 0 {
		return nil
	}
	return append(u.firsts(ofKind(key, kind), 1).rows, nil)[0]
}

// withCurrentTurn updates the turn of a row: updateFront may have given it another one since it
// was read.
func (u *unit) withCurrentTurn(r *Row) *Row {
	if now := u.moved[r.ID]; now != nil {
		r.Takeable, r.Hidden = now.Takeable, now.Hidden
		r.setTurn(now.turn(), now.Returned)
		r.Front = now.Front
	}
	return r
}
