package rows

import (
	"slices"

	"github.com/fairq/fairq/internal/account"
	"github.com/fairq/fairq/internal/driver"
)

// In a queue with kinds, KeepPlace or MaxInFlightPerKey, or in which a key was ever paused or
// waited, only the front of each line is in the index of ready tasks: its first task, which has
// the turn of the line, and the first task of each further kind, which shares it. The front also
// has tasks that were handed back with their turns, which are no part of the line. All others are
// parked: they have no turn. So a take passes over no task that it may not have, and blocking or
// freeing a key changes few rows. The invariant, whenever updateFront returns:
//
//   - The tasks of further kinds share a turn of the line that is not after its current turn. They
//     may be Takeable when they should not be: see isNext.
//   - The tasks at the front are Takeable unless their key is blocked. With MaxInFlightPerKey or a
//     rate, keys are blocked and freed all the time. There a task is Takeable only if no earlier
//     line of its key has a task of its kind, because a take would have to take that one first. So
//     blocking a key takes as many writes as there are tasks at one front, whatever its
//     priorities.
//   - The others have no Round.

// change is a change of a task for its line.
type change uint8

const (
	came change = iota // it has entered the line
	used               // it has used its turn, or that of its line: it was taken
	left               // it has left in another way
)

// updateFront restores the invariant of the front of a line after a task has entered or left it.
// If that has blocked or freed the key, or has changed the first line with a kind, it also hides
// or shows the fronts of other lines of the key.
//
// If the task has left, turn is its turn of the line, which it has used or leaves to the line.
func (u *unit) updateFront(changed *Row, how change, turn account.Account) {
	if u.q.turns == plain {
		return
	}
	u.readFronts(u.readsPayload(), changed.lineKind())
	switch {
	case !changed.Returned:
		u.moveFront(changed, how, turn)
	case how == came:
		u.setFront(changed, changed.turn(), AtFront)
	}
	u.countFront(changed.Key)
	if u.q.turns == limits {
		u.updateShown(changed)
	}
}

// isBehind reports whether another ready task of the line, handed back or not, has an earlier
// place.
func (u *unit) isBehind(r *Row) bool {
	u.readFronts(u.readsPayload(), r.lineKind())
	front, _, rest := u.line(r.line())
	isBefore := func(o *Row) bool { return o.Place < r.Place }
	return slices.ContainsFunc(front, isBefore) || slices.ContainsFunc(rest, isBefore)
}

// moveFront is updateFront within a line.
func (u *unit) moveFront(changed *Row, how change, turn account.Account) {
	l := changed.line()
	_, was, rest := u.line(l)
	first := was
	if len(rest) > 0 && (first == nil || rest[0].Place < first.Place) {
		first = rest[0]
	}
	if first == nil {
		if u.q.guardsFronts() {
			_, err := u.v.Tasks().Scan(Range{
				Index: TaskPlace, Prefixes: at(l.Key, num(l.Priority)), Lock: NoMore,
			})
			check(err)
		}
		return
	}
	switch {
	case how == used && was != nil:
		turn = u.following(was.turn(), changed)
	case how == used:
		turn = u.following(turn, changed)
	case was != nil:
		turn = was.turn()
	case turn.Round == 0:
		turn = u.firstTurn(first)
	}
	u.setFront(first, turn, AtFront)
	kinds := []string{changed.Kind, first.Kind}
	if was != nil && was != first {
		u.setFront(was, account.Account{}, Parked)
		kinds = append(kinds, was.Kind)
	}
	slices.Sort(kinds)
	for _, kind := range slices.Compact(kinds) {
		u.shareTurn(l, first, kind, turn)
	}
}

// shareTurn makes the first task of a kind in a line share its turn, unless the first task of the
// line is of that kind.
func (u *unit) shareTurn(l Line, first *Row, kind string, turn account.Account) {
	shares := kind == first.Kind
	for _, r := range u.restOf(lineKind{l, kind}, first.Place) {
		switch {
		case shares && r.Front == Shares:
			u.setFront(r, account.Account{}, Parked)
		case !shares && r.Front == Parked:
			u.setFront(r, turn, Shares)
		}
		shares = true
	}
}

