package rows

import (
	"cmp"
	"slices"

	"github.com/fairq/fairq/internal/account"
	"github.com/fairq/fairq/task/driver"
)

// In a queue with kinds or MaxInFlightPerKey only the front of each line is in the index of ready
// tasks: as many tasks as the weight of its key, and the first one of each further kind. The others
// are parked: they have no turn. So whoever takes passes over no task that he may not have, and to
// block or free a key changes few rows. The invariant, whenever updateFront returns:
//
//   - Those at the front of a line are the first in the order of Place, but for those of further
//     kinds, and their turns are in that order too.
//   - They are Takeable unless their key is blocked.
//   - The others have neither a Round nor a Seq.

// readyTasks is what a transaction knows of the ready tasks of a key. What it writes is noted here
// too, so the database need not be asked again.
type readyTasks struct {
	front  []*Row                   // all that have a turn
	parked map[priorityKind]*parked // the first of those that have none
	limit  int                      // of each priority and kind so many parked ones are known at most
}

// priorityKind is a part of a key's tasks: the first one of it must be at the front.
type priorityKind struct {
	priority int
	kind     string
}

// parked are the first tasks of a priority and kind, in the order of Place.
type parked struct {
	rows []*Row
	more bool // there may be others behind them
}

// parkedAtFirst is how many parked tasks of each priority and kind are read at first.
const parkedAtFirst = 4

// maxKnownKeys is of how many keys the tasks are remembered at most.
const maxKnownKeys = 1 << 12

// prepare reads in one exchange what the calls of a transaction will ask for.
func (u *unit) prepare() {
	for _, l := range u.plan.Lines {
		u.account(l)
	}
	if !u.q.byKey() {
		return
	}
	u.read(false, u.plan.Keys...)
	if u.q.store.traits.Exclusive {
		return // there each read costs the same, now or later
	}
	var rows []*Row
	for _, id := range u.plan.Get {
		if r := must(u.v.Get(id, false)); r != nil {
			rows = append(rows, r)
		}
	}
	if u.plan.Take > 0 && !u.head.Paused {
		u.readReady(u.plan.Filter, u.plan.Take)
		rows = append(rows, u.readAhead.rows...)
	}
	u.read(u.plan.Take > 0, keysOf(rows)...)
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
	var unknown []string
	for _, key := range keys {
		if u.keys[key] == nil || u.q.frontsOnly && u.readyTasks[key] == nil {
			unknown = append(unknown, key)
		}
	}
	slices.Sort(unknown)
	u.fetch(slices.Compact(unknown), parkedAtFirst, payload)
}

// fetch reads the rows of keys, and their tasks if there are fronts: all that have a turn, and of
// each priority and kind the first parked ones, up to a limit.
func (u *unit) fetch(keys []string, limit int, payload bool) {
	if len(keys) == 0 {
		return
	}
	if !u.q.frontsOnly {
		limit = 0
	}
	found, ready, err := u.v.Lines(keys, limit, payload)
	check(err)
	if len(u.readyTasks)+len(keys) > maxKnownKeys {
		clear(u.readyTasks)
	}
	if u.keys == nil {
		u.keys, u.unsaved, u.readyTasks = map[string]*Key{}, map[*Key]bool{}, map[string]*readyTasks{}
	}
	for _, k := range found {
		if u.keys[k.Key] == nil {
			u.keys[k.Key] = k
		}
	}
	for _, key := range keys {
		if u.keys[key] == nil {
			u.keys[key] = &Key{Key: key, Weight: 1}
		}
		if u.q.frontsOnly {
			u.readyTasks[key] = &readyTasks{parked: map[priorityKind]*parked{}, limit: limit}
		}
	}
	for _, r := range ready {
		u.readyTasks[r.Key].add(r)
	}
	for _, key := range keys {
		if u.q.frontsOnly {
			for _, p := range u.readyTasks[key].parked {
				p.more = len(p.rows) == limit
			}
		}
	}
}

// add adds a task, if it is ready. It must not be known yet. A nil receiver knows nothing, and
// need not.
func (k *readyTasks) add(r *Row) {
	if k == nil || r.State != driver.Ready {
		return
	}
	if r.Round != 0 {
		k.front = append(k.front, r)
		return
	}
	p := k.parked[r.priorityKind()]
	if p == nil {
		p = &parked{}
		k.parked[r.priorityKind()] = p
	}
	at, _ := slices.BinarySearchFunc(p.rows, r, byPlace)
	if at == len(p.rows) && p.more {
		return // it may not be the next one: others that are not known may come before it
	}
	if p.rows = slices.Insert(p.rows, at, r); len(p.rows) > k.limit {
		p.rows, p.more = p.rows[:k.limit], true
	}
}

