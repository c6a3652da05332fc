package rows

import (
	"cmp"
	"slices"
	"time"
)

// cache is what the rules know of a queue as long as nobody else changes it.
type cache struct {
	lasts map[Line]last
	alive map[uint64]bool // members that are still there, by number
	taken map[uint64]*Row // by id: tasks that were taken here, as they are in the database
}

// kept is what a process remembers of the last rounds of lines in a database that does not tell
// whether others have changed them. They are wrong in one way only: others may have put tasks of
// the same key. Then the key gets a turn from each process in the same rounds, until it is looked
// up again, which is after keepFor. If tasks were removed, nothing is kept.
type kept struct {
	lasts   map[Line]last
	removed uint64
	until   time.Time
}

const keepFor = time.Second

// recall makes what was kept the cache of the head.
func (u *unit) recall() {
	k := &u.q.kept
	k.age()
	if k.lasts == nil || k.removed != u.head.Removed {
		*k = kept{map[Line]last{}, u.head.Removed, time.Now().Add(keepFor)}
	}
	u.head.lasts = k.lasts
}

// age forgets what was kept for too long.
func (k *kept) age() {
	if time.Now().After(k.until) {
		k.lasts = nil
	}
}

// removes says that a ready task is removed.
func (u *unit) removes() {
	u.head.Removed++
	u.saves = true
	u.q.kept.removed = u.head.Removed
}

// last is the last round of a line, and how many tasks of it that has; a round that is not after
// the one being served means that the line has no turn ahead.
type last struct {
	round uint64
	tasks int
}

// mostLasts is how many lines are remembered at most.
const mostLasts = 1 << 16

// current returns the round being served, 0 if none was ever.
func (u *unit) current(priority int) uint64 { return u.head.Rounds[priority] }

// last returns that of a line.
func (u *unit) last(l Line) last {
	known, ok := u.head.lasts[l]
	if !ok {
		known.round, known.tasks = must2(u.v.Last(l, u.current(l.Priority)))
		u.setLast(l, known)
	}
	return known
}

func must2[A, B any](a A, b B, err error) (A, B) {
	check(err)
	return a, b
}

func (u *unit) setLast(l Line, known last) {
	if len(u.head.lasts) >= mostLasts {
		clear(u.head.lasts)
	}
	u.head.lasts[l] = known
}

// nextRound gives a line its next turn, and returns its round.
func (u *unit) nextRound(l Line, weight int) uint64 {
	end := u.next(l, u.last(l), weight)
	u.setLast(l, end)
	return end.round
}

// next returns what the last round of a line is after one more turn.
func (u *unit) next(l Line, end last, weight int) last {
	switch now := u.current(l.Priority); {
	case end.round <= now && u.joins(l, weight):
		return last{now, 0}
	case end.round <= now:
		return last{now + 1, 1}
	case end.tasks < weight:
		return last{end.round, end.tasks + 1}
	}
	return last{end.round + 1, 1}
}

// joins tells whether a line that has no turn ahead gets one in the round being served.
func (u *unit) joins(l Line, weight int) bool {
	now := u.current(l.Priority)
	if !u.q.thisTurn || now == 0 || must(u.v.ServedIn(l)) >= now {
		return false
	}
	_, tasks := must2(u.v.Last(l, now-1))
	return tasks < weight
}

// served says that a task of a round was taken.
func (u *unit) served(r *Row) {
	if r.Round > u.current(r.Priority) {
		u.head.Rounds[r.Priority] = r.Round
		u.saves = true
	}
	if u.q.thisTurn && r.Round == u.current(r.Priority) {
		check(u.v.Served().Put(&Served{r.line(), r.Round}))
	}
}

// newTurn puts a task behind all others of its key, unless it keeps its place.
func (u *unit) newTurn(r *Row) {
	if !u.q.settings.KeepPlace {
		r.Round, r.Seq, r.Place, r.Gap = 0, 0, 0, false
	}
	r.Returned = false
	if !u.q.reserves {
		r.Round = 0
	}
}

