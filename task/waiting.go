package task

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/fairq/fairq/internal/driver"
)

// takers are the goroutines that wait for a task. Takers with the same filter are in one group,
// first come, first served. The notifier hands them no task: it wakes a taker that may find one,
// and the taker looks for it. A woken taker has left the wait queue of its group.
//
// A group is tested if one of its takers has looked and found no task. Tasks that pass its filter
// may have become ready since: then for each of them a taker was woken, or is looking. So a taker
// that joins a tested group need not look. A woken taker may find nothing, because others were
// quicker. Or it finds another task than the one it was woken for, or more has changed since. In
// these cases there may still be a task for others, so their groups are no longer tested. One
// taker after the other looks until all groups are tested.
//
// Within a group no taker overtakes another. Between groups one can: a taker that looks because no
// other wanted a task may find another task that has just become ready.
type takers struct {
	groups  []*takerGroup // all that have waiting takers, and some others
	arrived uint64
	changes uint64 // calls of ready and look
	woken   int    // takers that are looking

	// oneAtATime lets only one taker look at a time, so that none is quicker than an earlier one. It
	// is set where looking takes no time.
	oneAtATime bool
}

type takerGroup struct {
	filter    *setFilter
	waitQueue []*taker // by arrival
	tested    bool
}

// taker is a goroutine that waits for a task.
type taker struct {
	consumer *consumerState
	group    *takerGroup
	arrived  uint64
	changes  uint64 // takers.changes when it began to look
	looked   *setFilter
	since    uint64 // takers.changes when it was woken
	woken    bool
	wake     chan struct{}
	watch    *call // of a Watch: called instead of wake
	busy     bool  // a call of the Watch is running, and will see that the taker is woken
	notified bool  // the Watch's function was called, and Take was not called since
}

// consumerState is the part of a consumer that waiting takers read.
type consumerState struct {
	ending
	filter atomic.Pointer[setFilter] // changed under notifier.mu
}

// ending has the error of a queue or consumer that cannot be used any more, nil if it can. It
// changes under notifier.mu.
type ending struct{ why atomic.Pointer[error] }

func (e *ending) over() error {
	if why := e.why.Load(); why != nil {
		return *why
	}
	return nil
}

// ready wakes the first taker that wants such a task.
func (t *takers) ready(priority int, kind string) {
	t.changes++
	var first *taker
	for _, g := range t.groups {
		if len(g.waitQueue) > 0 && g.filter.Passes(priority, kind) {
			first = g.earlier(first)
		}
	}
	if first != nil && (t.woken == 0 || !t.oneAtATime) {
		t.wake(first)
	}
}

// earlier returns the first taker of the group, or w if that arrived before it.
func (g *takerGroup) earlier(w *taker) *taker {
	if w == nil || g.waitQueue[0].arrived < w.arrived {
		return g.waitQueue[0]
	}
	return w
}

// look makes the takers look for a task, one after the other.
func (t *takers) look() {
	t.changes++
	t.untest(nil)
	t.wakeNext()
}

// untest makes all groups look again, except one.
func (t *takers) untest(except *takerGroup) {
	for _, g := range t.groups {
		g.tested = g.tested && g == except
	}
}

// wake wakes the first taker of a wait queue.
func (t *takers) wake(w *taker) {
	g := w.group
	if g.waitQueue[0] = nil; len(g.waitQueue) > 1 {
		g.waitQueue = g.waitQueue[1:]
	} else {
		g.waitQueue = g.waitQueue[:0] // to be used again
	}
	w.woken, w.since, w.changes = true, t.changes, t.changes
	t.woken++
	w.signal()
}

func (w *taker) signal() {
	if w.watch != nil {
		if !w.busy && !w.notified { // waking it, and the end of its consumer, may coincide
			w.notified = true
			w.watch.callLocked()
		}
		return
	}
	select {
	case w.wake <- struct{}{}:
	default: // it has not seen the last signal yet
	}
}

// wakeNext wakes the first taker of a group that is not tested, if no taker is looking.
func (t *takers) wakeNext() {
	if t.woken > 0 {
		return
	}
	var first *taker
	for _, g := range t.groups {
		if len(g.waitQueue) > 0 && !g.tested {
			first = g.earlier(first)
		}
	}
	if first != nil {
		t.wake(first)
	}
}

// arrive puts a new taker into the wait queue of its group.
func (t *takers) arrive(w *taker) {
	t.arrived++
	w.arrived = t.arrived
	t.join(w)
}

// join puts a taker into the wait queue of its group.
func (t *takers) join(w *taker) {
	f := w.consumer.filter.Load()
	i := slices.IndexFunc(t.groups, func(g *takerGroup) bool { return g.filter.id == f.id })
	if i < 0 {
		i = len(t.groups)
		t.groups = append(t.groups, &takerGroup{filter: f})
	}
	g := t.groups[i]
	w.group = g
	i = len(g.waitQueue)
	for i > 0 && g.waitQueue[i-1].arrived > w.arrived {
		i--
	}
	g.waitQueue = slices.Insert(g.waitQueue, i, w)
}

