package task

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/fairq/fairq"
)

// takers are the goroutines that wait for a task: those with the same filter in one group, first come, first served. No
// task is handed to them; one that may find a task is woken, and looks for it. Those that are woken have left their groups'
// lines.
//
// A group is tested if one of it has looked for a task in vain, and for each that became ready since then, and that a taker
// of it could have, some taker was woken. So a taker that joins a tested group need not look. If those woken find nothing
// because others were quicker, or found something else, there may still be a task for takers with other filters: then these
// are not tested any more. One taker after the other looks until all groups are tested.
type takers struct {
	groups  map[string]*takerGroup // those in which somebody waits, by filter
	arrived uint64
	changes uint64 // calls of ready and look
	woken   int    // takers that are looking
}

type takerGroup struct {
	filter Filter
	line   []*taker // by arrival
	tested bool
}

// taker is a goroutine that waits for a task.
type taker struct {
	consumer *consumerState
	group    *takerGroup
	arrived  uint64
	changes  uint64 // as of when it began to look
	claims   bool   // it was woken because of a task that has become ready
	woken    bool
	wake     chan struct{}
}

// consumerState is what waiting takers must know of their consumer.
type consumerState struct {
	filter atomic.Pointer[Filter] // changed under Notifier.mu
	closed atomic.Bool            // changed under Notifier.mu
}

// ready wakes the first taker that wants such a task.
func (t *takers) ready(priority int, kind string) {
	t.changes++
	var first *taker
	for _, g := range t.groups {
		if len(g.line) > 0 && g.filter.accepts(priority, kind) && (first == nil || g.line[0].arrived < first.arrived) {
			first = g.line[0]
		}
	}
	if first != nil {
		t.rouse(first, true)
		return
	}
	for _, g := range t.groups { // whoever joins before those that are looking have finished ought to look too
		g.tested = g.tested && !g.filter.accepts(priority, kind)
	}
}

// look makes the takers look for a task, one after the other.
func (t *takers) look() {
	t.changes++
	for _, g := range t.groups {
		g.tested = false
	}
	t.pass()
}

// rouse wakes the first taker of a line.
func (t *takers) rouse(w *taker, claims bool) {
	w.group.line = w.group.line[1:]
	w.woken, w.claims, w.changes = true, claims, t.changes
	t.woken++
	w.signal()
}

func (w *taker) signal() {
	select {
	case w.wake <- struct{}{}:
	default: // there is a signal that it has not seen yet
	}
}

// pass wakes the first taker of those that ought to look, if none is looking.
func (t *takers) pass() {
	if t.woken > 0 {
		return
	}
	var first *taker
	for _, g := range t.groups {
		if len(g.line) > 0 && !g.tested && (first == nil || g.line[0].arrived < first.arrived) {
			first = g.line[0]
		}
	}
	if first != nil {
		t.rouse(first, false)
	}
}

// join puts a taker into line.
func (t *takers) join(w *taker) {
	id := w.consumer.filter.Load().id()
	g := t.groups[id]
	if g == nil {
		g = &takerGroup{filter: *w.consumer.filter.Load()}
		t.groups[id] = g
	}
	w.group = g
	i := len(g.line)
	for ; i > 0 && g.line[i-1].arrived > w.arrived; i-- {
	}
	g.line = append(g.line, nil)
	copy(g.line[i+1:], g.line[i:])
	g.line[i] = w
}

// leave takes a taker out of its line, or ends its looking. found says whether it looked and found something.
func (t *takers) leave(w *taker, found bool) {
	if !w.woken {
		for i, other := range w.group.line {
			if other == w {
				w.group.line = append(w.group.line[:i:i], w.group.line[i+1:]...)
			}
		}
	} else {
		t.woken--
		if !found { // it will not look, so others must
			for _, g := range t.groups {
				g.tested = false
			}
		}
	}
	w.woken = false
	t.pass()
	t.tidy(w.group)
}

// inVain puts a taker that found nothing back into line. It returns false if it must look again.
func (t *takers) inVain(w *taker) bool {
	if w.changes != t.changes || w.group.filter.id() != w.consumer.filter.Load().id() {
		w.changes = t.changes
		return false
	}
	old := w.group
	old.tested = true
	if w.claims {
		for _, g := range t.groups {
			g.tested = g.tested && g == old
		}
	}
	w.woken = false
	t.woken--
	t.join(w)
	t.pass()
	return true
}

// refilter moves the waiting takers of a consumer to the group of its new filter.
func (t *takers) refilter(c *consumerState) {
	var moved []*taker
	for _, g := range t.groups {
		kept := g.line[:0]
		for _, w := range g.line {
			if w.consumer == c {
				moved = append(moved, w)
			} else {
				kept = append(kept, w)
			}
		}
		g.line = kept
		t.tidy(g)
	}
	for _, w := range moved {
		t.join(w)
		w.group.tested = false
	}
	t.pass()
}

// tidy forgets a group in which nobody waits.
func (t *takers) tidy(g *takerGroup) {
	if id := g.filter.id(); len(g.line) == 0 && t.groups[id] == g {
		delete(t.groups, id)
	}
}

