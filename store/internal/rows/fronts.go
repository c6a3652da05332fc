package rows

import (
	"maps"
	"math"
	"slices"

	"github.com/fairq/fairq/internal/account"
	"github.com/fairq/fairq/task/driver"
)

// In a queue with kinds, KeepPlace or MaxInFlightPerKey, or in which a key was ever paused or waited,
// only the front of each line is in the index of ready tasks: as many tasks as the weight of its key,
// and the first one of each further kind. The others are parked: they have no turn. So whoever takes
// passes over no task that he may not have, and to block or free a key changes few rows. The invariant,
// whenever updateFront returns, or if it has left work to other transactions when that is done:
//
//   - Those at the front of a line are the first in the order of Place, but for those of further
//     kinds, and their turns are in that order too.
//   - Those of further kinds are Shared. Their turns are none after the last one of the front. They
//     may be Takeable though others would not be: see isNext.
//   - They are Takeable unless their key is blocked. Where many keys get blocked and free again all the
//     time, with MaxInFlightPerKey, one is so only if no line of its key before its own has a task of
//     its kind: whoever takes would have to take that one first. So to block a key takes as many
//     writes as there are at one front, whatever its priorities.
//   - The others have no Round.
//
// It is kept by working out the whole front again after each change. Which turns the line has
// follows from its rows and from the task that has just left it; which tasks get these turns
// follows from their places. So no call has to know what another one has left behind.

// updateFront makes the front of a line what it must be, after a task has come to it or gone from
// it. If that has blocked or freed the key, or its line is the first of a kind now or is not any
// more, the fronts of its other lines are hidden or shown too.
//
// left is the turn that the task had, if it has gone without being taken: it stays with the line.
// used is that turn if it was taken: then no task of the line has it any more.
func (u *unit) updateFront(changed *Row, left, used turn) {
	if !u.q.frontsOnly {
		return
	}
	l, weight := changed.line(), changed.Weight
	if u.q.countsKeys {
		weight = u.key(l.Key).Weight
	}
	u.finishFront(l)
	u.firstOf(l, 0) // so that a kind that the line has no more is known to have gone
	misplaced := u.misplaced(l.Key)
	if slices.ContainsFunc(misplaced, func(r *Row) bool { return r.Priority != l.Priority }) {
		u.do(&work{What: blockFronts, Name: []byte(l.Key)})
	}
	line := u.head.readyTasks[l.Key].line(l.Priority)
	turns := []turn{left}
	for _, r := range line.front {
		turns = append(turns, r.turn())
	}
	turns = slices.DeleteFunc(turns, func(t turn) bool { return t == turn{} || t == used })
	slices.SortFunc(turns, turn.compare)
	turns = slices.Compact(turns)
	n := max(u.ahead(weight), len(turns))
	first := u.firstOf(l, n)
	for len(turns) < len(first) {
		turns = append(turns, u.frontTurn(first[len(turns)], weight, turns, used))
	}
	w := &work{What: moveFront, Name: []byte(l.Key), Place: [4]int64{num(l.Priority)}, Front: n, Turns: turns}
	kinds := []string{changed.Kind}
	for _, r := range misplaced {
		kinds = append(kinds, r.Kind)
	}
	if !u.moveFront(w, u.maxRows()-u.written, kinds...) {
		u.leaveWork(w)
	}
	if u.q.guardsFronts() && len(first) < n {
		_, err := u.v.Tasks().Scan(Range{
			Index: TaskParked, Prefixes: at(l.Key, num(l.Priority)), Lock: NoMore,
		})
		check(err)
	}
}

// staysBehind tells whether a task that is put comes behind others of its line and kind that are
// parked. Then it is parked too, and changes nothing else: the front is what it must be as long as
// any is parked.
//
// Where transactions do not wait for each other, that is what it relies on: that the last one of
// these stays parked. So it need not write the row of the key, as all do who change a front, and
// does not conflict with them. A front that is not full now, as all others of the line are at it,
// in turn relies on that there are no more (see updateFront). Elsewhere any one that is parked will
// do, and prepare has looked for one.
func (u *unit) staysBehind(at lineKind, place uint64) bool {
	if !u.q.guardsFronts() {
		return u.q.putsBehind && u.behind[at]
	}
	last := must(one(u.v.Rows(lastParkedRange(at))))
	return last != nil && last.Place < place
}

// notePut notes whether a task that was put is parked, for those that are put next.
func (u *unit) notePut(r *Row, behind bool) {
	if !u.q.putsBehind || u.q.guardsFronts() {
		return
	}
	if !behind {
		behind = u.withCurrentTurn(r).Round == 0
	}
	if len(u.q.behind) >= maxKnownKeys {
		clear(u.q.behind)
	}
	u.behind[r.lineKind()], u.q.behind[r.lineKind()] = behind, behind
}

