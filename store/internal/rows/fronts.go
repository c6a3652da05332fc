package rows

import (
	"cmp"
	"slices"

	"github.com/fairq/fairq/task/driver"
)

// lines is what is known of the ready tasks of a key, in a queue where only the fronts of lines can
// be taken. What is written is noted here too, so that the database need not be asked again.
type lines struct {
	fronted []*Row           // those that have a turn
	parked  map[sort]*parked // those that have none
	most    int              // how many parked ones of each sort are remembered
}

// sort is what tasks have in common of which the first must be at the front.
type sort struct {
	priority int
	kind     string
}

// parked are the first tasks of a sort, in the order of Place.
type parked struct {
	rows []*Row
	more bool // there may be others behind them
}

// fewParked is how many tasks of each sort are read at first.
const fewParked = 4

// mostLines is of how many keys the tasks are remembered at most.
const mostLines = 1 << 12

// prepare reads at once what the calls of a transaction will ask for.
func (u *unit) prepare() {
	if !u.q.byKey() {
		return
	}
	u.read(false, u.plan.Keys...)
	if u.q.store.traits.Exclusive {
		return // to ask it later costs nothing more
	}
	var rows []*Row
	for _, id := range u.plan.Get {
		if r := must(u.v.Get(id, false)); r != nil {
			rows = append(rows, r)
		}
	}
	if u.plan.Take > 0 && !u.head.Paused {
		u.lookAhead(u.plan.Filter, u.plan.Take)
		rows = append(rows, u.ahead.rows...)
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

// read reads the rows of keys, and their tasks if only fronts can be taken, unless they are known.
func (u *unit) read(payload bool, keys ...string) {
	var unknown []string
	for _, key := range keys {
		if u.keys[key] == nil || u.q.fronted && u.lines[key] == nil {
			unknown = append(unknown, key)
		}
	}
	slices.Sort(unknown)
	u.fetch(slices.Compact(unknown), fewParked, payload)
}

// fetch reads the rows of keys, and their tasks if only fronts can be taken: those at the front,
// and of each sort the first ones that are parked.
func (u *unit) fetch(keys []string, most int, payload bool) {
	if len(keys) == 0 {
		return
	}
	if !u.q.fronted {
		most = 0
	}
	found, ready, err := u.v.Lines(keys, most, payload)
	check(err)
	if len(u.lines)+len(keys) > mostLines {
		clear(u.lines)
	}
	if u.keys == nil {
		u.keys, u.unsaved, u.lines = map[string]*Key{}, map[*Key]bool{}, map[string]*lines{}
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
		if u.q.fronted {
			u.lines[key] = &lines{parked: map[sort]*parked{}, most: most}
		}
	}
	for _, r := range ready {
		u.lines[r.Key].add(r)
	}
	for _, key := range keys {
		if u.q.fronted {
			for _, p := range u.lines[key].parked {
				p.more = len(p.rows) == most
			}
		}
	}
}

// add adds a task, if it is ready. It must not be there yet.
func (k *lines) add(r *Row) {
	if k == nil || r.State != driver.Ready {
		return
	}
	if r.Round != 0 {
		k.fronted = append(k.fronted, r)
		return
	}
	p := k.parked[r.sort()]
	if p == nil {
		p = &parked{}
		k.parked[r.sort()] = p
	}
	at, _ := slices.BinarySearchFunc(p.rows, r, byPlace)
	if at == len(p.rows) && p.more {
		return
	}
	if p.rows = slices.Insert(p.rows, at, r); len(p.rows) > k.most {
		p.rows, p.more = p.rows[:k.most], true
	}
}

// remove removes a task, if it is there.
func (k *lines) remove(r *Row) {
	if k == nil {
		return
	}
	same := func(other *Row) bool { return other.ID == r.ID }
	k.fronted = slices.DeleteFunc(k.fronted, same)
	if p := k.parked[r.sort()]; p != nil {
		p.rows = slices.DeleteFunc(p.rows, same)
	}
}

// find returns what is known of a task, nil if that is nothing.
func (k *lines) find(r *Row) *Row {
	same := func(other *Row) bool { return other.ID == r.ID }
	if i := slices.IndexFunc(k.fronted, same); i >= 0 {
		return k.fronted[i]
	}
	if p := k.parked[r.sort()]; p != nil {
		if i := slices.IndexFunc(p.rows, same); i >= 0 {
			return p.rows[i]
		}
	}
	return nil
}

// lacks tells whether there may be more parked tasks among the first n of a sort.
func (k *lines) lacks(priority, n int) bool {
	for s, p := range k.parked {
		if s.priority == priority && p.more && len(p.rows) < n {
			return true
		}
	}
	return false
}

func (r *Row) sort() sort { return sort{r.Priority, r.Kind} }

func byPlace(a, b *Row) int { return cmp.Compare(a.Place, b.Place) }

// front returns what is known of a key, and those of its tasks that are at the front of a line. As
// many parked ones are known as there may be turns for.
func (u *unit) front(l Line, weight int) (k *lines, front []*Row) {
	payload := u.plan.Take > 0 && !u.q.store.traits.Exclusive
	for u.read(payload, l.Key); ; {
		k, front = u.lines[l.Key], nil
		for _, r := range k.fronted {
			if r.Priority == l.Priority {
				front = append(front, r)
			}
		}
		n := max(weight, len(front)+1)
		if !k.lacks(l.Priority, n) {
			return k, front
		}
		u.fetch([]string{l.Key}, n+2*k.most, payload)
	}
}

// refile makes the front of a line what it must be, in a queue where only fronts can be taken: a
// task of it has come or gone, or its key is blocked or free now, which concerns the other lines of
// the key too. left is the turn of the task if it is gone without being taken: the line keeps it.
// used is its turn if it was taken: no other task has that any more.
func (u *unit) refile(changed *Row, left, used turn) {
	if !u.q.fronted {
		return
	}
	l, weight := changed.line(), changed.Weight
	if u.q.counts {
		weight = u.key(l.Key).Weight
	}
	blocked := u.blocked(l.Key)
	k, front := u.front(l, weight)
	for _, r := range slices.Clone(k.fronted) {
		if r.Priority != l.Priority && r.Takeable == blocked {
			u.reveal(r, !blocked)
		}
	}
	turns := []turn{left}
	for _, r := range front {
		turns = append(turns, r.turn())
	}
	turns = slices.DeleteFunc(turns, func(t turn) bool { return t == turn{} || t == used })
	slices.SortFunc(turns, turn.compare)
	turns = slices.Compact(turns)
	for _, r := range u.newFront(k, l.Priority, front, max(weight, len(turns))) {
		if r.number == len(turns) {
			turns = append(turns, u.lineTurn(r.Row, weight, turns, used))
		}
		if t := turns[r.number]; r.turn() != t || r.Takeable == blocked {
			r.setTurn(t)
			u.reveal(r.Row, !blocked)
		}
	}
}

// place is one at the front of a line, with the number of its turn.
type place struct {
	*Row
	number int
}

// newFront returns the tasks that must be at the front of a line: as many as wanted, and the first
// one of each further kind. These share the last turn, for whoever takes only such tasks. (If it
// was an earlier one, they would come before older tasks of other kinds.) Those that were there and
// must not be any more are parked.
func (u *unit) newFront(k *lines, priority int, all []*Row, wanted int) (places []place) {
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
			places = append(places, place{r, i})
		case !kinds[r.Kind]:
			places = append(places, place{r, wanted - 1})
		case r.Round != 0: // it was at the front
			r.setTurn(turn{})
			u.reveal(r, false)
		}
		kinds[r.Kind] = true
	}
	return places
}