// updateShown hides or shows fronts of other lines, if a change of a task has blocked or freed its
// key, or has changed the first line with its kind.
func (u *unit) updateShown(changed *Row) {
	key, at := changed.Key, changed.lineKind()
	if wrong := shownSpan(key, u.blocked(key)); len(u.firsts(wrong, 1).rows) > 0 {
		u.do(&work{What: blockFronts, Name: []byte(key)})
	}
	here := u.firsts(kindSpan(at), 2).rows
	if slices.ContainsFunc(here, func(r *Row) bool { return r.ID != changed.ID }) {
		return // its line had tasks of its kind before, and has some now
	}
	var next *Row // in another line
	if len(here) == 0 {
		next = u.firstOfKind(key, at.kind)
	} else if !u.isAlone(changed) {
		if all := u.firsts(ofKind(key, at.kind), 2).rows; all[0].ID == changed.ID && len(all) > 1 {
			next = all[1]
		}
	}
	if next != nil && next.Priority > changed.Priority {
		u.do(&work{
			What: showKind, Name: []byte(key), Place: [3]int64{num(next.Priority)}, Kind: []byte(at.kind),
		})
	}
}

// isAlone reports whether a task is known to be the only ready one of its key.
func (u *unit) isAlone(r *Row) bool {
	all := u.firsts(keySpan(r.Key), 1)
	return !all.more && len(all.rows) == 1 && all.rows[0].ID == r.ID
}

// staysBehind reports whether a put task comes behind parked tasks of its line and kind. Then it
// is parked too, and changes nothing else, because the front is right while any task is parked.
//
// Where transactions do not wait for each other, the Put relies on the last of these tasks to stay
// parked. So it need not write the row of the key, as all changes of a front do, and does not
// conflict with them. A change of a front that has all tasks of the line in turn relies on no
// further task (see moveFront). Elsewhere any parked task is enough, and prepare has looked for
// one.
func (u *unit) staysBehind(at lineKind, place uint64) bool {
	if !u.q.guardsFronts() {
		return u.q.putsBehind && (u.behind[at] || u.head.hasParked(at))
	}
	last := must(one(u.v.Rows(lastParkedRange(ForShare, at))))
	return last != nil && last.Place < place
}

// notePut remembers whether a put task was parked. The next Put of its line uses that.
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

// setFront gives a known task a turn and a place in its line, and writes it if that changes it.
func (u *unit) setFront(known *Row, to account.Account, front Front) {
	r := *known
	r.setTurn(to, r.Returned)
	r.Front = front
	u.show(&r, front != Parked && u.isFirst(known))
	if known.turn() == to && known.Front == front && known.isShownLike(&r) {
		return
	}
	if r.Takeable && !(known.Takeable && known.Front == front) {
		u.canBeTaken(&r) // because callers may wait for it
	}
	u.writeTurn(&r)
}

// restOf returns the tasks of a kind in a line, behind a place, that share its turn, and the first
// parked ones, in the order of Place: at least one if there is one.
func (u *unit) restOf(at lineKind, end uint64) []*Row {
	f := u.firsts(kindSpan(at), 0)
	isNext := func(r *Row) bool { return r.Front == AtFront || r.Front == Parked && r.Place > end }
	for f.more && !slices.ContainsFunc(f.rows, isNext) {
		u.readMore(kindSpan(at), f, 0)
	}
	isBefore := func(r *Row) bool { return r.Front == AtFront || r.Place <= end }
	rest := slices.DeleteFunc(slices.Clone(f.rows), isBefore)
	slices.SortFunc(rest, byPlace)
	return rest
}

// isNext reports whether a task that a take has found is the next one of its key. A task that
// shares a turn may have an old one, and may be Takeable although its key is blocked: to correct
// that at once would take a write for each kind whenever a task of the key is taken. So isNext
// corrects it, and the take looks again.
func (u *unit) isNext(r *Row) bool {
	if r.Front != Shares {
		return true
	}
	u.readFronts(false, r.lineKind())
	_, first, _ := u.line(r.line())
	now := *r
	u.show(&now, u.isFirst(r))
	switch {
	case now.Takeable && (r.turn() == first.turn() || u.room(1) == 0):
		return true
	case now.Takeable:
		now.setTurn(first.turn(), false)
		now.Front = Shares
	case u.room(1) == 0:
		u.passed[r.ID] = true
		return false
	}
	*r = now
	u.writeTurn(r)
	u.countFront(r.Key)
	return false
}

