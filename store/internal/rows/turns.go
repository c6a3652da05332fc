package rows

import (
	"cmp"
	"slices"
	"time"

	"github.com/fairq/fairq/task/driver"
)

// cache is what the rules know of a queue as long as nobody else has written to the database.
type cache struct {
	lastRounds map[Line]lastRound
	alive      map[uint64]bool // consumers of this process that are still there, by number
	taken      map[uint64]*Row // by id: tasks that were taken here, as they are in the database
}

// roundCache is what a process remembers of the last rounds of lines, from one transaction to the
// next, in a database that does not tell whether others have changed them. So they may be wrong,
// but in one way only: others may have put tasks of the same line since. Then the line gets a turn
// from each process in the same rounds, until it is looked up again, after keepRounds at the
// latest. They are never too great, which would delay the key: whoever removes ready tasks changes
// Head.Removed, and then all is forgotten.
type roundCache struct {
	lastRounds map[Line]lastRound
	removed    uint64
	until      time.Time
}

const keepRounds = time.Second

// useRoundCache has this transaction use the last rounds that are remembered.
func (u *unit) useRoundCache() {
	k := &u.q.roundCache
	k.expire()
	if k.lastRounds == nil || k.removed != u.head.Removed {
		*k = roundCache{map[Line]lastRound{}, u.head.Removed, time.Now().Add(keepRounds)}
	}
	u.head.lastRounds = k.lastRounds
}

// expire forgets what was remembered for too long.
func (k *roundCache) expire() {
	if time.Now().After(k.until) {
		k.lastRounds = nil
	}
}

// noteRemoval lets all processes know that a ready task is removed, so last rounds may be smaller.
func (u *unit) noteRemoval() {
	u.head.Removed++
	u.headChanged = true
	u.q.roundCache.removed = u.head.Removed
}

// lastRound is the last round of a line, and how many of its tasks are in it. If that is not after
// the round being served, the line has no turn ahead.
type lastRound struct {
	round uint64
	tasks int
}

// maxLastRounds is of how many lines the last round is remembered at most.
const maxLastRounds = 1 << 16

// currentRound returns the round being served, 0 if none was ever.
func (u *unit) currentRound(priority int) uint64 { return u.head.Rounds[priority] }

// lastRound returns the last round of a line.
func (u *unit) lastRound(l Line) lastRound {
	known, ok := u.head.lastRounds[l]
	if !ok {
		known.round, known.tasks = must2(u.v.LastRound(l, u.currentRound(l.Priority)))
		u.setLastRound(l, known)
	}
	return known
}

func must2[A, B any](a A, b B, err error) (A, B) {
	check(err)
	return a, b
}

func (u *unit) setLastRound(l Line, known lastRound) {
	if len(u.head.lastRounds) >= maxLastRounds {
		clear(u.head.lastRounds)
	}
	u.head.lastRounds[l] = known
}

// nextRound gives a line its next turn, and returns its round.
func (u *unit) nextRound(l Line, weight int) uint64 {
	end := u.addTurn(l, u.lastRound(l), weight)
	u.setLastRound(l, end)
	return end.round
}

// addTurn returns what the last round of a line is after one more turn. This is the rule of fair
// rounds: max(the round being served, the last round of the line) + 1, or the last round itself as
// long as the line has fewer tasks in it than its weight.
func (u *unit) addTurn(l Line, end lastRound, weight int) lastRound {
	switch now := u.currentRound(l.Priority); {
	case end.round <= now && u.joinsRound(l, weight):
		return lastRound{now, 0}
	case end.round <= now:
		return lastRound{now + 1, 1}
	case end.tasks < weight:
		return lastRound{end.round, end.tasks + 1}
	}
	return lastRound{end.round + 1, 1}
}

// joinsRound tells whether a line that has no turn ahead gets one in the round being served: with
// ThisRound, if it was not served in it, and has fewer tasks in it than its weight.
func (u *unit) joinsRound(l Line, weight int) bool {
	now := u.currentRound(l.Priority)
	if !u.q.newcomersJoin || now == 0 || must(u.v.ServedIn(l)) >= now {
		return false
	}
	_, tasks := must2(u.v.LastRound(l, now-1))
	return tasks < weight
}

