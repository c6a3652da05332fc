package memory

import (
	"context"
	"iter"

	"github.com/fairq/fairq/internal/life"
	"github.com/fairq/fairq/internal/order"
	"github.com/fairq/fairq/task/driver"
)

// Upcoming implements [driver.Backend]. It allocates the memory for the tasks without the lock,
// because that takes longer than all the rest if the system has to provide it.
func (q *queue) Upcoming(ctx context.Context, n int) ([]driver.UpcomingTask, error) {
	stats, err := q.Stats(ctx)
	if err != nil {
		return nil, err
	}
	found := make([]driver.UpcomingTask, min(n, stats.Ready))
	clear(found) // the system provides memory only when it is written to
	return q.upcoming(found[:0])
}

// upcoming fills found up to its capacity.
func (q *queue) upcoming(found []driver.UpcomingTask) ([]driver.UpcomingTask, error) {
	now, err := q.enter()
	if err != nil {
		return nil, err
	}
	defer q.exit()
	now = q.clock(now)
	all := q.all.wait
	keys := map[*keyState]*keyAhead{}
	for _, b := range q.bands {
		for it, round := range order.Forecast(b.upcoming(keys), b.now) {
			if q.paused || all.Waits || len(found) == cap(found) {
				return found, nil
			}
			k := keys[it.key]
			if k.slots--; q.settings.KeyRate.Limit > 0 {
				k.wait.Spend(q.settings.KeyRate, q.tokens(it), now)
			}
			if q.settings.Rate.Limit > 0 {
				all.Spend(q.settings.Rate, q.tokens(it), now)
			}
			if !it.isDue(now) {
				found = append(found, driver.UpcomingTask{
					Info: q.info(it), Round: round, Weight: it.key.weight,
				})
			}
		}
	}
	return found, nil
}

// keyAhead is the future state of a key, after some of its tasks are taken.
type keyAhead struct {
	slots int // see queue.slots
	wait  life.Wait
}

// upcoming iterates over the lines with takeable tasks.
func (b *band) upcoming(keys map[*keyState]*keyAhead) iter.Seq[*order.Line[*item]] {
	return func(yield func(*order.Line[*item]) bool) {
		for t := range inOrder(b.shown) {
			l := t.line
			if l.key.blocked {
				continue
			}
			if keys[l.key] == nil {
				keys[l.key] = &keyAhead{b.queue.slots(l.key), l.key.wait}
			}
			w := &walk{line: l, key: keys[l.key]}
			w.rest = w.few[:0]
			for _, lane := range l.lanes {
				if early := lane.sorted(); len(early) > 0 {
					w.rest = append(w.rest, cursor{item: early[0], rest: early[1:]})
				}
				w.rest = append(w.rest, cursor{item: lane.inOrder.first, linked: true})
			}
			w.Line = order.Line[*item]{Tasks: w, Turn: l.next, Share: l.share(), First: w.Next()}
			if !yield(&w.Line) {
				return
			}
		}
	}
}

// sorted returns the tasks that did not come in order, sorted by place.
func (l *lane) sorted() (early []*item) {
	for e := range inOrder(l.early) {
		early = append(early, e.item)
	}
	return early
}

// walk iterates over the tasks of a line.
type walk struct {
	order.Line[*item]
	line *line
	key  *keyAhead
	rest []cursor
	few  [1]cursor // the first array of rest
}

// cursor is a place in a lane.
type cursor struct {
	item   *item // nil at the end
	rest   []*item
	linked bool // the next tasks are in the list of the lane, not in rest
}

// Blocked implements order.Tasks.
func (w *walk) Blocked() bool { return w.key.slots == 0 || w.key.wait.Waits }

// Next implements order.Tasks.
func (w *walk) Next() (next order.Task[*item]) {
	var first *cursor
	for i := range w.rest {
		c := &w.rest[i]
		if c.item != nil && (first == nil || byPlace{c.item}.before(byPlace{first.item})) {
			first = c
		}
	}
	if first == nil {
		return next
	}
	it := first.item
	switch {
	case first.linked:
		first.item = it.next
	case len(first.rest) > 0:
		first.item, first.rest = first.rest[0], first.rest[1:]
	default:
		first.item = nil
	}
	return order.Task[*item]{Task: it, Place: it.place, Cost: w.line.cost(it), Round: it.turn}
}