// remove removes a task, if it is known.
func (k *readyTasks) remove(r *Row) {
	if k == nil {
		return
	}
	same := func(other *Row) bool { return other.ID == r.ID }
	k.front = slices.DeleteFunc(k.front, same)
	if p := k.parked[r.priorityKind()]; p != nil {
		p.rows = slices.DeleteFunc(p.rows, same)
	}
}

// find returns a task as it is known, nil if it is not.
func (k *readyTasks) find(r *Row) *Row {
	same := func(other *Row) bool { return other.ID == r.ID }
	if i := slices.IndexFunc(k.front, same); i >= 0 {
		return k.front[i]
	}
	if p := k.parked[r.priorityKind()]; p != nil {
		if i := slices.IndexFunc(p.rows, same); i >= 0 {
			return p.rows[i]
		}
	}
	return nil
}

// lacks tells whether, of some kind, there may be parked tasks among the first n of that priority
// that are not known.
func (k *readyTasks) lacks(priority, n int) bool {
	for s, p := range k.parked {
		if s.priority == priority && p.more && len(p.rows) < n {
			return true
		}
	}
	return false
}

func (r *Row) priorityKind() priorityKind { return priorityKind{r.Priority, r.Kind} }

func byPlace(a, b *Row) int { return cmp.Compare(a.Place, b.Place) }

// front returns the ready tasks of a key, and those of them that are at the front of a line. It
// reads until as many parked ones are known as there may be turns for.
func (u *unit) front(l Line, weight int) (k *readyTasks, front []*Row) {
	payload := u.plan.Take > 0 && !u.q.store.traits.Exclusive
	for u.read(payload, l.Key); ; {
		k, front = u.readyTasks[l.Key], nil
		for _, r := range k.front {
			if r.Priority == l.Priority {
				front = append(front, r)
			}
		}
		n := max(weight, len(front)+1)
		if !k.lacks(l.Priority, n) {
			return k, front
		}
		u.fetch([]string{l.Key}, n+2*k.limit, payload)
	}
}

// updateFront makes the front of a line what it must be, after a task has come to it or gone from
// it. If that has blocked or freed the key, the fronts of its other lines are hidden or shown too.
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
	blocked := u.blocked(l.Key)
	k, front := u.front(l, weight)
	if slices.ContainsFunc(k.front, func(r *Row) bool {
		return r.Priority != l.Priority && r.Takeable == blocked
	}) {
		u.do(&work{What: blockFronts, Name: []byte(l.Key)})
	}
	turns := []turn{left}
	for _, r := range front {
		turns = append(turns, r.turn())
	}
	turns = slices.DeleteFunc(turns, func(t turn) bool { return t == turn{} || t == used })
	slices.SortFunc(turns, turn.compare)
	turns = slices.Compact(turns)
	var last *Row // that has got a turn
	for _, r := range u.newFront(k, l.Priority, front, max(u.ahead(weight), len(turns))) {
		switch {
		case r.turnIndex < len(turns):
		case u.q.costs:
			turns = append(turns, u.turnAfter(last, r.Row, weight, used))
		default:
			turns = append(turns, u.frontTurn(r.Row, weight, turns, used))
		}
		last = r.Row
		if t := turns[r.turnIndex]; r.turn() != t || r.Takeable == blocked {
			r.setTurn(t)
			u.setTakeable(r.Row, !blocked)
		}
	}
}

// blockFronts hides up to n tasks at the fronts of a key, or if it is not blocked shows them.
func (u *unit) blockFronts(w *work, n int) (worked int) {
	key := string(w.Name)
	u.read(false, key)
	blocked := u.blocked(key)
	for _, r := range slices.Clone(u.readyTasks[key].front) {
		if r.Takeable == blocked && worked < n {
			u.setTakeable(r, !blocked)
			worked++
		}
	}
	return worked
}