// isFirst reports whether no earlier line of a task's key has a task of its kind. Where keys are
// not blocked all the time that does not matter: see above.
func (u *unit) isFirst(r *Row) bool {
	if u.q.turns != limits || r.Priority == 0 ||
		u.firsts(keySpan(r.Key), 1).rows[0].Priority == r.Priority {
		return true
	}
	return u.firstOfKind(r.Key, r.Kind).Priority == r.Priority
}

// show sets whether a task is Takeable, or would be but for its blocked key.
func (u *unit) show(r *Row, is bool) {
	blocked := u.blocked(r.Key)
	r.Takeable, r.Hidden = is && !blocked, is && blocked
}

// isShownLike reports whether a task is shown or hidden like another one.
func (r *Row) isShownLike(o *Row) bool { return r.Takeable == o.Takeable && r.Hidden == o.Hidden }

// countFront makes the transaction write the row of a key whenever the front of a line may have
// changed, and keep it while there is a front, where a Put that stays behind relies on that: see
// staysBehind.
func (u *unit) countFront(key string) {
	if u.q.guardsFronts() {
		k, n := u.key(key), min(1, len(u.firsts(keySpan(key), 1).rows))
		k.Tasks[0] += n - k.Tasks[driver.Ready]
		k.Tasks[driver.Ready] = n
		u.unsaved[k] = true
	}
}

// blockFronts hides or shows up to n tasks at the fronts of a key that was blocked or freed.
func (u *unit) blockFronts(w *work, n int) (done bool) {
	key := string(w.Name)
	u.readKeys(key)
	wrong := shownSpan(key, u.blocked(key))
	rows := u.firsts(wrong, min(n, pageSize)).rows
	done = u.each(slices.Clone(rows[:min(n, len(rows))]), func(r *Row) {
		now := *r
		u.show(&now, true)
		u.writeShown(&now)
	})
	return done && len(u.firsts(wrong, 1).rows) == 0
}

// showKind hides or shows up to n tasks of a kind at the front of a line that has become, or is no
// longer, the first of its key with that kind.
func (u *unit) showKind(w *work, n int) (done bool) {
	at := lineKind{Line{string(w.Name), int(w.Place[0])}, string(w.Kind)}
	front, _, _ := u.line(at.Line)
	var wrong []*Row
	// The first task of the kind may share a turn.
	for _, r := range append(front, u.firsts(kindSpan(at), 1).rows...) {
		now := *r
		u.show(&now, u.isFirst(r))
		switch {
		case r.Kind != at.kind || now.isShownLike(r):
		case r.Front == AtFront || r.Front == Shares && !r.Takeable:
			wrong = append(wrong, &now)
		}
	}
	slices.SortFunc(wrong, byPlace) // a task may be there twice
	wrong = slices.CompactFunc(wrong, func(a, b *Row) bool { return a.ID == b.ID })
	some := wrong[:min(n, len(wrong))]
	return u.each(some, u.writeShown) && len(wrong) <= n
}

// park goes through the next n tasks of a queue that has had no fronts. In each line the first
// ready task keeps its turn, and so do tasks that were handed back. The others lose their turns.
func (u *unit) park(w *work, n int) (done bool) {
	return u.eachOf(must(u.v.Rows(w.page(n))), n, func(r *Row) {
		if w.pass(r) {
			w.Front = false
		}
		switch {
		case r.Round == 0 || r.State == driver.Taken: // it has used its turn
		case r.State == driver.Ready && (r.Returned || !w.Front):
			w.Front = w.Front || !r.Returned
			r.Front = AtFront
			u.update(r)
		default:
			r.Takeable, r.Gap, r.Front = false, false, Parked
			r.setTurn(account.Account{}, false)
			u.update(r)
		}
	})
}

// writeShown writes a task that was shown or hidden.
func (u *unit) writeShown(r *Row) {
	if r.Takeable {
		u.canBeTaken(r)
	}
	u.writeTurn(r)
}

// writeTurn writes a task that got a new turn, or was hidden or shown.
func (u *unit) writeTurn(r *Row) {
	u.update(r)
	u.moved[r.ID] = r
	u.readAhead.move(r)
}