// markServed notes that a task is taken: its round is the one being served, unless a later one is.
func (u *unit) markServed(r *Row) {
	if r.Round > u.currentRound(r.Priority) {
		u.head.Rounds[r.Priority] = r.Round
		u.headChanged = true
	}
	if u.q.newcomersJoin && r.Round == u.currentRound(r.Priority) {
		check(u.v.Served().Put(&Served{r.line(), r.Round}))
	}
}

// newTurn takes from a task its turn, and unless it keeps it its place, so that it gets new ones
// behind all others of its key when it becomes ready.
func (u *unit) newTurn(r *Row) {
	if !u.q.settings.KeepPlace {
		r.Round, r.Seq, r.Place, r.Gap = 0, 0, 0, false
	}
	r.Returned = false
	if !u.q.turnAtPut {
		r.Round = 0
	}
}

// reprioritize gives a task that is taken another priority, and a place behind all of its line.
func (u *unit) reprioritize(r *Row, priority int) {
	delete(u.head.lastRounds, r.line())
	r.Priority, r.Round, r.Seq, r.Place, r.Gap = priority, 0, 0, 0, false
	if u.q.settings.KeepPlace {
		r.Place = u.number()
	}
	if u.q.turnAtPut {
		u.giveTurn(r)
	}
}

// place gives a task that becomes ready its place in the order, and its turn unless there are
// fronts. The caller writes it, and then calls updateFront.
func (u *unit) place(r *Row) {
	if r.Place == 0 {
		r.Place = u.number()
	}
	if r.Round == 0 && !u.q.frontsOnly {
		u.giveTurn(r)
	}
	r.Takeable = r.Round != 0 && !u.q.frontsOnly && !u.paused(r.Key)
	if r.Takeable {
		u.readAhead = readAhead{}
		u.canBeTaken(r)
	}
}

// giveTurn gives a task the next turn of its line.
func (u *unit) giveTurn(r *Row) {
	r.Round = u.nextRound(r.line(), r.Weight)
	if r.Seq = r.Place; r.Seq == 0 {
		r.Seq = u.number()
	}
}

// leaveGap remembers that a line has a turn that no task has any more. Of several it remembers the
// first.
func (u *unit) leaveGap(r *Row) {
	if u.gaps == nil {
		u.gaps = map[Line]turn{}
	}
	if first, ok := u.gaps[r.line()]; !ok || r.turn().compare(first) < 0 {
		u.gaps[r.line()] = r.turn()
	}
}

// closeGaps gives the turns that no task has any more to the tasks behind them. So a key that
// deletes tasks keeps its early turns, and gives up its last ones.
//
// A turn that was handed back is given on at the end of the round being served: others of the line
// may have been taken after it, and may be handed back later, and these must come first.
func (u *unit) closeGaps() {
	for l, first := range u.gaps {
		delete(u.gaps, l)
		free := first
		if first.returned {
			free = turn{round: u.currentRound(l.Priority)}
		}
		u.closeGap(l, first, free)
	}
}

// closeGap gives a free turn to the first task of a line after another turn, if its own is later.
// That leaves a gap behind it, which is closed in the same way when the task is taken (Row.Gap): to
// move all tasks of the line up at once would be a write for each.
func (u *unit) closeGap(l Line, after, free turn) {
	next := must(u.v.Next(l, after.round, after.seq))
	if next == nil || next.Round < free.round || next.Round == free.round && free.seq == 0 {
		return
	}
	if free.seq == 0 {
		free.seq = u.number()
	}
	next.setTurn(free)
	next.Gap = true
	delete(u.head.lastRounds, l)
	u.readAhead = readAhead{}
	u.update(next)
}

// turn is the right of a line to have a task taken in a round, with its place in the round.
type turn struct {
	round, seq uint64
	returned   bool // it was used before, and handed back
}

func (r *Row) turn() turn { return turn{r.Round, r.Seq, r.Returned} }

