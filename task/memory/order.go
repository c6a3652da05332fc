package memory

import (
	"slices"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task/driver"
)

// A band holds the ready tasks of one priority. The rounds are those of a fairq.Queue; what is in
// it are not tasks but turns of keys, and a turn is used by the oldest task of its key that can be
// taken.
//
// If there is none, because the key is busy or paused or the taker does not want such tasks, the
// turn is owed to the key: it is the first to be served as soon as it can be. A key that is owed
// such a turn gives up those that come after it, until that one is used. So a key that has to wait
// costs nothing while it does, and comes back with one turn, not with all that it has missed. Turns
// are numbered as they are delivered, and owed turns are used in that order. A task that is handed
// back untried is owed the turn by which it was taken.
//
// The invariants, whenever the lock is free:
//
//   - A line with tasks has at least one turn, ahead or owed, so next finds each task that can be
//     taken. It has no more turns than tasks.
//   - A line with tasks is shown by its band, and a lane with tasks by its kind, unless it is hidden:
//     a taker has come upon it while its key was blocked, and the key still is. So what it costs to
//     block a key does not depend on how many lines and lanes it has.
type band struct {
	queue    *queue
	priority int
	turns    fairq.Queue[string, *line]
	turn     uint64 // number of the last turn delivered
	lines    int
	kinds    map[string]*kind
	shown    heap[*line] // those with tasks that are not hidden, the one that is owed the first turn first
	weight   int         // of the key that is given a turn
	cost     uint32      // of the task that it is given for

	// With MaxInFlightPerKey or KeyRate, a line has no more turns ahead than its weight, so that a
	// busy key has none to give up. The order within a round is then that in which the keys got into line.
	// If costs are learned it is limited too, so that a turn is charged what is known when it is
	// given. Otherwise each ready task has a turn. If tasks have costs, a limited line has one turn
	// ahead, whatever its weight: what the key has left of its share says when the next one is.
	limited bool
}

// spareKinds is how many kinds a band remembers that it has no tasks of.
const spareKinds = 8

// fewLanes is how many lanes of a line are not worth a map.
const fewLanes = 8

// kind is what a band knows of a kind of tasks.
type kind struct {
	name  string
	lanes int
	shown heap[*lane] // as band.shown
}

// line is the ready tasks of a key in a band.
type line struct {
	band       *band
	key        *keyState
	lanes      heap[byHead] // the one with the oldest task is first, those that are empty are last
	len        int
	turnsAhead int      // turns in band.turns
	owed       []uint64 // numbers of the turns owed, ascending
	missed     uint64   // the one of these that found no task that could be taken; 0 if there is none
	index      int32    // in band.shown, or in key.hidden
	isHidden   bool
	hidden     heap[*lane] // in no order; if there are any, the line is hidden too

	byKind map[string]*lane // all lanes, nil if there are few

	one     lane      // most lines need but one, and so it is near
	laneBuf [1]byHead // the first array of lanes
}

// lane is the tasks of one kind in a line, in the order of their places.
type lane struct {
	line    *line
	kind    *kind         // nil if it has had no task yet
	inOrder list          // those that came in order
	early   heap[byPlace] // those that came after one with a later place
	len     int
	index   int32 // in kind.shown, or in line.hidden
	rank    int32 // in line.lanes

	isHidden bool
}

func (l *line) before(other *line) bool {
	return len(l.owed) > 0 && (len(other.owed) == 0 || l.owed[0] < other.owed[0])
}
func (l *line) at() *int32 { return &l.index }

func (l *lane) before(other *lane) bool { return l.line.before(other.line) }
func (l *lane) at() *int32              { return &l.index }

// in returns where the line is while it has tasks.
func (l *line) in() *heap[*line] {
	if l.isHidden {
		return &l.key.hidden
	}
	return &l.band.shown
}

// in returns where the lane is while it has tasks.
func (l *lane) in() *heap[*lane] {
	if l.isHidden {
		return &l.line.hidden
	}
	return &l.kind.shown
}

type byHead struct{ *lane }

func (a byHead) before(b byHead) bool {
	return a.len > 0 && (b.len == 0 || a.head().place < b.head().place)
}
func (a byHead) at() *int32 { return &a.rank }

type byPlace struct{ *item }

func (a byPlace) before(b byPlace) bool { return a.place < b.place }
func (a byPlace) at() *int32            { return &a.early }

