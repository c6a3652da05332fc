package memory

import (
	"context"
	"iter"
	"math"

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
	all := &order.Key{Slots: math.MaxInt, Rate: q.settings.Rate, Wait: q.all.wait}
	if q.paused {
		all.Slots = 0
	}
	keys := map[*keyState]*order.Key{}
	for _, b := range q.bands {
		for it, round := range order.Forecast(b.upcoming(keys), b.now, all, now) {
			if len(found) == cap(found) {
				return found, nil
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

// upcoming iterates over the lines with takeable tasks. keys has the limits of their keys after
// the tasks before.
func (b *band) upcoming(keys map[*keyState]*order.Key) iter.Seq[*order.Line[*item]] {
	return func(yield func(*order.Line[*item]) bool) {
		for t := range inOrder(b.shown) {
			l, k := t.line, t.line.key
			if k.blocked {
				continue
			}
			if keys[k] == nil {
				keys[k] = &order.Key{
					Slots: b.queue.slots(k), Rate: b.queue.settings.KeyRate, Wait: k.wait,
				}
			}
			w := &walk{line: l}
			w.rest = w.few[:0]
			for _, lane := range l.lanes {
				if early := lane.sorted(); len(early) > 0 {
					w.rest = append(w.rest, cursor{item: early[0], rest: early[1:]})
				}
				w.rest = append(w.rest, cursor{item: lane.inOrder.first, linked: true})
			}
			w.Line = order.Line[*item]{Tasks: w, Key: keys[k], Turn: l.next, First: w.Next()}
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
	rest []cursor
	few  [1]cursor // the first array of rest
}

// cursor is a place in a lane.
type cursor struct {
	item   *item // nil at the end
	rest   []*item
	linked bool // the next tasks are in the list of the lane, not in rest
}

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
	return order.Task[*item]{
		Task: it, Place: it.place, Cost: w.line.cost(it), Share: w.line.share(), Round: it.turn,
	}
}