func (r *Row) setTurn(t turn) { r.Round, r.Seq, r.Returned = t.round, t.seq, t.returned }

func (t turn) compare(other turn) int {
	return cmp.Or(cmp.Compare(t.round, other.round), cmp.Compare(t.seq, other.seq))
}

// pauseKey stops or resumes the taking of tasks of a key.
func (u *unit) pauseKey(key string, paused bool) {
	k := u.key(key)
	if k.Paused == paused {
		return
	}
	k.Paused = paused
	u.unsaved[k] = true
	u.headChanged = true
	if u.head.PausedKeys--; paused {
		u.head.PausedKeys += 2
	}
	u.readAhead = readAhead{}
	switch {
	case paused:
		u.do(&work{What: hideKey, Name: []byte(key)})
		delete(u.readyTasks, key)
	case u.q.limitsInFlight && u.blocked(key):
	default:
		u.do(&work{What: showKey, Name: []byte(key)})
	}
}

// hide hides up to n ready tasks of a key that is paused.
func (u *unit) hide(w *work, n int) int {
	if !u.limited() || u.q.frontsOnly {
		check(u.v.Hide(string(w.Name)))
		return 0
	}
	rows := u.nextTurns(w, n)
	for _, r := range rows {
		if r.Takeable {
			u.setTakeable(r, false)
		}
	}
	return len(rows)
}

// nextTurns returns the next n tasks of a key that have turns, in the order of these. If only the
// fronts of lines have some, or any number may be written, it returns all.
func (u *unit) nextTurns(w *work, n int) []*Row {
	if !u.limited() || u.q.frontsOnly {
		_, rows, err := u.v.Lines([]string{string(w.Name)}, 1, false)
		check(err)
		rows = slices.DeleteFunc(rows, func(r *Row) bool { return r.Round == 0 })
		slices.SortFunc(rows, inOrder)
		return rows
	}
	from := make(Tuple, len(w.Place))
	for i, n := range w.Place {
		from[i] = n
	}
	rows := must(u.v.Rows(Range{
		Index: TaskLine, Prefixes: at(string(w.Name)), From: from, Limit: n,
		Only: Only{State: driver.Ready},
	}))
	if len(rows) > 0 {
		last := rows[len(rows)-1]
		w.Place = [4]int64{num(last.Priority), num(last.Round), num(last.Seq), num(last.Place + 1)}
	}
	return rows
}

// show makes up to n ready tasks of a key that is not paused any more ones that can be taken. If a
// line has missed turns meanwhile, it keeps the first of them, and is served next. The other missed
// ones, and all behind them, become new turns: no line gets back more than one. A task that was
// handed back has not missed its turn, and keeps it: else it would come after those of its line
// that are still to be handed back.
//
// What was done before is w.Missed, how many turns of the line are missed or behind the second
// missed one, and with w.Last and w.Tasks the last round that the line has been given.
func (u *unit) show(w *work, n int) int {
	line := Line{string(w.Name), int(w.Place[0])}
	if w.Missed > 1 {
		u.setLastRound(line, lastRound{w.Last, w.Tasks})
	}
	rows := u.nextTurns(w, n)
	var before, after turn // of the last row, which others may share: what it was, and is now
	for _, r := range rows {
		if r.Takeable {
			continue // it has got another turn already
		}
		l, was := r.line(), r.turn()
		if l != line {
			w.Missed = 0
		}
		if l != line || was != before {
			after = was
			late := r.Round <= u.currentRound(l.Priority) || w.Missed > 1
			if late && !r.Returned && !u.q.settings.KeepPlace {
				w.Missed++
				if w.Missed == 2 { // from here on all turns of the line are new
					u.setLastRound(l, lastRound{})
				}
				if w.Missed >= 2 {
					after.round = u.nextRound(l, r.Weight)
				}
			}
		}
		line, before, r.Round = l, was, after.round
		u.setTakeable(r, true)
	}
	if w.Missed > 1 {
		end := u.lastRound(line)
		w.Last, w.Tasks = end.round, end.tasks
	}
	if u.q.frontsOnly {
		return 0 // these were all
	}
	return len(rows)
}
