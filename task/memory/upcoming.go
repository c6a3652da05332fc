package memory

import (
	"cmp"
	"context"
	"iter"
	"math"
	"slices"

	"github.com/fairq/fairq/internal/life"
	"github.com/fairq/fairq/task/driver"
)

// Upcoming implements [driver.Backend].
func (q *queue) Upcoming(ctx context.Context, n int) ([]driver.UpcomingTask, error) {
	w, err := q.newWalk(ctx, n)
	if err != nil {
		return nil, err
	}
	if w.now, err = q.enter(); err != nil {
		return nil, err
	}
	defer q.exit()
	w.now, w.all = q.clock(w.now), q.all.wait
	return w.upcoming(n), nil
}

// walk goes through the ready tasks of a band in the order in which they would be taken, and
// changes nothing: see band.next.
type walk struct {
	queue *queue
	band  *band
	now   int64
	slots map[*keyState]int // how many more tasks of a key may be taken, from all bands
	waits map[*keyState]life.Wait
	all   life.Wait // of the queue
	lines map[*line]*walkedLine
	spare []walkedLine          // memory for these
	found []driver.UpcomingTask // what upcoming returns

	// again is lines that get their next turn when they have used one, in the order in which they
	// do. With MaxInFlightPerKey all that were there before are in the current round and the next
	// one, so what is added then comes behind them, in the round behind the one in which it is
	// added, and these are the turns that are given. Other lines get a turn so if they were passed
	// over; theirs would be earlier. With costs, band.turns knows when the next turn is: see next.
	again []lineInRound
}

// newWalk returns a walk to n tasks. It gets the memory for it while the queue is not locked, for
// that takes longer than all the rest if the system has to find it, or a garbage collection is to
// be helped.
func (q *queue) newWalk(ctx context.Context, n int) (*walk, error) {
	stats, err := q.Stats(ctx)
	n = min(n, stats.Ready)
	keys := min(n, stats.Keys)
	w := &walk{
		queue: q, slots: make(map[*keyState]int, keys), waits: map[*keyState]life.Wait{}, lines: make(map[*line]*walkedLine, keys),
		spare: make([]walkedLine, keys), found: make([]driver.UpcomingTask, n),
	}
	clear(w.spare) // the system finds memory when it is written to
	clear(w.found)
	w.found = w.found[:0]
	return w, err
}

// upcoming returns the first n tasks of all bands.
func (w *walk) upcoming(n int) []driver.UpcomingTask {
	if w.queue.paused {
		return nil
	}
	for _, w.band = range w.queue.bands {
		w.again = nil
		for it, round := range w.items() {
			if len(w.found) == n || w.all.Waits {
				return w.found
			}
			if r := w.queue.settings.Rate; r.Limit > 0 {
				w.all.Spend(r, w.queue.tokens(it), w.now)
			}
			w.found = append(w.found, driver.UpcomingTask{Info: w.queue.info(it), Round: round, Weight: it.key.weight})
		}
	}
	return w.found
}

type lineInRound struct {
	*line
	round int
}

// walkedLine is what a walk knows of a line that it has come to.
type walkedLine struct {
	lanes  []cursor
	left   int // tasks
	ahead  int // turns, those in walk.again too
	owed   int
	missed bool // line.missed is one of those owed
	more   bool // it gets a turn when the one that it has just used is over

	few [1]cursor // what lanes begins with
}

// cursor is a place in a lane.
type cursor struct {
	next  *item   // of those that came in order
	early []*item // the others, by place
}

// items iterates over the tasks, with the rounds in which they are.
func (w *walk) items() iter.Seq2[*item, int] {
	return func(yield func(*item, int) bool) {
		use := func(l *line, turn uint64, round int) bool {
			it := w.use(l, turn, round)
			return it == nil || it.isDue(w.now) || yield(it, round)
		}
		for _, o := range w.owed() {
			if !use(o.line, o.turn, 0) {
				return
			}
		}
		for turn := range w.band.turns.OrderWith(w.next) {
			if !use(turn.Item, 0, turn.Round) {
				return
			}
		}
		for len(w.again) > 0 {
			next := w.again[0]
			if w.again = w.again[1:]; !use(next.line, 0, next.round) {
				return
			}
		}
	}
}