// park goes through up to n tasks of a queue that has had no fronts. The first ready ones of each
// line, as many as may be at its front, keep their turns; the others lose them.
func (u *unit) park(w *work, n int) (worked int) {
	for {
		page := Range{Index: TaskLine, Limit: min(n-worked, pageSize)}
		if w.Name != nil {
			page.From = Tuple{string(w.Name), w.Place[0], w.Place[1], w.Place[2]}
		}
		rows := must(u.v.Rows(page))
		for _, r := range rows {
			if r.Key != string(w.Name) || num(r.Priority) != w.Place[0] {
				w.Front = 0
			}
			w.Name = []byte(r.Key)
			w.Place = [4]int64{num(r.Priority), num(r.Round), num(r.Seq + 1)}
			switch {
			case r.Round == 0 || u.hasUsedTurn(r):
			case r.State == driver.Ready && w.Front < u.ahead(r.Weight):
				w.Front++
			default:
				r.Takeable, r.Gap = false, false
				r.setTurn(turn{})
				u.update(r)
			}
		}
		if worked += len(rows); len(rows) < page.Limit || worked == n {
			return worked
		}
	}
}

// ahead returns how many tasks of a line are at its front, not counting those of further kinds.
func (u *unit) ahead(weight int) int {
	if u.q.costs {
		return 1 // its share says how many there are in a round
	}
	return weight
}

// frontTask is a task that must be at the front, with the index of its turn among those of the
// line.
type frontTask struct {
	*Row
	turnIndex int
}

// newFront returns the tasks that must be at the front of a line, and parks those that were there
// and must not be any more. At the front are the first ones, as many as wanted, and the first one
// of each further kind, which is for those who take only that kind. These share the last turn: with
// an earlier one, they would come before older tasks of other kinds.
func (u *unit) newFront(
	k *readyTasks, priority int, all []*Row, wanted int,
) (front []frontTask) {
	for s, p := range k.parked {
		if s.priority == priority {
			all = append(all, p.rows[:min(wanted, len(p.rows))]...)
		}
	}
	slices.SortFunc(all, byPlace)
	kinds := map[string]bool{}
	for i, r := range all {
		switch {
		case i < wanted:
			front = append(front, frontTask{r, i})
		case !kinds[r.Kind]:
			front = append(front, frontTask{r, wanted - 1})
		case r.Round != 0: // it was at the front
			r.setTurn(turn{})
			u.setTakeable(r, false)
		}
		kinds[r.Kind] = true
	}
	return front
}

// frontTurn returns the next turn of a line, for a task that comes to its front: turns are those
// that the line has already, and used is the one that it has just used, or the zero turn.
//
// The order within a round is that in which tasks became ready. But with MaxInFlightPerKey, or if
// the line has missed turns, it is that in which lines got their turns. A turn that was used late
// was missed, unless its task had been handed back: then it was used in time before.
func (u *unit) frontTurn(r *Row, weight int, turns []turn, used turn) turn {
	end := account.Account{}
	for _, t := range turns {
		if t.round > end.Round {
			end = account.Account{Round: t.round}
		}
		if t.round == end.Round {
			end.Used++
		}
	}
	start := u.start(r.line(), end, weight)
	t := turn{round: start.Round, used: start.Used, seq: r.Place}
	missed := used.round < u.currentRound(r.Priority) && !used.returned
	if u.q.limitsInFlight || missed || slices.ContainsFunc(turns, func(o turn) bool { return o.compare(t) >= 0 }) {
		t.seq = u.number()
	}
	return t
}

// turnAfter is frontTurn where tasks have costs: these are read when a task gets its turn. last is
// the task that has the line's last turn so far, nil if there is none. The turn that follows on
// the one that was just used may be in the same round.
func (u *unit) turnAfter(last, r *Row, weight int, used turn) turn {
	l, now := r.line(), u.currentRound(r.Priority)
	end := u.readAccount(l, driver.Taken)
	if last != nil {
		end = further(end, u.after(last))
	}
	var start account.Account
	if used != (turn{}) && used.round == now {
		start = end.Next(now, u.share(weight))
	} else {
		u.forgetAccounts(r.Priority)
		start = u.start(l, end, weight)
	}
	return turn{round: start.Round, used: start.Used, seq: u.number()}
}

// withCurrentTurn returns a row with the turn that it has by now: updateFront may have given it
// another one since it was read.
func (u *unit) withCurrentTurn(r *Row) *Row {
	if !u.q.frontsOnly || r.State != driver.Ready {
		return r
	}
	if u.readyTasks[r.Key] == nil { // they were forgotten, to make room for others
		return must(u.v.Get(r.ID, u.needsPayload()))
	}
	if now := u.readyTasks[r.Key].find(r); now != nil {
		r.Takeable = now.Takeable
		r.setTurn(now.turn())
	}
	return r
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
