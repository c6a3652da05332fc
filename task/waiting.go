package task

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/fairq/fairq/task/driver"
)

// takers are the goroutines that wait for a task: those with the same filter in one group, first
// come, first served. No task is handed to them; one that may find a task is woken, and looks for
// it. Those that are woken have left their groups' wait queues.
//
// A group is tested if one of its takers has looked and found no task, and if for each task that
// became ready since then, and that passes its filter, some taker was woken, or is looking. So a
// taker that joins a tested group need not look. A taker that was woken may find nothing, because
// others were quicker, or another task than the one it was woken for, or more may have changed
// meanwhile: then there may still be a task for others, and their groups are not tested any more.
// One taker after the other looks until all groups are tested.
//
// Within a group no taker overtakes another. Between groups one can: a taker that looks because no
// other wanted a task may find another task that became ready just then.
type takers struct {
	groups  []*takerGroup // those in which somebody waits, and some others
	arrived uint64
	changes uint64 // calls of ready and look
	woken   int    // takers that are looking

	// oneAtATime says that only one taker looks at a time, so none is quicker than one that came
	// before it. That is right where looking takes no time.
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
	changes  uint64 // takers.changes as of when it began to look
	looked   *setFilter
	since    uint64 // takers.changes as of when it was woken
	woken    bool
	wake     chan struct{}
	watch    *count // called instead of wake, if it is a Watch's
	busy     bool   // a call of the Watch sees for itself that it is woken
	notified bool   // the Watch's function was called, and Take was not since
}

// consumerState is what waiting takers must know of their consumer.
type consumerState struct {
	ending
	filter atomic.Pointer[setFilter] // changed under notifier.mu
}

// ending is why something cannot be used any more; nil if it can. It changes under notifier.mu.
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
		if len(g.waitQueue) > 0 && g.filter.Passes(priority, kind) && (first == nil || g.waitQueue[0].arrived < first.arrived) {
			first = g.waitQueue[0]
		}
	}
	if first != nil && (t.woken == 0 || !t.oneAtATime) {
		t.wake(first)
	}
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
		if !w.busy && !w.notified { // it may be woken, and its consumer end, at the same time
			w.notified = true
			w.watch.callLocked()
		}
		return
	}
	select {
	case w.wake <- struct{}{}:
	default: // there is a signal that it has not seen yet
	}
}

// wakeNext wakes the first taker of those that ought to look, if none is looking.
func (t *takers) wakeNext() {
	if t.woken > 0 {
		return
	}
	var first *taker
	for _, g := range t.groups {
		if len(g.waitQueue) > 0 && !g.tested && (first == nil || g.waitQueue[0].arrived < first.arrived) {
			first = g.waitQueue[0]
		}
	}
	if first != nil {
		t.wake(first)
	}
}

// arrive puts a taker into the wait queue of its group that was in none.
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

// leave takes a taker out of its wait queue, or ends its looking. found says whether it looked and
// found something.
func (t *takers) leave(w *taker, found bool) {
	if !w.woken {
		i := slices.Index(w.group.waitQueue, w)
		w.group.waitQueue = slices.Delete(w.group.waitQueue, i, i+1)
	} else {
		t.woken--
		// If it will not look, others must; and if perhaps it has not found what it was woken for.
		if !found || w.since != t.changes || w.looked.id != w.group.filter.id {
			t.untest(nil)
		}
	}
	w.woken = false
	t.wakeNext()
	t.trim(w.group)
}

// foundLast puts a taker that has found a task back into its wait queue, if there can be no other
// one: it was woken for this one, its group was tested before, and nothing has changed since. If it
// is not sure of that, it returns false.
func (t *takers) foundLast(w *taker) bool {
	if !t.oneAtATime || !w.group.tested || w.since != t.changes || w.looked != w.consumer.filter.Load() || w.looked.id != w.group.filter.id {
		return false
	}
	w.woken = false
	t.woken--
	t.arrive(w)
	w.group.tested = true
	t.wakeNext()
	return true
}

// foundNothing puts a taker that found nothing back into its wait queue, unless it must look again.
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

// spareGroups is how many groups are kept in which nobody waits.
const spareGroups = 8

// trim forgets a group in which nobody waits, or at least what it knew.
func (t *takers) trim(g *takerGroup) {
	if len(g.waitQueue) == 0 {
		g.tested = false
		if i := slices.Index(t.groups, g); i >= 0 && len(t.groups) > spareGroups {
			t.groups = slices.Delete(t.groups, i, i+1)
		}
	}
}

// signalEnded makes the waiting takers of a consumer see that it is over, or those that are watches
// if the queue is.
func (t *takers) signalEnded(c *consumerState) {
	for _, g := range t.groups {
		for _, w := range g.waitQueue {
			if w.consumer == c || c == nil && w.watch != nil {
				w.signal()
			}
		}
	}
}

// take calls try until it has found something, and in between waits until that may be so.
func (n *notifier) take(ctx context.Context, c *consumerState, try func(*driver.Taker) (found bool, err error)) error {
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
			n.unlocked(func() { found, err = try(&w.looked.Taker) }, func() { n.takers.leave(w, false) })
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

// sleepLocked waits, without the lock, until there is a signal or the queue is over, or returns the
// error of ctx when that is done.
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

// unlocked calls f without the lock. If it panics, it calls broken with the lock, which it leaves
// locked in any case.
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

// overFor returns why the queue, or else the consumer, cannot be used any more, nil if both can.
func (n *notifier) overFor(c *consumerState) error {
	if err := n.over(); err != nil {
		return err
	}
	return c.over()
}