// lineTurn returns the turn for a task whose line has others before it, and has just used one or
// none. The order within a round is that in which tasks became ready, but with MaxInFlightPerKey,
// or if the line has missed turns, that in which lines got theirs. A turn that is used late has
// been missed, unless its task was handed back: that one was taken in time.
func (u *unit) lineTurn(r *Row, weight int, turns []turn, used turn) turn {
	end := last{}
	for _, t := range turns {
		if t.round > end.round {
			end = last{round: t.round}
		}
		if t.round == end.round {
			end.tasks++
		}
	}
	t := turn{round: u.next(r.line(), end, weight).round, seq: r.Place}
	missed := used.round < u.current(r.Priority) && !used.returned
	if u.q.limited || missed || slices.ContainsFunc(turns, func(o turn) bool { return o.compare(t) >= 0 }) {
		t.seq = u.number()
	}
	return t
}

// refiled returns a row with the turn that it has by now: refile may have given it another one
// since it was read.
func (u *unit) refiled(r *Row) *Row {
	if !u.q.fronted || r.State != driver.Ready {
		return r
	}
	if u.lines[r.Key] == nil { // it is not remembered any more
		return must(u.v.Get(r.ID, u.whole()))
	}
	if now := u.lines[r.Key].find(r); now != nil {
		r.Takeable = now.Takeable
		r.setTurn(now.turn())
	}
	return r
}

// reveal makes a task one that can be taken, or hides it.
func (u *unit) reveal(r *Row, takeable bool) {
	if takeable && !r.Takeable {
		u.canBeTaken(r)
	}
	r.Takeable = takeable
	u.update(r)
	u.ahead.move(r)
}
