package rows

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/internal/life"
	"github.com/fairq/fairq/internal/order"
)

// Upcoming implements [driver.Backend].
func (b *backend) Upcoming(
	ctx context.Context, n int,
) (upcoming []driver.UpcomingTask, err error) {
	err = b.call(ctx, "Upcoming", call{order: puts, run: func(u *unit) error {
		upcoming = u.upcoming(n)
		return nil
	}})
	return upcoming, err
}

// upcoming returns the tasks that n takes would take.
func (u *unit) upcoming(n int) []driver.UpcomingTask {
	if n == 0 || u.head.Paused {
		return nil
	}
	u.closeGaps()
	u.saveKeys()
	for most := n; ; most *= 2 {
		if found, ok := u.forecast(n, most); ok {
			return found
		}
	}
}

// maxExpired is the number of expired tasks after which upcoming returns the tasks found. Where
// nobody removes them there may be very many.
const maxExpired = pageSize

// forecast is upcoming for the first most turns that can be taken. ok is false if these are too
// few, because tasks may have expired, or be beyond the limits of their keys.
func (u *unit) forecast(n, most int) (found []driver.UpcomingTask, ok bool) {
	queue := &order.Key{Slots: math.MaxInt, Rate: u.q.settings.Rate}
	if queue.Rate.Limit > 0 {
		queue.Wait = u.key(allKeys).Wait
	}
	a, expired := &ahead{u, n, map[string]*order.Key{}}, 0
	lines, last, gone := a.first(most)
	for len(lines) > 0 && !queue.Blocked() {
		priority := lines[0].of.Priority
		end, _ := slices.BinarySearchFunc(lines, priority+1,
			func(l *lineAhead, p int) int { return l.of.Priority - p })
		band, over := lines[:end], false
		firsts := func(yield func(*order.Line[*Row]) bool) {
			for _, l := range band {
				if !yield(&l.Line) {
					return
				}
			}
			over = priority >= last
		}
		now := u.currentRound(priority)
		for r, round := range order.Forecast(firsts, now, queue, u.now) {
			if over {
				return found, gone >= maxExpired
			}
			if u.isDue(r, u.now) {
				if expired++; expired == maxExpired {
					return found, true
				}
				continue
			}
			record := u.record(r)
			found = append(found, driver.UpcomingTask{
				Info: record.Info(), Round: round, Weight: u.weight(r),
			})
			if len(found) == n {
				return found, true
			}
		}
		if over {
			return found, gone >= maxExpired
		}
		lines = lines[end:]
	}
	return found, true
}

// ahead reads ready tasks for a forecast of n tasks, and locks nothing.
type ahead struct {
	*unit
	n    int
	keys map[string]*order.Key
}

// lineAhead is a line of a forecast, or a task that was handed back.
type lineAhead struct {
	order.Line[*Row]
	*ahead
	of    Line
	kinds []Tuple // where its tasks are in TaskPlace, if the queue has lines
	rows  []*Row  // the next tasks
	more  bool    // there may be others behind them
	page  int     // the number of tasks to read then
}

// first returns the lines of the first turns that can be taken, in the order of their first tasks.
// Lines of priorities before last are complete; in later ones there may be others. gone is how
// many of the tasks read have expired.
func (a *ahead) first(most int) (lines []*lineAhead, last, gone int) {
	last = math.MaxInt
	if a.q.lines {
		r := TurnRange(everything, most)
		r.Lock = NoLock
		found := must(a.v.Turns().Scan(r))
		if len(found) == most {
			last = found[most-1].Priority
		}
		lines = a.linesOf(found)
	} else {
		r := ReadyRange(everything, most)
		r.Payload, r.Lock = false, NoLock
		rows := must(a.v.Rows(r))
		if len(rows) == most {
			last = rows[most-1].Priority
		}
		lines = a.linesIn(rows)
	}
	for _, l := range lines {
		l.page = a.n/len(lines) + 1
		for _, r := range append(l.rows, l.First.Task) {
			if a.isDue(r, a.now) {
				gone++
			}
		}
	}
	slices.SortFunc(lines, func(a, b *lineAhead) int {
		return cmp.Or(a.of.Priority-b.of.Priority, cmp.Compare(a.Turn.Round, b.Turn.Round),
			byPlace(a.First.Task, b.First.Task))
	})
	return lines, last, gone
}

// linesIn returns the lines of some tasks with turns.
func (a *ahead) linesIn(rows []*Row) (all []*lineAhead) {
	lines := map[Line]*lineAhead{}
	for _, r := range rows {
		if l := lines[r.line()]; l != nil && !r.Returned {
			l.rows = append(l.rows, r)
			continue
		}
		l := a.add(&all, r.line(), &Turn{Round: r.Round, Used: r.Used})
		if l.start(r); !r.Returned {
			lines[r.line()], l.more = l, true
		}
	}
	return all
}

