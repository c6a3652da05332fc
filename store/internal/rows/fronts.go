package rows

import (
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
//   - Those of further kinds share a turn. Their turns are none after the last one of the front. They
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
	u.readFronts(u.readsPayload(), weight, changed.lineKind())
	if u.q.countsKeys {
		weight = u.key(l.Key).Weight
	}
	u.finishFront(l)
	turns := []turn{left}
	front, _, _ := u.line(l)
	for _, r := range front {
		turns = append(turns, r.turn())
	}
	latest := slices.MaxFunc(append(turns, used), turn.compare)
	turns = slices.DeleteFunc(turns, func(t turn) bool { return t == turn{} || t == used })
	slices.SortFunc(turns, turn.compare)
	turns = slices.Compact(turns)
	n := max(u.ahead(weight), len(turns))
	first := u.firstOf(l, n)
	for len(turns) < len(first) {
		turns = append(turns, u.frontTurn(first[len(turns)], weight, turns, used))
	}
	w := &work{
		What: moveFront, Name: []byte(l.Key), Place: [4]int64{num(l.Priority)},
		Front: n, Turns: turns, Kind: []byte(changed.Kind),
	}
	w.Late = len(first) > 0 && turns[len(first)-1].compare(latest) < 0
	if !u.moveFront(w, changed, u.maxRows()-u.written) {
		u.leaveWork(w)
	}
	if u.q.limitsInFlight {
		u.updateShown(changed)
	}
	if u.q.guardsFronts() && len(first) < n {
		_, err := u.v.Tasks().Scan(Range{
			Index: TaskPlace, Prefixes: at(l.Key, num(l.Priority)), Lock: NoMore,
		})
		check(err)
	}
}

// updateShown hides or shows fronts of other lines, if the key of a task that has changed is
// blocked now or is not any more, or its line is the first of its kind or is not any more.
func (u *unit) updateShown(changed *Row) {
	key, at := changed.Key, changed.lineKind()
	if wrong := shownSpan(key, u.blocked(key)); len(u.firsts(wrong, 1).rows) > 0 {
		u.do(&work{What: blockFronts, Name: []byte(key)})
	}
	front, rest, _ := u.line(at.Line)
	isOther := func(r *Row) bool { return r.Kind == at.kind && r.ID != changed.ID }
	if slices.ContainsFunc(front, isOther) || slices.ContainsFunc(rest, isOther) {
		return // there were tasks of its kind in the line before, and are now
	}
	var next *Row // in another line
	switch here := u.firsts(kindSpan(at), 2).rows; {
	case len(here) == 0:
		next = u.firstOfKind(key, at.kind)
	case len(here) == 1 && here[0].ID == changed.ID && !u.isAlone(changed):
		if all := u.firsts(ofKind(key, at.kind), 2).rows; all[0].ID == changed.ID && len(all) > 1 {
			next = all[1]
		}
	}
	if next != nil && next.Priority > changed.Priority {
		u.do(&work{
			What: showKind, Name: []byte(key), Place: [4]int64{num(next.Priority)}, Kind: []byte(at.kind),
		})
	}
}

// isAlone reports whether a task is known to be the only ready one of its key.
func (u *unit) isAlone(r *Row) bool {
	all := u.firsts(keySpan(r.Key), 1)
	return !all.more && len(all.rows) == 1 && all.rows[0].ID == r.ID
}

