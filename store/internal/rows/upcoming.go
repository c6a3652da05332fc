package rows

import (
	"context"
	"iter"
	"math"
	"slices"

	"github.com/fairq/fairq/internal/order"
	"github.com/fairq/fairq/task/driver"
)

// Upcoming implements [driver.Backend].
func (b *backend) Upcoming(ctx context.Context, n int) (upcoming []driver.UpcomingTask, err error) {
	err = b.call(ctx, "Upcoming", call{order: puts, run: func(u *unit) error {
		upcoming = u.upcoming(n)
		return nil
	}})
	return upcoming, err
}

// upcoming returns the tasks that n takes would take.
func (u *unit) upcoming(n int) (found []driver.UpcomingTask) {
	if n == 0 || u.head.Paused {
		return nil
	}
	u.closeGaps()
	queue := &order.Key{Slots: math.MaxInt, Rate: u.q.settings.Rate}
	if queue.Rate.Limit > 0 {
		queue.Wait = u.key(allKeys).Wait
	}
	a := &ahead{
		unit: u, n: n, more: true, keys: map[string]*order.Key{}, used: map[string]bool{},
		moved: map[uint64]bool{},
	}
	for first := a.first(); first != nil && !queue.Blocked(); first = a.first() {
		priority := first.First.Task.Priority
		lines, now := a.linesOf(priority), u.currentRound(priority)
		for r, round := range order.Forecast(lines, now, queue, u.now) {
			if r.isDue(u.now) {
				continue
			}
			record := u.record(r)
			found = append(found, driver.UpcomingTask{Info: record.Info(), Round: round, Weight: r.Weight})
			if len(found) == n {
				return found
			}
		}
		a.readHidden(priority)
	}
	return found
}

// ahead reads ready tasks for a forecast of n tasks, and locks nothing. It reads at most about n
// tasks in the order of their turns, and as many behind them in their lines.
type ahead struct {
	*unit
	n      int
	ready  []*lineAhead // the next of those read from TaskReady
	from   Tuple        // where the others begin there
	more   bool         // there may be others
	hidden []*lineAhead // see readHidden
	keys   map[string]*order.Key
	used   map[string]bool // the keys with limits whose lines the priority had
	moved  map[uint64]bool // tasks that were read behind others of their line
}

// lineAhead is a line of a forecast, or a task that was handed back.
type lineAhead struct {
	order.Line[*Row]
	*ahead
	rows []*Row // the next tasks
	more bool   // there may be others behind them
	page int    // the number of tasks to read then
}

// first returns the line with the next turn, nil if there is none.
func (a *ahead) first() *lineAhead {
	for len(a.ready) == 0 && a.more {
		r := ReadyRange(everything, a.n)
		r.From, r.Payload, r.Lock = a.from, false, NoLock
		rows := must(a.v.Rows(r))
		if a.more = len(rows) == a.n; a.more {
			last := rows[a.n-1]
			a.from = Tuple{num(last.Priority), num(last.Round), num(last.Place + 1)}
		}
		a.ready = a.linesFrom(rows)
	}
	switch {
	case len(a.hidden) == 0 && len(a.ready) == 0:
		return nil
	case len(a.ready) == 0 || len(a.hidden) > 0 && a.hidden[0].compare(a.ready[0]) < 0:
		return a.hidden[0]
	}
	return a.ready[0]
}

func (l *lineAhead) compare(other *lineAhead) int {
	return inOrder(l.First.Task, other.First.Task)
}

// linesOf yields the lines of a priority in the order of their first turns.
func (a *ahead) linesOf(priority int) iter.Seq[*order.Line[*Row]] {
	return func(yield func(*order.Line[*Row]) bool) {
		for l := a.first(); l != nil && l.First.Task.Priority == priority; l = a.first() {
			if len(a.hidden) > 0 && l == a.hidden[0] {
				a.hidden = a.hidden[1:]
			} else {
				a.ready = a.ready[1:]
			}
			if a.q.limitsInFlight {
				a.used[l.First.Task.Key] = true
			}
			if !yield(&l.Line) {
				return
			}
		}
	}
}

