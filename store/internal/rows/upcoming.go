package rows

import (
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
	for most := n; ; most *= 2 {
		if found, ok := u.forecast(n, most); ok {
			return found
		}
	}
}

// maxExpired is the number of expired tasks after which upcoming returns the tasks found. Where
// nobody removes them there may be very many.
const maxExpired = pageSize

// forecast is upcoming from the first tasks in TaskReady. If these are too few, ok is false: some
// may have expired, or be beyond the limits of their keys.
func (u *unit) forecast(n, most int) (found []driver.UpcomingTask, ok bool) {
	queue := &order.Key{Slots: math.MaxInt, Rate: u.q.settings.Rate}
	if queue.Rate.Limit > 0 {
		queue.Wait = u.key(allKeys).Wait
	}
	ready := ReadyRange(everything, most)
	ready.Payload, ready.Lock = false, NoLock
	rows := must(u.v.Rows(ready))
	a, expired := &ahead{u, n, map[string]*order.Key{}}, 0
	isDue := func(r *Row) bool { return u.isDue(r, u.now) }
	many := len(slices.DeleteFunc(slices.Clone(rows), isDue)) <= len(rows)-maxExpired
	for lines := a.linesOf(rows); len(lines) > 0 && !queue.Blocked(); {
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
			over = len(rows) == most && rows[most-1].Priority == priority
		}
		now := u.currentRound(priority)
		for r, round := range order.Forecast(firsts, now, queue, u.now) {
			if over {
				return found, many
			}
			if isDue(r) {
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
			return found, many
		}
		lines = append(lines[end:], a.hidden(band)...)
		slices.SortFunc(lines, func(a, b *lineAhead) int { return inOrder(a.First.Task, b.First.Task) })
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
	of   Line
	rows []*Row // the next tasks
	more bool   // there may be others behind them
	page int    // the number of tasks to read then
}

// linesOf returns the lines of some tasks with turns. In a queue without fronts, the other tasks
// of a line are among them too. In one with fronts, linesOf reads some of them: about n for all
// lines.
func (a *ahead) linesOf(rows []*Row) (all []*lineAhead) {
	if a.q.turns == limits {
		keys := make([]string, len(rows))
		for i, r := range rows {
			keys[i] = r.Key
		}
		a.readKeys(keys...)
	}
	lines := map[Line]*lineAhead{}
	var behind []Tuple
	for _, r := range rows {
		if l := lines[r.line()]; l != nil && !r.Returned {
			l.rows = append(l.rows, r)
			continue
		}
		l := &lineAhead{ahead: a, of: r.line()}
		l.Line = order.Line[*Row]{Tasks: l, Key: a.key(r.Key), Turn: r.turn(), First: a.task(r)}
		if all = append(all, l); !r.Returned {
			lines[r.line()] = l
			behind = append(behind, Tuple{r.Key, num(r.Priority), bit(true)})
		}
	}
	page := a.n/max(1, len(behind)) + 1
	if a.q.turns != plain && len(behind) > 0 {
		for _, r := range must(a.v.Rows(FirstRange(TaskPlace, behind, page, false))) {
			lines[r.line()].rows = append(lines[r.line()].rows, r)
		}
	}
	for _, l := range lines {
		l.page, l.more = page, a.q.turns == plain || len(l.rows) == page
	}
	return all
}

// key returns the limits of a key.
func (a *ahead) key(key string) *order.Key {
	if a.keys[key] == nil {
		k := &order.Key{Slots: math.MaxInt}
		if a.q.turns == limits {
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

// Next implements [order.Tasks]. In a queue without fronts the next task has its own turn, unless
// it moves up into an earlier one: see closeGap.
func (l *lineAhead) Next() (next order.Task[*Row]) {
	last := l.First.Task
	if len(l.rows) == 0 && l.more && (l.q.turns != plain || last.Gap) {
		l.read(last)
	}
	if len(l.rows) == 0 {
		return next
	}
	r := l.rows[0]
	l.rows = l.rows[1:]
	switch {
	case l.q.turns != plain:
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
	if r.Lock = NoLock; l.q.turns != plain {
		r = FirstRange(TaskPlace, at(last.Key, num(last.Priority), bit(true)), 0, false)
		r.From = Tuple{num(last.Place + 1)}
	}
	r.Limit = l.page
	l.rows = must(l.v.Rows(r))
	l.more, l.page = len(l.rows) == l.page, min(2*l.page, pageSize)
}

// hidden returns the next lines of the keys of some lines, as far as none of their tasks is
// Takeable: where keys have limits, the tasks before must be taken first. See fronts.go.
func (a *ahead) hidden(band []*lineAhead) []*lineAhead {
	var keys, fronts []Tuple
	for _, l := range band {
		if a.q.turns == limits && !l.Key.Blocked() {
			keys = append(keys, Tuple{l.of.Key})
		}
	}
	if len(keys) == 0 {
		return nil
	}
	next := FirstRange(TaskPlace, eachOnce(keys), 1, false)
	next.From = through(int64(band[0].of.Priority))
	for _, r := range must(a.v.Rows(next)) {
		fronts = append(fronts, Tuple{r.Key, num(r.Priority), bit(false)})
	}
	if len(fronts) == 0 {
		return nil
	}
	rows := must(a.v.Rows(Range{Index: TaskPlace, Prefixes: fronts}))
	return a.linesOf(slices.DeleteFunc(rows, func(r *Row) bool { return r.Takeable }))
}