// leave takes a taker out of its wait queue, or ends its look. found reports whether it found a
// task.
func (t *takers) leave(w *taker, found bool) {
	if !w.woken {
		i := slices.Index(w.group.waitQueue, w)
		w.group.waitQueue = slices.Delete(w.group.waitQueue, i, i+1)
	} else {
		t.woken--
		// Others must look if this one will not, or may have found another task than it was woken for.
		if !found || w.since != t.changes || w.looked.id != w.group.filter.id {
			t.untest(nil)
		}
	}
	w.woken = false
	t.wakeNext()
	t.trim(w.group)
}

// foundLast is called for a taker that has found a task. If there can be no other task for it,
// foundLast puts it back into its wait queue. That is so if it was woken for this task, its group
// was tested before, and nothing has changed since. Otherwise foundLast returns false.
func (t *takers) foundLast(w *taker) bool {
	if !t.oneAtATime || !w.group.tested || w.since != t.changes ||
		w.looked != w.consumer.filter.Load() || w.looked.id != w.group.filter.id {
		return false
	}
	w.woken = false
	t.woken--
	t.arrive(w)
	w.group.tested = true
	t.wakeNext()
	return true
}

// foundNothing puts a taker that found nothing back into its wait queue, unless it must look
// again.
func (t *takers) foundNothing(w *taker) {
	if w.changes != t.changes || w.looked != w.consumer.filter.Load() {
		w.changes = t.changes
		return
	}
	old := w.group
	w.woken = false
	t.woken--
	t.join(w)
	w.group.tested = true
	if w.since != t.changes || w.looked.id != old.filter.id {
		t.untest(w.group)
	}
	t.wakeNext()
	t.trim(old)
}

// refilter moves the waiting takers of a consumer to the group of its new filter.
func (t *takers) refilter(c *consumerState) {
	var moved []*taker
	for _, g := range slices.Clone(t.groups) {
		kept := g.waitQueue[:0]
		for _, w := range g.waitQueue {
			if w.consumer == c {
				moved = append(moved, w)
			} else {
				kept = append(kept, w)
			}
		}
		g.waitQueue = kept
		t.trim(g)
	}
	for _, w := range moved {
		t.join(w)
	}
	t.wakeNext()
}

// spareGroups is the number of groups beyond which an empty one is dropped.
const spareGroups = 8

// trim drops an empty group, or at least its result of testing.
func (t *takers) trim(g *takerGroup) {
	if len(g.waitQueue) == 0 {
		g.tested = false
		if i := slices.Index(t.groups, g); i >= 0 && len(t.groups) > spareGroups {
			t.groups = slices.Delete(t.groups, i, i+1)
		}
	}
}

// signalEnded wakes the waiting takers of a consumer to see its end. nil stands for the end of the
// queue, which wakes only Watches.
func (t *takers) signalEnded(c *consumerState) {
	for _, g := range t.groups {
		for _, w := range g.waitQueue {
			if w.consumer == c || c == nil && w.watch != nil {
				w.signal()
			}
		}
	}
}

// take calls try until it has found a task, and in between waits until there may be one.
func (n *notifier) take(
	ctx context.Context, c *consumerState, try func(*driver.Taker) (found bool, err error),
) error {
	done := ctx.Done()
	n.addWaiting(&n.takersWaiting, 1)
	defer n.addWaiting(&n.takersWaiting, -1)
	w := &taker{consumer: c, wake: make(chan struct{}, 1)}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.takers.arrive(w)
	n.takers.wakeNext()
	for {
		if err := n.overFor(c); err != nil {
			n.takers.leave(w, false)
			return err
		}
		if w.woken {
			w.looked = c.filter.Load()
			var found bool
			var err error
			n.unlocked(func() { found, err = try(&w.looked.Taker) },
				func() { n.takers.leave(w, false) })
			if found || err != nil {
				n.takers.leave(w, found)
				return err
			}
			n.takers.foundNothing(w)
			continue
		}
		if err := n.sleepLocked(ctx, done, w.wake); err != nil {
			n.takers.leave(w, false)
			return err
		}
	}
}

// sleepLocked waits, without the lock, until there is a signal or the queue is over, or returns
// the error of ctx when that is done.
func (n *notifier) sleepLocked(ctx context.Context, done, wake <-chan struct{}) error {
	n.mu.Unlock()
	defer n.mu.Lock()
	select {
	case <-wake:
	case <-n.ctx.Done():
	case <-done:
		return ctx.Err()
	}
	return nil
}

// unlocked calls f without the lock. If f panics, unlocked calls broken with the lock. It always
// leaves the lock held.
func (n *notifier) unlocked(f, broken func()) {
	n.mu.Unlock()
	returned := false
	defer func() {
		n.mu.Lock()
		if !returned {
			broken()
		}
	}()
	f()
	returned = true
}

// overFor returns the error of a queue or consumer that cannot be used any more, nil if both can.
func (n *notifier) overFor(c *consumerState) error {
	if err := n.over(); err != nil {
		return err
	}
	return c.over()
}