// staysBehind reports whether a task that is put comes behind others of its line and kind that are
// parked. Then it is parked too, and changes nothing else: the front is what it must be as long as
// any is parked.
//
// Where transactions do not wait for each other, that is what it relies on: that the last one of
// these stays parked. So it need not write the row of the key, as all do who change a front, and
// does not conflict with them. A front that is not full now, as all others of the line are at it,
// in turn relies on that there are no more (see updateFront). Elsewhere any one that is parked
// will do, and prepare has looked for one.
func (u *unit) staysBehind(at lineKind, place uint64) bool {
	if !u.q.guardsFronts() {
		return u.q.putsBehind && (u.behind[at] || u.head.hasParked(at))
	}
	last := must(one(u.v.Rows(lastParkedRange(ForShare, at))))
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
// each further kind share a turn. Of the other tasks only those of w.Kind, as changed is, those
// that lose their turns, and with w.Late those that share one which is too late, can be other than
// they must be: of a kind that has a task at the front none shares a turn. Of tasks after the
// first w.Front it writes n at most, and of all only frontBytes when the transaction is large,
// unless n is no limit. It reports whether that was enough. If it was not, it is called again,
// without changed.
func (u *unit) moveFront(w *work, changed *Row, n int) (done bool) {
	l, kind := Line{string(w.Name), int(w.Place[0])}, string(w.Kind)
	defer u.countFront(l)
	first := u.firstOf(l, w.Front)
	front, rest, more := u.line(l)
	var last turn
	end := uint64(0) // the place of the last one of these
	for i, r := range first {
		last, end = w.Turns[i], r.Place
	}
	of := map[string]bool{} // kinds whose first task is known to be at the front or to share a turn
	has := func(kind string) bool {
		of[kind] = of[kind] || slices.ContainsFunc(first, func(r *Row) bool { return r.Kind == kind })
		return of[kind]
	}
	// What is known changes with each write.
	rest = slices.DeleteFunc(slices.Clone(rest), func(r *Row) bool { return r.Place <= end })
	if isFirst := changed != nil && changed.Place <= end; more && (changed == nil || isFirst || !has(kind)) {
		// Of the kind, is that one known which was the first of the others until now?
		known := func(r *Row) bool {
			return r.Kind == kind && changed != nil &&
				(changed.State != driver.Ready || isFirst || r.Place < changed.Place)
		}
		if !slices.ContainsFunc(rest, known) {
			rest = slices.DeleteFunc(rest, func(r *Row) bool { return r.Kind == kind })
			rest = append(rest, u.restOf(lineKind{l, kind}, end)...)
		}
	}
	rest = append(rest, slices.DeleteFunc(slices.Clone(front), func(r *Row) bool { return r.Place <= end })...)
	if w.Late && more {
		for _, r := range must(u.v.Rows(Range{
			Index: TaskLine, Prefixes: at(l.Key, num(l.Priority)),
			From: Tuple{num(last.Round), num(last.Seq + 1)}, Only: Only{State: driver.Ready},
		})) {
			if r.Place > end && !slices.ContainsFunc(rest, func(o *Row) bool { return o.ID == r.ID }) {
				rest = append(rest, r)
			}
		}
	}
	slices.SortFunc(rest, byPlace)
	begun := u.bytes
	isLarge := func() bool { return n < math.MaxInt && u.isLarge() && u.bytes-begun >= frontBytes }
	for i, r := range first {
		if isLarge() {
			return false
		}
		u.setTurn(r, w.Turns[i], AtFront)
	}
	for _, r := range rest {
		var to turn
		front := Parked
		switch {
		case has(r.Kind) && r.Round == 0:
			continue
		case has(r.Kind):
		case r.Front == Shares && r.turn().compare(last) <= 0:
			of[r.Kind] = true // whoever finds it gives it the last turn: see isNext
			continue
		default:
			of[r.Kind] = true
			to, front = last, Shares
		}
		if n <= 0 || isLarge() {
			return false
		}
		n--
		u.setTurn(r, to, front)
	}
	return true
}

// setTurn gives a task that is known a turn, and writes it if it is not so already.
func (u *unit) setTurn(known *Row, to turn, front Front) {
	is, blocked := front != Parked && u.isFirst(known), u.blocked(known.Key)
	if known.turn() == to && known.Front == front &&
		known.Takeable == (is && !blocked) && known.Hidden == (is && blocked) {
		return
	}
	r := *known
	r.setTurn(to)
	r.Front = front
	u.show(&r, is)
	if r.Takeable && !(known.Takeable && known.Front == front) {
		u.canBeTaken(&r) // for others may wait for it
	}
	u.writeTurn(&r)
}

// restOf returns the tasks of a kind in a line, behind a place, that share a turn, and the first
// ones that are parked: one at least if there is one.
func (u *unit) restOf(at lineKind, end uint64) []*Row {
	f := u.firsts(kindSpan(at), 0)
	isEnough := func(r *Row) bool { return r.Front == AtFront || r.Front == Parked && r.Place > end }
	for f.more && !slices.ContainsFunc(f.rows, isEnough) {
		u.readMore(kindSpan(at), f, 0)
	}
	return slices.DeleteFunc(slices.Clone(f.rows), func(r *Row) bool { return r.Front == AtFront || r.Place <= end })
}

// isNext reports whether a task that was found is the next one of its key. One that shares a turn
// may have one that its line has no more, and may be Takeable though its key is blocked: to change
// it at once would be a write for each kind whenever a task of the key is taken. So whoever finds
// it does that, and looks again.
func (u *unit) isNext(r *Row) bool {
	if r.Front != Shares {
		return true
	}
	u.readFronts(false, r.Weight, r.lineKind())
	front, _, _ := u.line(r.line())
	last, shows := front[len(front)-1].turn(), !u.blocked(r.Key) && u.isFirst(r)
	switch {
	case shows && (r.turn() == last || u.room(1) == 0):
		return true
	case shows:
		r.setTurn(last)
		r.Front = Shares
	case u.room(1) == 0:
		u.passed[r.ID] = true
		return false
	}
	u.show(r, u.isFirst(r))
	u.writeTurn(r)
	u.countFront(r.line())
	return false
}

// isFirst reports whether no line of a key before that of a task has one of its kind. Where keys
// are not blocked all the time that does not matter: see above.
func (u *unit) isFirst(r *Row) bool {
	if !u.q.limitsInFlight || r.Priority == 0 || u.firsts(keySpan(r.Key), 1).rows[0].Priority == r.Priority {
		return true
	}
	return u.firstOfKind(r.Key, r.Kind).Priority == r.Priority
}

// show has a task Takeable, if its key is not blocked, or not.
func (u *unit) show(r *Row, is bool) {
	blocked := u.blocked(r.Key)
	r.Takeable, r.Hidden = is && !blocked, is && blocked
}

// countFront has the row of a key written whenever the front of a line may have changed, and be
// there as long as there is a front, where a put that stays behind it relies on that: see
// staysBehind.
func (u *unit) countFront(l Line) {
	if u.q.guardsFronts() {
		k, n := u.key(l.Key), 1
		if front, _, _ := u.line(l); len(front) == 0 {
			n = min(1, len(u.firsts(keySpan(l.Key), 1).rows))
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
			u.moveFront(&w, nil, math.MaxInt)
			return
		}
	}
}

// blockFronts hides or shows up to n tasks at the fronts of a key that are not as they must be.
func (u *unit) blockFronts(w *work, n int) (done bool) {
	key := string(w.Name)
	u.readKeys(key)
	wrong := shownSpan(key, u.blocked(key))
	rows := u.firsts(wrong, min(n, pageSize)).rows
	done = u.each(slices.Clone(rows[:min(n, len(rows))]), func(r *Row) {
		now := *r
		u.show(&now, true)
		u.setTakeable(&now, now.Takeable)
	})
	return done && len(u.firsts(wrong, 1).rows) == 0
}

// showKind hides or shows up to n tasks of a kind at the front of a line, if they are not as they
// must be.
func (u *unit) showKind(w *work, n int) (done bool) {
	at := lineKind{Line{string(w.Name), int(w.Place[0])}, string(w.Kind)}
	front, _, _ := u.line(at.Line)
	var wrong []*Row
	// Of these the first one may share a turn.
	for _, r := range append(front, u.firsts(kindSpan(at), 1).rows...) {
		now := *r
		u.show(&now, u.isFirst(r))
		isWrong := now.Takeable != r.Takeable || now.Hidden != r.Hidden
		switch {
		case r.Kind != at.kind || !isWrong:
		case r.Front == AtFront || r.Front == Shares && !r.Takeable:
			wrong = append(wrong, &now)
		}
	}
	slices.SortFunc(wrong, byPlace) // one may be there twice
	wrong = slices.CompactFunc(wrong, func(a, b *Row) bool { return a.ID == b.ID })
	return u.each(wrong[:min(n, len(wrong))], func(r *Row) { u.setTakeable(r, r.Takeable) }) && len(wrong) <= n
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
			r.Front = AtFront
			u.update(r)
		default:
			r.Takeable, r.Gap, r.Front = false, false, Parked
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
// was missed, unless its task had been handed back: then it was used in time before. A line that
// has just used a missed turn joins no round that is being served: it gets one turn back, not two.
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
	if takeable {
		u.canBeTaken(r)
	}
	r.Takeable = takeable
	u.writeTurn(r)
}

// writeTurn writes a task that has another turn, or is hidden or shown.
func (u *unit) writeTurn(r *Row) {
	u.update(r)
	u.moved[r.ID] = r
	u.readAhead.move(r)
}
