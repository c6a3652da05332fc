package memory

import (
	"maps"
	"slices"

	"github.com/fairq/fairq/internal/account"
	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/internal/order"
)

// A band has the lines of one priority: see package order for their turns.
//
// The invariant: a line with tasks is in the heap of its band, and a lane, the tasks of one kind
// in a line, in the heap of its kind. But a taker that meets one of a blocked key hides it until
// the key is free. So the cost of blocking a key does not depend on its lines and lanes.
//
// When a line uses a turn, its lanes stay where they are in the heaps of their kinds, perhaps too
// far ahead. The taker that meets such a lane moves it. So the cost of a take does not depend on
// other kinds.
type band struct {
	queue    *queue
	priority int
	now      uint64 // the round being served
	furthest uint64 // the last round of all accounts of the band
	lines    int
	kinds    map[string]*kind
	shown    heap[turn]                 // of lines
	idle     map[string]account.Account // of keys without a line here
	maxIdle  int                        // the number of idle keys at which void ones are forgotten
}

// spareKinds is the number of kinds beyond which a band forgets kinds without tasks.
const spareKinds = 8

// fewLanes is the number of lanes up to which a line has no map.
const fewLanes = 8

// kind is the state of a kind of tasks in a band.
type kind struct {
	name  string
	lanes int
	shown heap[turn] // of lanes
}

// turn is the next turn of a line or a lane.
type turn struct {
	round, place uint64
	*entry
}

func (t turn) before(other turn) bool {
	return t.round < other.round || t.round == other.round && t.place < other.place
}
func (t turn) at() *int32 { return &t.index }

// entry is a line or a lane in the heap of its band or kind.
type entry struct {
	line   *line
	lane   *lane // nil for the line
	len    int   // tasks
	index  int32
	hidden bool
}

// line has the ready tasks of a key in a band. Tasks that were handed back with their turns are in
// a line of their own, in which back is true.
type line struct {
	entry
	band   *band
	key    *keyState
	back   bool
	lanes  heap[byHead]     // by their first tasks, empty ones last
	next   account.Account  // its turn, unless the tasks have their own
	end    account.Account  // after its last turn
	byKind map[string]*lane // all lanes, nil if there are few

	one     lane      // the first lane, inside the line because most lines need only one
	laneBuf [1]byHead // the first array of lanes
}

// lane has the tasks of one kind in a line, in the order of their places.
type lane struct {
	entry
	kind    *kind         // nil if it has had no task yet
	inOrder list          // tasks that came in order
	early   heap[byPlace] // tasks that came after a task with a later place
	rank    int32         // in line.lanes
}

type byHead struct{ *lane }

func (a byHead) before(b byHead) bool {
	return a.len > 0 && (b.len == 0 || byPlace{a.head()}.before(byPlace{b.head()}))
}
func (a byHead) at() *int32 { return &a.rank }

// byPlace compares tasks of a line by their own turns, if they have any, and then by their places.
type byPlace struct{ *item }

func (a byPlace) before(b byPlace) bool {
	return a.turn < b.turn || a.turn == b.turn && a.place < b.place
}
func (a byPlace) at() *int32 { return &a.early }

// first returns the lane with the first takeable task of one of the kinds, or of any kind if kinds
// is nil. It returns nil if there is none.
func (b *band) first(kinds []string) *lane {
	if kinds == nil {
		if t := first(&b.shown); t.entry != nil {
			return t.line.lanes[0].lane
		}
		return nil
	}
	var next turn
	for _, name := range kinds {
		if k := b.kinds[name]; k != nil {
			if t := first(&k.shown); t.entry != nil && (next.entry == nil || t.before(next)) {
				next = t
			}
		}
	}
	if next.entry == nil {
		return nil
	}
	return next.lane
}

// first returns the first turn whose key is not blocked, a zero turn if there is none.
func first(shown *heap[turn]) turn {
	for len(*shown) > 0 {
		t := (*shown)[0]
		if k := t.line.key; k.blocked {
			shown.remove(t)
			t.hidden = true
			k.hidden = append(k.hidden, t.entry)
		} else if now := t.turn(); now == t {
			return t
		} else {
			shown.fix(now)
		}
	}
	return turn{}
}