// next takes out the first task that the filter passes, nil if there is none, and tells its line.
// Its turn is the one it is taken by.
func (b *band) next(f *driver.Filter) (*item, *line) {
	first := b.first(f)
	if first == nil {
		return nil, nil
	}
	if len(first.owed) > 0 {
		turn := first.owed[0]
		first.owed = first.owed[1:]
		if turn == first.missed {
			first.missed = 0
		}
		first.reorder()
		return first.take(first.oldest(f), turn), first
	}
	for {
		// There is a turn: see first, and line.fillTurns. With one turn ahead the key's next one, which
		// take asks for, must follow on this one, so that is popped after it.
		var l *line
		ahead := b.turns.SettleCosts
		if ahead {
			_, l, _ = b.turns.Peek()
		} else {
			_, l, _ = b.turns.Pop()
		}
		l.turnsAhead--
		b.turn++
		var it *item
		if lane := l.oldest(f); lane != nil && !l.key.blocked {
			it = l.take(lane, b.turn)
		}
		if ahead {
			b.turns.Pop()
		}
		if it != nil {
			return it, l
		}
		if l.missed == 0 {
			l.missed = b.turn
			l.owe(b.turn)
		}
	}
}

// first returns the line that is owed the first turn, of those with a task that can be taken; one of
// these if none is owed any, and nil if there is none.
func (b *band) first(f *driver.Filter) *line {
	if f.Kinds == nil {
		for len(b.shown) > 0 {
			if l := b.shown[0]; !l.hide() {
				return l
			}
		}
		return nil
	}
	var first *line
	for _, name := range f.Kinds {
		k := b.kinds[name]
		for k != nil && len(k.shown) > 0 {
			lane := k.shown[0]
			if lane.line.hide() {
				lane.hide()
				continue
			}
			if first == nil || lane.line.before(first) {
				first = lane.line
			}
			if len(b.shown[0].owed) == 0 {
				return first // for none is owed a turn
			}
			break
		}
	}
	return first
}

// hide hides the line, if its key is blocked, and returns whether that is so.
func (l *line) hide() bool {
	if l.key.blocked && !l.isHidden {
		l.band.shown.remove(l)
		l.isHidden = true
		l.key.hidden.push(l)
	}
	return l.key.blocked
}

// hide hides a lane of a hidden line.
func (l *lane) hide() {
	l.kind.shown.remove(l)
	l.isHidden = true
	l.line.hidden.push(l)
}

// show shows the line and its lanes again.
func (l *line) show() {
	for len(l.hidden) > 0 {
		lane := l.hidden[len(l.hidden)-1]
		l.hidden.remove(lane)
		lane.isHidden = false
		lane.kind.shown.push(lane)
	}
	l.key.hidden.remove(l)
	l.isHidden = false
	l.band.shown.push(l)
}

// newLine returns an empty line.
func (b *band) newLine(k *keyState) *line {
	l := &line{band: b, key: k}
	l.one.line = l
	l.lanes = l.laneBuf[:0]
	l.lanes.push(byHead{&l.one})
	return l
}

// isEmpty tells whether the line has no tasks, and so no turns.
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

// leave says that a lane is of this kind no more. It need not have been of any.
func (b *band) leave(k *kind) {
	if k == nil {
		return
	}
	if k.lanes--; k.lanes == 0 && len(b.kinds) > spareKinds {
		delete(b.kinds, k.name)
	}
}

// add puts a task into the line. If the number of a turn is in the task, it is owed that one.
func (l *line) add(it *item) {
	lane := &l.one
	if lane.kind == nil || lane.kind.name != it.kind { // as a rule it is that one
		lane = l.lane(it.kind)
	}
	lane.insert(it)
	l.count(lane, 1)
	switch {
	case it.turn != 0:
		l.owe(it.turn)
		it.turn = 0
	case l.band.limited:
		l.fillTurns()
	case l.missed == 0:
		l.addTurn(it.cost)
	}
}

// remove takes a task out of the line that does not leave by a turn.
func (l *line) remove(it *item) {
	lane := l.lane(it.kind)
	lane.remove(it)
	l.count(lane, -1)
	l.giveUp(l.len)
}

// take takes out the first task of a lane.
func (l *line) take(lane *lane, turn uint64) *item {
	it := lane.head()
	lane.remove(it)
	l.count(lane, -1)
	it.turn = turn
	if l.turnsAhead == 0 || l.band.limited {
		l.fillTurns()
	}
	return it
}

