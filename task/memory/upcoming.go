package memory

import (
	"context"
	"iter"
	"math"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/internal/order"
)

// Upcoming implements [driver.Backend]. It allocates the memory for the tasks without the lock. If
// the system has to provide that memory, this takes longer than all the rest.
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
					Info: q.info(it), Round: round, Weight: it.key.weight(),
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
					Slots: b.queue.slots(k), Rate: b.queue.rate(k), Wait: k.wait,
				}
			}
			w := &walk{line: l}
			w.next = w.few[:0]
			w.begin(0)
			w.Line = order.Line[*item]{Tasks: w, Key: keys[k], Turn: l.next, First: w.Next()}
			if !yield(&w.Line) {
				return
			}
		}
	}
}

// walk iterates over the tasks of a line. Its candidates are the next tasks of the lanes that it
// has begun, and the first tasks of some others. n tasks take O(n log n) for any number of lanes.
type walk struct {
	order.Line[*item]
	line *line
	next heap[*candidate]

	one candidate // the first one, inside the walk because most lines need only one
	few [1]*candidate
}

// candidate is a task that may be the next one of a line.
type candidate struct {
	byPlace
	lane  *lane // nil if it is in a list; else this is the task with that index in lane.early
	first bool  // or, if lane is nil, the first task of the lane with that index in line.lanes
	index int
	place int32 // among the candidates
}

func (c *candidate) before(other *candidate) bool { return c.byPlace.before(other.byPlace) }
func (c *candidate) at() *int32                   { return &c.place }

func (w *walk) add(it *item, lane *lane, first bool, index int) {
	c := &w.one
	if it == nil {
		return
	} else if c.item != nil {
		c = new(candidate)
	}
	*c = candidate{byPlace: byPlace{it}, lane: lane, first: first, index: index}
	w.next.push(c)
}

// begin adds the next tasks of a lane, and the lanes that may follow it.
func (w *walk) begin(i int) {
	lane := w.line.lanes[i].lane
	w.add(lane.inOrder.first, nil, false, 0)
	w.addEarly(lane, 0)
	for j := degree*i + 1; j <= degree*(i+1) && j < len(w.line.lanes); j++ {
		w.add(w.line.lanes[j].head(), nil, true, j)
	}
}

func (w *walk) addEarly(lane *lane, i int) {
	if i < len(lane.early) {
		w.add(lane.early[i].item, lane, false, i)
	}
}

// Next implements order.Tasks.
func (w *walk) Next() (next order.Task[*item]) {
	for len(w.next) > 0 && w.next[0].first {
		c := w.next[0]
		w.next.remove(c)
		w.begin(c.index)
	}
	if len(w.next) == 0 {
		return next
	}
	c := w.next[0]
	it := c.item
	if c.lane == nil && it.next != nil {
		c.item = it.next
		w.next.fix(c)
	} else if w.next.remove(c); c.lane != nil {
		for i := range degree {
			w.addEarly(c.lane, degree*c.index+1+i)
		}
	}
	return order.Task[*item]{
		Task: it, Place: it.place, Cost: w.line.cost(it), Tokens: w.line.band.queue.tokens(it),
		Share: w.line.share(), Round: it.turn,
	}
}