// take takes out the first task of a lane.
func (b *band) take(lane *lane) *item {
	it, l := lane.head(), lane.line
	if l.back {
		lane.remove(it)
		return it
	}
	turn, cost := l.next, l.cost(it)
	if it.learned {
		it.cost = uint32(cost)
	}
	b.now = max(b.now, turn.Round)
	l.end, l.next = order.Used(turn, b.now, cost, l.share())
	b.furthest = max(b.furthest, l.end.Round)
	lane.remove(it)
	it.turn = turn.Round
	return it
}

// add puts a task into the line.
func (l *line) add(it *item) {
	q, b := l.band.queue, l.band
	if q.settings.Quantum > 0 && q.tasks[driver.Ready] == 1 && b.furthest > b.now {
		b.now = b.furthest + 1
	}
	if l.back {
		it.turn = min(it.turn, max(1, b.now)) // the band may have been forgotten since
	} else if l.len == 0 {
		l.next = l.end.Next(b.now+1, l.share())
	}
	lane := &l.one
	if lane.kind == nil || lane.kind.name != it.kind { // rare
		lane = l.lane(it.kind)
	}
	lane.insert(it)
}

// isBehind reports whether a ready task of the same key and priority has an earlier place. Of the
// few tasks that were handed back with their turns it looks at all, because these are not in the
// order of their places.
func (it *item) isBehind() bool {
	for _, l := range it.key.lines {
		switch {
		case l.isEmpty() || l.band.priority != int(it.priority):
		case !l.back && l.lanes[0].head().place < it.place:
			return true
		case l.back:
			for _, lane := range l.lanes {
				for other := range lane.inOrder.all() {
					if other.place < it.place {
						return true
					}
				}
				for _, other := range lane.early {
					if other.place < it.place {
						return true
					}
				}
			}
		}
	}
	return false
}

// remove takes a task out of the line.
func (l *line) remove(it *item) { l.lane(it.kind).remove(it) }

// share returns the work of the line in a round.
func (l *line) share() uint64 {
	return uint64(l.key.weight()) * uint64(max(1, l.band.queue.settings.Quantum))
}

// cost returns the work of a task that is taken now.
func (l *line) cost(it *item) uint64 {
	q := l.band.queue
	if q.settings.Quantum == 0 {
		return 1
	}
	if it.learned {
		for _, n := range q.notifiers {
			if cost := n.LearnedCost(it.key.name); cost > 0 {
				return uint64(cost)
			}
		}
	}
	return uint64(it.cost)
}

// newLine returns an empty line.
func (b *band) newLine(k *keyState, back bool) *line {
	l := &line{band: b, key: k, back: back}
	l.entry.line, l.one.entry = l, entry{line: l, lane: &l.one}
	l.lanes = l.laneBuf[:0]
	l.lanes.push(byHead{&l.one})
	if b.lines++; !back {
		l.end = b.idle[k.name]
		delete(b.idle, k.name)
	}
	return l
}

// leave forgets an empty line, but keeps its use of rounds that are not over.
func (b *band) leave(l *line) {
	for _, lane := range l.lanes {
		b.leaveKind(lane.kind)
	}
	l.key.hidden = slices.DeleteFunc(l.key.hidden, func(e *entry) bool { return e.line == l })
	b.lines--
	if l.back || b.isVoid(l.end) {
		return
	}
	if len(b.idle) >= max(maxSpare, b.maxIdle) {
		maps.DeleteFunc(b.idle, func(_ string, end account.Account) bool { return b.isVoid(end) })
		b.maxIdle = 2 * len(b.idle)
	}
	if b.idle == nil {
		b.idle = map[string]account.Account{}
	}
	b.idle[l.key.name] = l.end
}

// isVoid reports whether the account of a line has no effect any more, because the line has used
// no round to come.
func (b *band) isVoid(end account.Account) bool { return end.Round <= b.now }