// oldest returns the lane whose first task is the oldest that the filter passes, nil if there is
// none.
func (l *line) oldest(f *driver.Filter) *lane {
	if first := l.lanes[0].lane; first.len > 0 && f.PassesKind(first.kind.name) { // as a rule
		return first
	}
	if len(f.Kinds) >= len(l.byKind) {
		return l.older(0, nil, f)
	}
	var first *lane
	for _, name := range f.Kinds {
		if lane := l.byKind[name]; lane != nil && lane.len > 0 && (first == nil || byHead{lane}.before(byHead{first})) {
			first = lane
		}
	}
	return first
}

// older returns that too, or nil, if it is older than the given one and at that place of the heap
// or below it. What is below a lane that the filter passes is younger.
func (l *line) older(i int, than *lane, f *driver.Filter) *lane {
	if i >= len(l.lanes) || l.lanes[i].len == 0 || than != nil && !l.lanes[i].before(byHead{than}) {
		return than
	}
	if lane := l.lanes[i].lane; f.PassesKind(lane.kind.name) {
		return lane
	}
	return l.older(2*i+2, l.older(2*i+1, than, f), f)
}

// count counts a task that gets into a lane (1), or leaves it (-1).
func (l *line) count(lane *lane, n int) {
	lane.len += n
	l.len += n
	if len(l.lanes) > 1 {
		l.lanes.fix(byHead{lane})
	}
	if lane.len != 0 && lane.len != n {
		return // it was there, and is
	}
	lane.in().index(lane, lane.len > 0)
	lane.isHidden = lane.isHidden && lane.len > 0
	l.in().index(l, l.len > 0)
	l.isHidden = l.isHidden && l.len > 0
}

// addTurn gives the line a turn for a task of that cost.
func (l *line) addTurn(cost uint32) {
	b := l.band
	if l.key.weight != 1 && b.turns.Weight == nil {
		b.turns.Weight = func(string) int { return b.weight }
	}
	b.weight, b.cost = l.key.weight, cost
	b.turns.Push(l.key.name, l)
	l.turnsAhead++
}

// fillTurns gives the line the turns that it must have: a line with tasks has at least one, ahead
// or owed.
func (l *line) fillTurns() {
	if l.missed != 0 {
		return
	}
	want := 1
	if l.band.limited && !l.band.turns.SettleCosts {
		want = l.key.weight
	}
	for want = min(want, l.len-len(l.owed)); l.turnsAhead < want; {
		first := l.lanes[0].head()
		first.cost = l.band.queue.price(first)
		l.addTurn(first.cost)
	}
}

// price returns what a task costs that gets a turn now.
func (q *queue) price(it *item) uint32 {
	if it.learned {
		for _, n := range q.notifiers {
			if cost := n.LearnedCost(it.key.name); cost > 0 {
				return uint32(cost)
			}
		}
	}
	return it.cost
}

// owe records that the line is owed a turn that has been delivered.
func (l *line) owe(turn uint64) {
	i, _ := slices.BinarySearch(l.owed, turn)
	l.owed = slices.Insert(l.owed, i, turn)
	l.reorder()
}

// giveUp takes the last turns from the line, until it has no more than n.
func (l *line) giveUp(n int) {
	for l.turnsAhead+len(l.owed) > n {
		if l.turnsAhead > 0 {
			l.band.turns.RemoveNewest(l.key.name)
			l.turnsAhead--
			continue
		}
		last := len(l.owed) - 1
		if l.owed[last] == l.missed {
			l.missed = 0
		}
		l.owed = l.owed[:last]
		l.reorder()
	}
}

// reorder has the line and its lanes in the places that go with the turns that it is owed.
func (l *line) reorder() {
	if l.len == 0 {
		return
	}
	l.in().fix(l)
	for _, lane := range l.lanes {
		if lane.len > 0 {
			lane.in().fix(lane.lane)
		}
	}
}

// lane returns the line's lane for a kind. To find one for a kind that is new to the line it looks
// at all lanes.
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
		free = &lane{line: l}
		l.lanes.push(byHead{free})
	} else if l.band.leave(free.kind); free.kind != nil {
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

// head returns the lane's first task.
func (l *lane) head() *item {
	first := l.inOrder.first
	if len(l.early) > 0 && (first == nil || l.early[0].place < first.place) {
		return l.early[0].item
	}
	return first
}

func (l *lane) insert(it *item) {
	if last := l.inOrder.last; last != nil && it.place < last.place {
		l.early.push(byPlace{it})
	} else {
		l.inOrder.append(it)
	}
}

func (l *lane) remove(it *item) {
	if it.early != 0 {
		l.early.remove(byPlace{it})
	} else {
		l.inOrder.remove(it)
	}
}