type owedTurn struct {
	*line
	turn uint64
}

// owed returns the turns that come first, in order.
func (w *walk) owed() (all []owedTurn) {
	for from := []int{0}; len(from) > 0; {
		i := from[len(from)-1]
		from = from[:len(from)-1]
		if i >= len(w.band.shown) || len(w.band.shown[i].owed) == 0 {
			continue // nor is any below it
		}
		for _, turn := range w.band.shown[i].owed {
			all = append(all, owedTurn{w.band.shown[i], turn})
		}
		from = append(from, 2*i+1, 2*i+2)
	}
	slices.SortFunc(all, func(a, b owedTurn) int { return cmp.Compare(a.turn, b.turn) })
	return all
}

// use returns the task that uses a turn of a line, nil if none can. turn is 0 if it is not owed.
func (w *walk) use(l *line, turn uint64, round int) *item {
	s := w.line(l)
	s.more = false
	if turn == 0 {
		s.ahead--
	}
	if l.key.blocked || s.left == 0 || w.slots[l.key] == 0 || w.waits[l.key].Waits {
		return nil
	}
	if turn != 0 {
		s.owed--
		s.missed = s.missed && turn != l.missed
	}
	s.left--
	w.slots[l.key]--
	if want := w.wanted(l, s); s.ahead < want {
		s.ahead++
		if s.more = turn == 0 && w.band.turns.SettleCosts; !s.more {
			w.again = append(w.again, lineInRound{l, round + 1})
		}
	}
	it := s.take()
	if r := w.queue.settings.KeyRate; r.Limit > 0 {
		wait, ok := w.waits[l.key]
		if !ok {
			wait = l.key.wait
		}
		wait.Spend(r, w.queue.tokens(it), w.now)
		w.waits[l.key] = wait
	}
	return it
}

// next tells whether a line gets another turn after the one that it has just used, and what it
// costs.
func (w *walk) next(l *line) (cost int64, ok bool) {
	if s := w.lines[l]; s.more {
		return int64(w.queue.price(s.first().head())), true
	}
	return 0, false
}

// wanted returns how many turns a line must have ahead: see line.fillTurns.
func (w *walk) wanted(l *line, s *walkedLine) int {
	switch {
	case s.missed:
		return 0
	case w.band.limited && !w.band.turns.SettleCosts:
		return min(l.key.weight, s.left-s.owed)
	}
	return min(1, s.left-s.owed)
}

// line returns what is known of a line.
func (w *walk) line(l *line) *walkedLine {
	s := w.lines[l]
	if s == nil {
		if len(w.spare) == 0 {
			w.spare = make([]walkedLine, 1)
		}
		s, w.spare = &w.spare[0], w.spare[1:]
		s.left, s.ahead, s.owed, s.missed = l.len, l.turnsAhead, len(l.owed), l.missed != 0
		s.lanes = s.few[:0]
		for _, lane := range l.lanes {
			c := cursor{next: lane.inOrder.first}
			for _, e := range lane.early {
				c.early = append(c.early, e.item)
			}
			slices.SortFunc(c.early, func(a, b *item) int { return cmp.Compare(a.place, b.place) })
			s.lanes = append(s.lanes, c)
		}
		w.lines[l] = s
		if _, ok := w.slots[l.key]; !ok {
			w.slots[l.key] = w.queue.slots(l.key)
		}
	}
	return s
}

// first returns the cursor that is at the oldest task. There must be one.
func (s *walkedLine) first() (first *cursor) {
	place := uint64(math.MaxUint64)
	for i := range s.lanes {
		if it := s.lanes[i].head(); it != nil && it.place < place {
			first, place = &s.lanes[i], it.place
		}
	}
	return first
}

// take takes the oldest task.
func (s *walkedLine) take() *item {
	first := s.first()
	it := first.head()
	if it == first.next {
		first.next = it.next
	} else {
		first.early = first.early[1:]
	}
	return it
}

func (c *cursor) head() *item {
	if len(c.early) > 0 && (c.next == nil || c.early[0].place < c.next.place) {
		return c.early[0]
	}
	return c.next
}
