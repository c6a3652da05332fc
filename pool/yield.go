package pool

import (
	"context"
	"slices"
)

// Yield calls f, and meanwhile gives the place of the handler whose context this is to another one.
// A handler that waits for other tasks of its pool does that in f, else all workers could wait for
// tasks for which there is no worker. When f returns, it waits until there is a place again, before
// others. Without such a context it just calls f. It must not be called when the handler has
// returned.
func Yield(ctx context.Context, f func()) {
	w := workerOf(ctx)
	if w == nil {
		f()
		return
	}
	w.yield(nil, f)
}

func (w *worker) yield(s *submission, f func()) {
	w.crew.leave(w, s)
	defer w.crew.comeBack(w, s)
	f()
}

// leave gives the place of a worker to another one.
func (c *crew) leave(w *worker, s *submission) {
	c.mu.Lock()
	c.inside++
	if s != nil {
		c.submissions = append(c.submissions, s)
	}
	w.depth++
	if w.depth > 1 { // it has none
		c.unstickLocked()
		c.mu.Unlock()
		return
	}
	c.nested++
	c.workers--
	c.attendLocked()
	c.mu.Unlock()
	c.source.more(-1)
	c.fetch()
}

// comeBack gets a place for a worker again.
func (c *crew) comeBack(w *worker, s *submission) {
	c.mu.Lock()
	c.inside--
	c.submissions = slices.DeleteFunc(c.submissions, func(other *submission) bool { return other == s })
	w.depth--
	if w.depth > 0 {
		c.mu.Unlock()
		return
	}
	place := make(chan struct{})
	c.returning = append(c.returning, place)
	if c.workers >= c.scale.Max && len(c.idle) > 0 {
		c.dismissLocked(1)
	}
	c.attendLocked()
	c.mu.Unlock()
	<-place
	c.mu.Lock()
	c.nested--
	c.stirLocked()
	c.mu.Unlock()
	c.source.more(1)
	c.fetch()
}
