package pool

import (
	"context"
	"errors"
	"slices"
)

// errStuck is what a submit of a handler is ended with that only handlers could make room for, all of whom wait in submits.
var errStuck = errors.New("pool: all handlers wait in submits, and only they could make room")

// submission is a call of a handler that waits in a submit.
type submission struct {
	end      func()      // ends it; nil if it does not wait for room
	hopeless func() bool // tells whether only handlers can make room
	ended    bool        // it is about to come back
}

// yield is Yield for a submit. That of a handler of another pool is nothing that this one knows of.
func (p *Pool[V]) yield(ctx context.Context, s *submission, f func()) {
	if w := workerOf(ctx); w != nil && w.crew == &p.crew {
		w.yield(s, f)
		return
	}
	Yield(ctx, f)
}

// stuckLocked tells whether all handlers wait in submits, some of them for room, and there is no task that could be taken.
func (c *crew) stuckLocked() bool {
	return len(c.submissions) > 0 && len(c.submissions) == c.inside && len(c.idle) == c.workers && len(c.returning) == 0 &&
		!c.fetching && len(c.surplus) == 0 && c.away == 0 && c.ahead.Load() == 0 && c.mayTakeLocked() &&
		!slices.ContainsFunc(c.submissions, func(s *submission) bool { return s.ended })
}

// unstickLocked ends one submit if the handlers are stuck, the one that began last of those that wait for room: by that its
// handler goes on. It is called whenever that may be so.
func (c *crew) unstickLocked() {
	if !c.stuckLocked() || c.unsticking {
		return
	}
	var last *submission
	for _, s := range c.submissions {
		if s.end != nil {
			last = s
		}
	}
	if last == nil {
		return
	}
	c.unsticking = true
	c.running.Go(func() { // no background, for that would not be stuck
		hopeless := last.hopeless()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.unsticking = false
		if hopeless && c.stuckLocked() && slices.Contains(c.submissions, last) {
			last.ended = true
			last.end()
		}
	})
}

// hopeless tells whether nothing but the handlers of the pool can make room in its queues: nothing is about to be ready, others have taken
// nothing, and there is nothing that only they can take.
func (p *Pool[V]) hopeless() bool {
	for _, c := range p.lines.classes { // a watch may be about to tell that there is a task
		c.waiting.Store(false)
	}
	p.lines.changed.Store(true)
	p.fetch()
	for _, c := range p.lines.classes {
		s, err := c.queue.Stats(p.ctx)
		if err != nil || s.Paused || s.Delayed > 0 || s.Taken > int(c.taken.Load()) || s.Ready > 0 && !c.own {
			return false
		}
	}
	return true
}