// linesFrom returns the lines of some tasks with turns. In a queue without fronts, the other tasks
// of a line are among them too. In one with fronts, linesFrom reads some of them.
func (a *ahead) linesFrom(rows []*Row) (all []*lineAhead) {
	lines := map[Line]*lineAhead{}
	keys := make([]string, len(rows))
	for i, r := range rows {
		keys[i] = r.Key
	}
	if a.q.limitsInFlight {
		a.readKeys(keys...)
	}
	var behind []Tuple
	for _, r := range rows {
		l := lines[r.line()]
		switch {
		case a.moved[r.ID]:
			continue
		case l != nil && !r.Returned:
			l.rows = append(l.rows, r)
			continue
		}
		l = &lineAhead{ahead: a}
		l.Line = order.Line[*Row]{Tasks: l, Key: a.key(r.Key), Turn: r.turn(), First: a.task(r)}
		if all = append(all, l); !r.Returned {
			lines[r.line()] = l
			behind = append(behind, Tuple{r.Key, num(r.Priority), bit(true)})
		}
	}
	page := a.n/max(1, len(behind)) + 1
	if a.q.frontsOnly && len(behind) > 0 {
		for _, r := range must(a.v.Rows(FirstRange(TaskPlace, behind, page, false))) {
			lines[r.line()].rows = append(lines[r.line()].rows, r)
		}
	}
	for _, l := range lines {
		l.page, l.more = page, !a.q.frontsOnly || len(l.rows) == page
	}
	return all
}

// key returns the limits of a key.
func (a *ahead) key(key string) *order.Key {
	if a.keys[key] == nil {
		k := &order.Key{Slots: math.MaxInt, Rate: a.q.settings.KeyRate}
		if a.q.limitsInFlight {
			is := a.unit.key(key)
			if k.Wait = is.Wait; a.q.settings.MaxInFlightPerKey > 0 {
				k.Slots = a.q.settings.MaxInFlightPerKey - is.Tasks[driver.Taken]
			}
		}
		a.keys[key] = k
	}
	return a.keys[key]
}

func (a *ahead) task(r *Row) order.Task[*Row] {
	t := order.Task[*Row]{Task: r, Place: r.Place, Cost: a.cost(r), Share: a.share(r.Weight)}
	if r.Returned {
		t.Round = r.Round
	}
	return t
}

// Next implements [order.Tasks]. In a queue without fronts the next task has its own turn, unless
// it moves up into an earlier one: see closeGap.
func (l *lineAhead) Next() (next order.Task[*Row]) {
	last := l.First.Task
	if len(l.rows) == 0 && l.more && (l.q.frontsOnly || last.Gap) {
		l.read(last)
	}
	if len(l.rows) == 0 {
		return next
	}
	r := l.rows[0]
	l.rows = l.rows[1:]
	switch {
	case l.q.frontsOnly:
	case last.Gap:
		r.Gap = r.Gap || r.turn() != l.Turn
	default:
		l.Turn = r.turn()
	}
	return l.task(r)
}

// read reads the next tasks of the line.
func (l *lineAhead) read(last *Row) {
	r := NextRange(last.line(), last.Round, last.Place)
	if r.Lock = NoLock; l.q.frontsOnly {
		r = FirstRange(TaskPlace, at(last.Key, num(last.Priority), bit(true)), 0, false)
		r.From = Tuple{num(last.Place + 1)}
	}
	r.Limit = l.page
	l.rows = must(l.v.Rows(r))
	l.more, l.page = len(l.rows) == l.page, min(2*l.page, l.ahead.n)
	for _, r := range l.rows {
		l.moved[r.ID] = true
	}
}

// readHidden reads the next lines of the keys that had lines in a priority and are not blocked. If
// keys have limits, tasks of these lines may not be Takeable, because the tasks before them had to
// be taken first: see fronts.go.
func (a *ahead) readHidden(priority int) {
	var keys, fronts []Tuple
	for key := range a.used {
		if !a.key(key).Blocked() {
			keys = append(keys, Tuple{key})
		}
	}
	clear(a.used)
	if len(keys) == 0 {
		return
	}
	next := FirstRange(TaskPlace, keys, 1, false)
	next.From = Tuple{num(priority) + 1}
	for _, r := range must(a.v.Rows(next)) {
		fronts = append(fronts, Tuple{r.Key, num(r.Priority), bit(false)})
	}
	if len(fronts) == 0 {
		return
	}
	rows := must(a.v.Rows(Range{Index: TaskPlace, Prefixes: fronts}))
	rows = slices.DeleteFunc(rows, func(r *Row) bool { return r.Takeable })
	a.hidden = append(a.hidden, a.linesFrom(rows)...)
	slices.SortFunc(a.hidden, (*lineAhead).compare)
}