// linesOf returns all lines of the keys of some turns, and about n of the lines' tasks. The turns
// are Takeable now. Other lines of a key become Takeable when the tasks before them are taken, so
// linesOf reads these lines too.
func (a *ahead) linesOf(found []*Turn) (all []*lineAhead) {
	var keys []string
	for _, t := range found {
		keys = append(keys, t.Key)
	}
	if a.q.limits {
		a.readKeys(keys...)
	}
	slices.Sort(keys)
	var ids []uint64
	lines := map[turnID]*lineAhead{} // without kinds
	var behind []*lineAhead
	for _, t := range a.turnsOfAll(slices.Compact(keys)) {
		id := t.id()
		id.kind = ""
		l := lines[id]
		if l == nil {
			l = a.add(&all, t.Line, t)
			lines[id] = l
			if t.Task != 0 {
				ids = append(ids, t.Task)
			} else {
				behind = append(behind, l)
			}
		}
		if l.kinds = append(l.kinds, Tuple{t.Key, t.Kind, num(t.Priority)}); t.Leads {
			l.Turn = t.turn()
		}
	}
	for _, l := range behind {
		l.page = a.n/len(behind) + 1
	}
	a.read(0, behind...)
	for _, r := range must(a.v.Peek(ids, false)) {
		id := turnID{lineKind{r.line(), ""}, r.ID}
		lines[id].rows = []*Row{r}
	}
	all = slices.DeleteFunc(all, func(l *lineAhead) bool { return len(l.rows) == 0 })
	for _, l := range all {
		r := l.rows[0]
		l.rows = l.rows[1:]
		l.start(r)
	}
	return all
}

// turnsOfAll returns the turns of some keys.
func (a *ahead) turnsOfAll(keys []string) (all []*Turn) {
	if !a.plan.Exclusive && len(keys) > 0 {
		return must(a.v.Turns().Scan(turnsRange(keys)))
	}
	a.readKeys(keys...)
	for _, key := range keys {
		all = append(all, a.turnsOf(key)...)
	}
	return all
}

// add adds a line with a turn.
func (a *ahead) add(all *[]*lineAhead, of Line, t *Turn) *lineAhead {
	l := &lineAhead{ahead: a, of: of}
	l.Turn = t.turn()
	*all = append(*all, l)
	return l
}

// start begins a line with its first task.
func (l *lineAhead) start(r *Row) {
	l.Tasks, l.Key, l.First = l, l.key(r.Key), l.task(r)
}

// key returns the limits of a key.
func (a *ahead) key(key string) *order.Key {
	if a.keys[key] == nil {
		k := &order.Key{Slots: math.MaxInt}
		if a.q.limits {
			is, s := a.unit.key(key), &a.q.settings.Settings
			most := life.MaxInFlight(s, a.limits(is))
			k.Slots, k.Rate, k.Wait = most-is.Tasks[driver.Taken], a.rate(is), is.Wait
		}
		a.keys[key] = k
	}
	return a.keys[key]
}

func (a *ahead) task(r *Row) order.Task[*Row] {
	t := order.Task[*Row]{
		Task: r, Place: r.Place, Cost: a.cost(r), Tokens: a.tokens(r), Share: a.share(r),
	}
	if r.Returned {
		t.Round = r.Round
	}
	return t
}

// Next implements [order.Tasks]. In a queue without lines the next task has its own turn, unless
// it moves up into the turn of an earlier task: see closeGap.
func (l *lineAhead) Next() (next order.Task[*Row]) {
	last := l.First.Task
	if len(l.rows) == 0 && l.more && (l.q.lines || last.Gap) {
		l.read(last.Place, l)
	}
	if len(l.rows) == 0 {
		return next
	}
	r := l.rows[0]
	l.rows = l.rows[1:]
	switch {
	case l.q.lines:
	case last.Gap:
		r.Gap = r.Gap || r.turn() != l.Turn
	default:
		l.Turn = r.turn()
	}
	return l.task(r)
}

// read reads the next tasks of some lines, behind a place.
func (a *ahead) read(place uint64, lines ...*lineAhead) {
	if len(lines) == 0 {
		return
	}
	first := lines[0]
	if !a.q.lines {
		r := NextRange(first.of, first.First.Task.Round, place)
		r.Limit, r.Lock = first.page, NoLock
		first.rows = must(a.v.Rows(r))
		first.more, first.page = len(first.rows) == first.page, min(2*first.page, pageSize)
		return
	}
	page := first.page
	var kinds []Tuple
	of := map[Line]*lineAhead{}
	for _, l := range lines {
		kinds, of[l.of] = append(kinds, l.kinds...), l
		page = min(page, l.page)
		l.rows, l.more = nil, false
	}
	r := FirstRange(TaskPlace, eachOnce(kinds), page, false)
	r.From = after(place)
	n, ends := map[lineKind]int{}, map[Line]uint64{}
	for _, r := range must(a.v.Rows(r)) {
		l := of[r.line()]
		l.rows = append(l.rows, r)
		if n[r.lineKind()]++; n[r.lineKind()] == page { // others of the kind may be behind
			l.more = true
			ends[l.of] = min(cmp.Or(ends[l.of], math.MaxUint64), r.Place)
		}
	}
	for _, l := range lines {
		l.page = min(2*page, pageSize)
		slices.SortFunc(l.rows, byPlace)
		if end, ok := ends[l.of]; ok {
			l.rows = slices.DeleteFunc(l.rows, func(r *Row) bool { return r.Place > end })
		}
	}
}