// isEmpty reports whether the line has no tasks, and so no turn.
func (l *line) isEmpty() bool { return l.len == 0 }

// kind returns the kind of that name.
func (b *band) kind(name string) *kind {
	k := b.kinds[name]
	if k == nil {
		if b.kinds == nil {
			b.kinds = map[string]*kind{}
		}
		k = &kind{name: name}
		b.kinds[name] = k
	}
	return k
}

// leaveKind is called when a lane is no longer of a kind, which may be nil.
func (b *band) leaveKind(k *kind) {
	if k == nil {
		return
	}
	if k.lanes--; k.lanes == 0 && len(b.kinds) > spareKinds {
		delete(b.kinds, k.name)
	}
}

// lane returns the line's lane for a kind. A kind that is new to the line gets an empty lane of
// another kind, or a new lane. A search goes through all lanes; a line with more than fewLanes has
// a map of them.
func (l *line) lane(name string) *lane {
	if lane := l.byKind[name]; lane != nil {
		return lane
	}
	var free *lane
	for _, lane := range l.lanes {
		if lane.kind != nil && lane.kind.name == name {
			return lane.lane
		}
		if lane.len == 0 {
			free = lane.lane
		}
	}
	if free == nil {
		free = &lane{}
		free.entry = entry{line: l, lane: free}
		l.lanes.push(byHead{free})
	} else if l.band.leaveKind(free.kind); free.kind != nil {
		delete(l.byKind, free.kind.name)
	}
	free.kind = l.band.kind(name)
	free.kind.lanes++
	switch {
	case l.byKind != nil:
		l.byKind[name] = free
	case len(l.lanes) > fewLanes:
		l.byKind = map[string]*lane{}
		for _, lane := range l.lanes {
			if lane.kind != nil {
				l.byKind[lane.kind.name] = lane.lane
			}
		}
	}
	return free
}

// in returns the heap in which the line or lane is while it has tasks.
func (e *entry) in() *heap[turn] {
	if e.lane == nil {
		return &e.line.band.shown
	}
	return &e.lane.kind.shown
}

// turn returns the next turn.
func (e *entry) turn() turn {
	lane := e.lane
	if lane == nil {
		lane = e.line.lanes[0].lane
	}
	it := lane.head()
	if e.line.back {
		return turn{it.turn, it.place, e}
	}
	return turn{e.line.next.Round, it.place, e}
}

// count counts a task that enters (1), or leaves (-1). first reports whether it is or was the
// first.
func (e *entry) count(n int, first bool) {
	switch e.len += n; {
	case e.hidden:
	case e.len == 0:
		e.in().remove(turn{entry: e})
	case e.len == n:
		e.in().push(e.turn())
	case first && (n > 0 || e.lane == nil): // else it may stay too early: see band
		e.in().fix(e.turn())
	}
}

// show undoes hiding.
func (e *entry) show() {
	if e.hidden = false; e.len > 0 {
		e.in().push(e.turn())
	}
}

// head returns the lane's first task.
func (l *lane) head() *item {
	first := byPlace{l.inOrder.first}
	if len(l.early) > 0 && (first.item == nil || l.early[0].before(first)) {
		return l.early[0].item
	}
	return first.item
}

func (l *lane) insert(it *item) {
	this, last := byPlace{it}, byPlace{l.inOrder.last}
	if last.item != nil && this.before(last) {
		l.early.push(this)
	} else {
		l.inOrder.append(it)
	}
	l.count(1, l.head() == it)
}

func (l *lane) remove(it *item) {
	first := l.head() == it
	if it.early != 0 {
		l.early.remove(byPlace{it})
	} else {
		l.inOrder.remove(it)
	}
	l.count(-1, first)
}

// count counts a task of the lane, and so of its line.
func (l *lane) count(n int, first bool) {
	l.entry.count(n, first)
	if first && len(l.line.lanes) > 1 {
		l.line.lanes.fix(byHead{l})
	}
	l.line.entry.count(n, first)
}
