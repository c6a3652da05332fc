package pool

import (
	"context"
	"errors"
	"slices"
)

// errStuck ends a submit that a handler makes, when all handlers wait in submits and only they
// could make room.
var errStuck = errors.New("pool: all handlers wait in submits, and only they could make room")

// waitingSubmit is a submit that a handler makes and that may have to wait.
type waitingSubmit struct {
	end                  func()      // ends the waiting for room; nil if it does not wait for that
	onlyHandlersMakeRoom func() bool // tells whether only handlers can make room
	ended                bool        // end was called
}

// yieldSubmit is [Yield] for a submit. If a handler of another pool submits, that pool just knows
// that the handler waits, and this one does not know of it at all.
func (p *Pool[V]) yieldSubmit(ctx context.Context, s *waitingSubmit, f func()) {
	if w := workerOf(ctx); w != nil && w.set == &p.workerSet {
		w.yield(s, f)
		return
	}
	Yield(ctx, f)
}

// stuckLocked tells whether all handlers wait in submits, and no task is on its way to a worker.
// It differs from quietLocked in that: there are handlers in Yield, but only in submits.
func (ws *workerSet) stuckLocked() bool {
	return len(ws.submissions) > 0 && len(ws.submissions) == ws.yieldCalls && len(ws.idle) == ws.active && len(ws.returning) == 0 &&
		!ws.dispatching && len(ws.unassigned) == 0 && ws.backgroundCalls == 0 && ws.prefetched.Load() == 0 && ws.mayTakeLocked() &&
		!slices.ContainsFunc(ws.submissions, func(s *waitingSubmit) bool { return s.ended })
}

// unstickLocked ends one submit if all handlers are stuck: of those that wait for room, the one
// that began last. Its handler goes on, and can make room. It is called whenever handlers may be
// stuck.
func (ws *workerSet) unstickLocked() {
	if !ws.stuckLocked() || ws.unsticking {
		return
	}
	var last *waitingSubmit
	for _, s := range ws.submissions {
		if s.end != nil {
			last = s
		}
	}
	if last == nil {
		return
	}
	ws.unsticking = true
	ws.running.Go(func() { // not in background: the set would not be stuck while that runs
		hopeless := last.onlyHandlersMakeRoom()
		ws.mu.Lock()
		defer ws.mu.Unlock()
		ws.unsticking = false
		if hopeless && ws.stuckLocked() && slices.Contains(ws.submissions, last) {
			last.ended = true
			last.end()
		}
	})
}

// onlyHandlersMakeRoom tells whether nothing but the handlers of the pool can make room in its
// queues: no task is going to be ready, no other process has taken one, and there is none that
// only others can take.
func (p *Pool[V]) onlyHandlersMakeRoom() bool {
	// Ask each queue: a taskWatch may be about to tell that there is a task.
	for _, c := range p.tasks.classes {
		c.watching.Store(false)
	}
	p.tasks.mayHaveTasks.Store(true)
	p.dispatch()
	for _, c := range p.tasks.classes {
		s, err := c.queue.Stats(p.ctx)
		if err != nil || s.Paused || s.Delayed > 0 || s.Taken > int(c.taken.Load()) || s.Ready > 0 && !c.own {
			return false
		}
	}
	return true
}