// moveFront gives a line's turns to its first tasks, as many as w.Front, and has the first one of
// each further kind share a turn. Of the other tasks only those of some kinds, and of the kinds of
// tasks that get or lose turns or share one that is too late, can be other than they must be; no kinds
// means all. Of tasks after the first w.Front it writes n at most, and of all only frontBytes when the
// transaction is large, unless n is no limit. It tells whether that was enough.
func (u *unit) moveFront(w *work, n int, kinds ...string) (done bool) {
	l := Line{string(w.Name), int(w.Place[0])}
	defer u.countFront(l.Key)
	first := u.firstOf(l, w.Front)
	line := u.head.readyTasks[l.Key].line(l.Priority)
	if kinds == nil {
		kinds = slices.Collect(maps.Keys(line.kinds))
	}
	var last turn
	atFront, of := map[uint64]bool{}, map[string]bool{}
	changes := make([]frontChange, 0, len(first)+2)
	for i, r := range first {
		last = w.Turns[i]
		changes = append(changes, frontChange{r, last, false})
		atFront[r.ID], of[r.Kind] = true, true
		if r.Round == 0 || r.Shared {
			kinds = append(kinds, r.Kind)
		}
	}
	behind := slices.Clone(line.front)
	behind = slices.DeleteFunc(behind, func(r *Row) bool { return atFront[r.ID] })
	for _, r := range behind {
		kinds = append(kinds, r.Kind)
	}
	for _, r := range line.rest { // the last turn may be an earlier one now
		if r.Shared && r.turn().compare(last) > 0 {
			kinds = append(kinds, r.Kind)
		}
	}
	slices.Sort(kinds)
	for _, kind := range slices.Compact(kinds) {
		var rest []*Row
		for _, r := range behind {
			if r.Kind == kind {
				rest = append(rest, r)
			}
		}
		if p := line.kinds[kind]; p != nil {
			rest = append(rest, p.rest...)
		}
		slices.SortFunc(rest, byPlace)
		shared := of[kind]
		for _, r := range rest {
			switch {
			case atFront[r.ID]:
			case !shared && r.Shared && r.turn().compare(last) <= 0:
				shared = true // whoever finds it gives it the last turn: see isNext
				changes = append(changes, frontChange{r, r.turn(), true})
			case !shared:
				shared = true
				changes = append(changes, frontChange{r, last, true})
			case r.Round != 0:
				changes = append(changes, frontChange{r, turn{}, false})
			}
		}
	}
	begun := u.bytes
	for i, c := range changes {
		r := c.Row
		takeable := c.turn != turn{} && (u.shows(r) || c.shared && r.Shared && r.Takeable)
		if r.Takeable == takeable && r.turn() == c.turn && r.Shared == c.shared {
			continue
		}
		if n < math.MaxInt && u.isLarge() && u.bytes-begun >= frontBytes {
			return false
		}
		if i >= len(first) {
			if n <= 0 {
				return false
			}
			n--
		}
		r.Takeable = r.Takeable && r.Shared == c.shared // else others may wait for it
		r.setTurn(c.turn)
		r.Shared = c.shared
		u.setTakeable(r, takeable)
	}
	return true
}

// frontChange is what becomes of a task when a front moves.
type frontChange struct {
	*Row
	turn   turn
	shared bool
}

// isNext reports whether a task that was found is the next one of its key. One that shares a turn
// may have one that its line has no more, and may be Takeable though its key is blocked: to change
// it at once would be a write for each kind whenever a task of the key is taken. So whoever finds
// it does that, and looks again.
func (u *unit) isNext(r *Row) bool {
	if !r.Shared {
		return true
	}
	u.read(false, r.Key)
	shows, front := u.shows(r), u.head.readyTasks[r.Key].line(r.Priority).front
	last := front[len(front)-1].turn()
	switch {
	case shows && (r.turn() == last || u.room(1) == 0):
		return true
	case shows:
		r.setTurn(last)
		r.Shared = true
	case u.room(1) == 0:
		u.passed[r.ID] = true
		return false
	}
	u.setTakeable(r, shows)
	u.countFront(r.Key)
	return false
}

// countFront has the row of a key written whenever its front may have changed, and be there as long
// as there is a front, where a put that stays behind it relies on that: see staysBehind.
func (u *unit) countFront(key string) {
	if u.q.guardsFronts() {
		k, n := u.key(key), 0
		for _, l := range u.head.readyTasks[key].lines {
			n += len(l.front)
		}
		k.Tasks[0] += n - k.Tasks[driver.Ready]
		k.Tasks[driver.Ready] = n
		u.unsaved[k] = true
	}
}

// frontBytes is what a front may take beside a payload that is large by itself.
const frontBytes = 16 << 10