// reprioritize gives a task that is taken another priority, and a place behind all of its key.
func (u *unit) reprioritize(r *Row, priority int) {
	delete(u.head.lasts, r.line())
	r.Priority, r.Round, r.Seq, r.Place, r.Gap = priority, 0, 0, 0, false
	if u.q.settings.KeepPlace {
		r.Place = u.number()
	}
	if u.q.reserves {
		u.turn(r)
	}
}

// place gives a task that becomes ready its place in the order. It is not written yet; when it is,
// refile is to be called.
func (u *unit) place(r *Row) {
	if r.Place == 0 {
		r.Place = u.number()
	}
	if r.Round == 0 && !u.q.fronted {
		u.turn(r)
	}
	r.Takeable = r.Round != 0 && !u.q.fronted && !u.paused(r.Key)
	if r.Takeable {
		u.ahead = ahead{}
		u.canBeTaken(r)
	}
}

// turn gives a task a turn.
func (u *unit) turn(r *Row) {
	r.Round = u.nextRound(r.line(), r.Weight)
	if r.Seq = r.Place; r.Seq == 0 {
		r.Seq = u.number()
	}
}

// free remembers that a line has a turn that no task has any more, the first one if there are
// several.
func (u *unit) free(r *Row) {
	if u.gaps == nil {
		u.gaps = map[Line]turn{}
	}
	if first, ok := u.gaps[r.line()]; !ok || r.turn().compare(first) < 0 {
		u.gaps[r.line()] = r.turn()
	}
}

// closeGaps gives the free turns to the tasks behind them. Others of the line may have had a turn
// after one that was returned, and may be handed back. So that one is moved to the end of the round
// being served, or what gets it would come before these.
func (u *unit) closeGaps() {
	for l, first := range u.gaps {
		delete(u.gaps, l)
		free := first
		if first.returned {
			free = turn{round: u.current(l.Priority)}
		}
		u.closeGap(l, first, free)
	}
}

// closeGap gives the first task of a line after a turn a free one, if its own is later. When it is
// taken, the next one gets an earlier turn too, and so on: to move them all up at once would be a
// write for each.
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
	delete(u.head.lasts, l)
	u.ahead = ahead{}
	u.update(next)
}

// turn is a place in the order.
type turn struct {
	round, seq uint64
	returned   bool
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
	u.saves = true
	if u.head.PausedKeys--; paused {
		u.head.PausedKeys += 2
	}
	u.ahead = ahead{}
	switch {
	case paused:
		check(u.v.Hide(key))
		delete(u.lines, key)
	case u.q.limited && u.blocked(key):
	default:
		u.show(key)
	}
}

// show makes the ready tasks of a key ones that can be taken again. The key has the next turn if it
// has missed some, but one such turn only: the others, and what comes behind them, get new ones.
// What was handed back has not missed its turn, and keeps it; if it did not, it would come after
// those of its key that are still to be handed back.
func (u *unit) show(key string) {
	missed := map[int]int{}
	var line Line
	var before, after turn // of the last one, which others may share: what it was, and is
	_, rows, err := u.v.Lines([]string{key}, 1, false)
	check(err)
	rows = slices.DeleteFunc(rows, func(r *Row) bool { return r.Round == 0 })
	slices.SortFunc(rows, inOrder)
	for _, r := range rows {
		l, was := r.line(), r.turn()
		if l != line || was != before {
			after = was
			if !u.q.settings.KeepPlace && !r.Returned && (r.Round <= u.current(l.Priority) || missed[l.Priority] > 1) {
				if missed[l.Priority]++; missed[l.Priority] == 2 {
					u.setLast(l, last{})
				}
				if missed[l.Priority] > 1 {
					after.round = u.nextRound(l, r.Weight)
				}
			}
		}
		line, before, r.Round = l, was, after.round
		u.reveal(r, true)
	}
}