// expel makes the waiting takers of a consumer see that it is closed.
func (t *takers) expel(c *consumerState) {
	for _, g := range t.groups {
		for _, w := range g.line {
			if w.consumer == c {
				w.signal()
			}
		}
	}
}

// take calls try until it has found something, and in between waits until that may be so.
func (n *Notifier) take(ctx context.Context, c *consumerState, try func(Filter) (found bool, err error)) error {
	done := ctx.Done()
	n.takersWaiting.Add(1)
	defer n.takersWaiting.Add(-1)
	w := &taker{consumer: c, wake: make(chan struct{}, 1)}
	n.mu.Lock()
	n.takers.arrived++
	w.arrived = n.takers.arrived
	n.takers.join(w)
	n.takers.pass()
	for {
		if err := n.overLocked(c); err != nil {
			n.takers.leave(w, false)
			n.mu.Unlock()
			return err
		}
		n.mu.Unlock()
		select {
		case <-w.wake:
		case <-n.ctx.Done():
		case <-done:
			n.mu.Lock()
			defer n.mu.Unlock()
			n.takers.leave(w, false)
			return ctx.Err()
		}
		n.mu.Lock()
		if !w.woken {
			continue
		}
		for again := true; again; {
			if err := n.overLocked(c); err != nil {
				break
			}
			filter := *c.filter.Load()
			n.mu.Unlock()
			found, err := try(filter)
			n.mu.Lock()
			if found || err != nil {
				n.takers.leave(w, found)
				n.mu.Unlock()
				return err
			}
			again = !n.takers.inVain(w)
		}
	}
}

func (n *Notifier) overLocked(c *consumerState) error {
	if n.end == nil && c.closed.Load() {
		return ErrClosed
	}
	return n.end
}

// putters are the goroutines that wait for room. They are admitted in rounds by key: the one whose turn it is tries whenever
// a task has gone, and when it was admitted, the next one does. One whose key has as many tasks as it may goes to barred
// until a task of the key has gone, and then takes a new turn.
type putters struct {
	line   fairq.Queue[string, *putter]
	barred map[string][]*putter
	first  *putter // whose turn it is
	rooms  uint64  // calls of room
	full   error   // what the first one was told last
}

// putter is a goroutine that waits for room.
type putter struct {
	key    string
	ticket fairq.Ticket
	wake   chan struct{}
}

// room admits one more, perhaps.
func (p *putters) room(key string) {
	p.rooms++
	if barred := p.barred[key]; len(barred) > 0 {
		p.join(barred[0])
		if p.barred[key] = barred[1:]; len(barred) == 1 {
			delete(p.barred, key)
		}
	}
	p.rouse()
}

func (p *putters) join(w *putter) { w.ticket = p.line.Add(w.key, w) }

// next lets the next one try.
func (p *putters) next() {
	p.first = nil
	if _, w, ok := p.line.Pop(); ok {
		p.first = w
	}
	p.rouse()
}

// rouse makes the first one try.
func (p *putters) rouse() {
	if p.first == nil {
		if p.line.Len() > 0 {
			p.next()
		}
		return
	}
	select {
	case p.first.wake <- struct{}{}:
	default: // it is awake
	}
}

// leave takes one out, wherever it is.
func (p *putters) leave(w *putter) {
	if p.first == w {
		p.next()
		return
	}
	if _, ok := p.line.Remove(w.ticket); ok {
		return
	}
	barred := p.barred[w.key]
	for i, other := range barred {
		if other == w {
			barred = append(barred[:i:i], barred[i+1:]...)
		}
	}
	if p.barred[w.key] = barred; len(barred) == 0 {
		delete(p.barred, w.key)
	}
}

// put calls try until there is room, and in between waits until there may be.
func (n *Notifier) put(ctx context.Context, key string, try func() error) error {
	done := ctx.Done()
	n.puttersWaiting.Add(1)
	defer n.puttersWaiting.Add(-1)
	w := &putter{key: key, wake: make(chan struct{}, 1)}
	n.mu.Lock()
	n.putters.join(w)
	n.putters.rouse()
	for {
		if n.end != nil {
			n.putters.leave(w)
			n.mu.Unlock()
			return n.end
		}
		rooms := n.putters.rooms
		if n.putters.first == w {
			n.mu.Unlock()
			err := try()
			n.mu.Lock()
			switch {
			case errors.Is(err, fairq.ErrKeyFull):
				if rooms == n.putters.rooms {
					n.putters.barred[key] = append(n.putters.barred[key], w)
					n.putters.next()
				}
			case errors.Is(err, fairq.ErrFull):
				n.putters.full = err
			default:
				n.putters.leave(w)
				n.mu.Unlock()
				return err
			}
			if rooms != n.putters.rooms {
				continue
			}
		}
		n.mu.Unlock()
		select {
		case <-w.wake:
		case <-n.ctx.Done():
		case <-done:
			n.mu.Lock()
			defer n.mu.Unlock()
			n.putters.leave(w)
			return ctx.Err()
		}
		n.mu.Lock()
	}
}