// finishFront does what the last change of a line has left to other transactions. It must be done
// before the next change: while only some of the tasks at the front have their new turns, the rows
// do not tell which turns the line has.
func (u *unit) finishFront(l Line) {
	s := u.q.settings
	for i, w := range s.Work {
		if w.What == moveFront && string(w.Name) == l.Key && w.Place[0] == num(l.Priority) {
			s.Work = slices.Delete(slices.Clone(s.Work), i, i+1)
			u.setSettings(s)
			u.moveFront(&w, math.MaxInt)
			return
		}
	}
}

// blockFronts hides or shows up to n tasks at the fronts of a key that are not as they must be.
func (u *unit) blockFronts(w *work, n int) (done bool) {
	key := string(w.Name)
	u.read(false, key)
	rows := u.misplaced(key)
	return u.each(rows[:min(n, len(rows))], func(r *Row) { u.setTakeable(r, !r.Takeable) }) && len(rows) <= n
}

// misplaced returns the tasks at the fronts of a key that are Takeable and must not be, or must be
// and are not.
func (u *unit) misplaced(key string) (all []*Row) {
	k, blocked := u.head.readyTasks[key], u.blocked(key)
	shows := func(r *Row) bool { return !blocked && (!u.q.limitsInFlight || k.first(r.Priority, r.Kind)) }
	for _, l := range k.lines {
		for _, r := range l.front {
			if r.Takeable != shows(r) {
				all = append(all, r)
			}
		}
	}
	for _, r := range k.hidden {
		if shows(r) {
			all = append(all, r)
		}
	}
	return all
}

// shows reports whether a task is Takeable if it has a turn.
func (u *unit) shows(r *Row) bool {
	return !u.blocked(r.Key) && (!u.q.limitsInFlight || u.head.readyTasks[r.Key].first(r.Priority, r.Kind))
}

// park goes through the next n tasks of a queue that has had no fronts. Of each line the first
// ready tasks, as many as may be at its front, keep their turns. The others lose them.
func (u *unit) park(w *work, n int) (done bool) {
	return u.eachOf(must(u.v.Rows(w.page(n))), n, func(r *Row) {
		if w.pass(r) {
			w.Front = 0
		}
		switch {
		case r.Round == 0 || r.hasUsedTurn():
		case r.State == driver.Ready && w.Front < u.ahead(r.Weight):
			w.Front++
		default:
			r.Takeable, r.Gap = false, false
			r.setTurn(turn{})
			u.update(r)
		}
	})
}

// ahead returns how many tasks of a line are at its front, not counting those of further kinds.
func (u *unit) ahead(weight int) int {
	if u.q.costs {
		return 1 // its share says how many there are in a round
	}
	return weight
}

// frontTurn returns the next turn of a line, for a task that comes to its front: turns are those
// that the line has already, and used is the one that it has just used, or the zero turn.
//
// The order within a round is that in which tasks became ready. But with MaxInFlightPerKey, or if
// the line has missed turns, it is that in which lines got their turns. A turn that was used late
// was missed, unless its task had been handed back: then it was used in time before. A line that has
// just used a missed turn joins no round that is being served: it gets one turn back, not two.
//
// Where tasks have costs, these are read when a task gets its turn, so a line has no other turn
// then; and the one that follows on that which was just used may be in the same round.
func (u *unit) frontTurn(r *Row, weight int, turns []turn, used turn) turn {
	l, now := r.line(), u.currentRound(r.Priority)
	var start account.Account
	missed := used.Round < now && !used.Returned
	switch {
	case !u.q.costs && missed && used != turn{}:
		start = lastOf(turns).Next(now+1, u.share(weight))
	case !u.q.costs:
		start = u.start(l, lastOf(turns), weight)
	case used != turn{} && used.Round == now:
		start = u.readAccount(l, driver.Taken).Next(now, u.share(weight))
	default:
		end := u.readAccount(l, driver.Taken)
		u.forgetAccounts(r.Priority)
		start = u.start(l, end, weight)
	}
	t := turn{Round: start.Round, Used: start.Used, Seq: r.Place}
	if u.q.costs || u.q.limitsInFlight || missed ||
		slices.ContainsFunc(turns, func(o turn) bool { return o.compare(t) >= 0 }) {
		t.Seq = u.number()
	}
	return t
}

// lastOf returns the account of a line that has these turns and no costs.
func lastOf(turns []turn) (end account.Account) {
	for _, t := range turns {
		if t.Round > end.Round {
			end = account.Account{Round: t.Round}
		}
		if t.Round == end.Round {
			end.Used++
		}
	}
	return end
}

// setTakeable makes a task one that can be taken, or hides it, and writes it.
func (u *unit) setTakeable(r *Row, takeable bool) {
	if takeable && !r.Takeable {
		u.canBeTaken(r)
	}
	r.Takeable = takeable
	u.update(r)
	u.readAhead.move(r)
}
