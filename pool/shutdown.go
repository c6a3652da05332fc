package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"time"

	"github.com/fairq/fairq/task"
)

// shutdown ends the workers. If ctx is done first, or already is, it cancels the contexts of the handlers that run, and waits for these a
// little longer.
func (c *crew) shutdown(ctx context.Context) error {
	c.mu.Lock()
	first := !c.closing
	c.closing = true
	workers, idle, nested := c.workers, len(c.idle), c.nested
	c.stirLocked()
	c.mu.Unlock()
	if first {
		c.log.Debug("pool: shutting down", "workers", workers, "idle", idle, "nested", nested)
	}
	c.fetch()
	select {
	case <-c.done.Done():
		c.stop()
		return nil
	case <-ctx.Done():
	}
	select {
	case <-c.done.Done():
		c.stop()
		return nil
	default:
	}
	c.mu.Lock()
	first = !c.forced
	c.forced = true
	running, nested := c.workers-len(c.idle), c.nested
	c.stirLocked()
	c.mu.Unlock()
	c.cancel(ErrShutdown)
	if first {
		c.log.Warn("pool: handlers are cancelled", "running", running, "nested", nested)
	}
	c.fetch()
	timer := time.NewTimer(c.abandon)
	defer timer.Stop()
	select {
	case <-c.done.Done():
		c.stop()
	case <-timer.C:
	}
	return context.Cause(ctx)
}

// giveUpAfter ends the contexts of sinks AbandonAfter later than ctx, and the waiting for them as much later again.
func (c *crew) giveUpAfter(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		time.AfterFunc(c.abandon, func() {
			c.giveUp()
			time.AfterFunc(c.abandon, c.forsake)
		})
	})
}

// stop ends what is left when all handlers have returned.
func (c *crew) stop() {
	c.running.Wait()
	c.cancel(ErrShutdown)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, timer := range []*time.Timer{c.retry, c.reaper.timer, c.clock.timer} {
		if timer != nil {
			timer.Stop()
		}
	}
}

// stirLocked makes all workers see that something has changed for all of them.
func (c *crew) stirLocked() {
	c.attendLocked()
	if c.closing && !c.mayTakeLocked() {
		c.dismissLocked(len(c.idle))
	}
}

// AbandonedError says how many handlers and sinks did not return, though their contexts were cancelled, or returned and the queue
// could not be told yet.
type AbandonedError struct {
	Running int
	Err     error // the cause of the context of Shutdown
}

// Error tells how many.
func (e *AbandonedError) Error() string {
	return fmt.Sprintf("pool: %d handlers or sinks run on though they were cancelled: %v", e.Running, e.Err)
}

// Unwrap returns Err.
func (e *AbandonedError) Unwrap() error { return e.Err }

// abandoned returns an AbandonedError if something runs on after Shutdown, else err.
func (c *crew) abandoned(ctx context.Context, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.workers - len(c.idle) + c.nested + c.away + int(c.forsaken.Load()); n > 0 {
		return &AbandonedError{n, context.Cause(ctx)}
	}
	return err
}

// outside returns an error if a handler has made the call, or another function that a worker calls: it would wait for itself. That
// is told by the goroutine, for a handler need not have handed on its context, and may start goroutines that outlive it.
func (c *crew) outside(call string) error {
	if _, inside := c.goroutines.Load(goroutine()); inside {
		return invalid("%s is called by a handler of the pool, for which it would wait; call it in a goroutine of its own", call)
	}
	return nil
}

// begin starts a goroutine that Shutdown waits for.
func (c *crew) begin(f func()) {
	c.running.Go(func() {
		number := goroutine()
		c.goroutines.Store(number, nil)
		defer c.goroutines.Delete(number)
		f()
	})
}

// goroutine returns the number that stack traces have for the goroutine that calls it.
func goroutine() (number uint64) {
	var line [64]byte
	_, _ = fmt.Sscanf(string(line[:runtime.Stack(line[:], false)]), "goroutine %d ", &number)
	return number
}

// Shutdown ends the pool: what was taken ahead is handed back, tasks are neither submitted nor taken any more, and what runs is finished. As long as a handler is in
// [Yield] or SubmitWait, tasks are taken, for it may wait for one. If ctx is done first, the contexts of the handlers are cancelled, with the
// cause [ErrShutdown]; those that then return an error have not failed, and their attempts do not count: their tasks go back
// into the queue. Handlers that have not returned Options.AbandonAfter later are left to themselves, and their tasks go back too.
//
// A queue that is not the pool's own keeps what is left in it. What is left in one of its own goes to DeadLetters, with the reason
// Shutdown, or else to Leftovers. When ctx is done and the handlers have returned or were left to themselves, sinks have AbandonAfter
// until their contexts are done, and another AbandonAfter to return. What they have not taken by then is in Leftovers.
//
// If the store of a queue cannot take back what the pool holds, it returns that error, and can be called again when it can.
//
// It returns nil if all handlers came to their own end, the cause of ctx if they had to be cancelled, and a [*AbandonedError] if
// some did not listen. It can be called again, also at the same time, for instance with another ctx. In the goroutine of a handler it
// would wait for itself: there it does nothing, and returns an [ErrInvalid].
func (p *Pool[V]) Shutdown(ctx context.Context) error {
	if err := p.outside("Shutdown"); err != nil {
		return err
	}
	p.shut(ErrShutdown)
	err := p.shutdown(ctx)
	defer p.giveUpAfter(ctx)() // or a sink could hold it up for ever
	p.finish.Do(p.close)
	if bad := p.dismiss(); bad != nil {
		return errors.Join(p.abandoned(ctx, err), bad)
	}
	return p.abandoned(ctx, err)
}

// StopAndWait is Shutdown that works the backlog off first: from now on nothing is submitted any more, but by handlers, and when all
// that is queued has been done, as [Pool.Wait] has it, delayed tasks and retries too, it shuts the pool down. If ctx is done first,
// it goes on as Shutdown does then, and returns at least the cause of ctx. While the pool is paused nothing is done. What others put
// into a queue that is not the pool's own is done too, as long as it comes.
func (p *Pool[V]) StopAndWait(ctx context.Context) error {
	if err := p.outside("StopAndWait"); err != nil {
		return err
	}
	p.shut(ErrShutdown)
	left := p.Wait(ctx)
	if left != nil && ctx.Err() != nil {
		left = context.Cause(ctx)
	}
	return cmp.Or(p.Shutdown(ctx), left)
}

// dismiss hands back what the pool holds of queues that are not its own. What has been handed back once is not again.
func (p *Pool[V]) dismiss() (err error) {
	for _, c := range p.lines.classes {
		if c.own {
			continue
		}
		if bad := c.consumer.Close(context.Background()); bad != nil && !isOver(bad) {
			err = errors.Join(err, fmt.Errorf("pool: tasks of class %q could not be handed back: %w", c.name, bad))
		}
	}
	return err
}

// close ends what is left, but for dismiss. No task is taken any more.
func (p *Pool[V]) close() {
	if p.submitting.Add(sealed) != sealed {
		<-p.through
	}
	p.unfollow()
	p.following.Wait()
	if p.lines.stock != nil {
		p.lines.stock.end()
	}
	ctx := context.Background()
	for _, c := range p.lines.classes {
		c.watch.Disarm()
		c.many.Disarm()
		if c.own {
			_ = c.consumer.Close(ctx) // it is in memory
			p.clear(ctx, c)
		}
	}
	s := p.Stats()
	p.log.Debug("pool: shut down", "succeeded", s.Succeeded, "failed", s.Failed, "retried", s.Retried, "returned", s.Returned,
		"letters", s.DeadLetters, "leftovers", s.Leftovers)
}

// clear empties a queue of the pool's own.
func (p *Pool[V]) clear(ctx context.Context, c *class[V]) {
	defer c.queue.Close(ctx)
	for after := task.ID(0); ; {
		tasks, err := c.queue.List(ctx, task.ListOptions{After: after, Limit: task.MaxBatch})
		if err != nil || len(tasks) == 0 {
			return
		}
		for _, t := range tasks {
			if t.State == task.Ready || t.State == task.Delayed {
				p.cut.Store(true)
			}
			after = t.ID
			if c.queue.Delete(ctx, t.ID) != nil {
				continue // its time was over just now
			}
			letter := newLetter(c.name, t, Shutdown, ErrShutdown)
			if t.Err != nil {
				letter.Err = t.Err
			}
			if t.State == task.Buried {
				letter.Reason = Failed
			}
			if p.sink != nil {
				err := send(p.steady, &p.crew, &p.observer, p.sink, letter)
				if err == nil {
					continue
				}
				p.log.Warn("pool: a letter could not be sent", about(c.name, &t.Info, err)...)
			}
			p.leftMu.Lock()
			p.leftovers = append(p.leftovers, *letter)
			p.leftMu.Unlock()
			p.leftover.Add(1)
		}
	}
}

// Leftovers returns what was left in queues of the pool's own when it was shut down, and no sink has taken.
func (p *Pool[V]) Leftovers() []DeadLetter[V] {
	p.leftMu.Lock()
	defer p.leftMu.Unlock()
	return append([]DeadLetter[V](nil), p.leftovers...)
}

// sealed is far below zero, so that submitting is too.
const sealed = math.MinInt64 / 2

// enterQueue returns an error if no task may be submitted with this context. Afterwards leaveQueue must be called in any case.
func (p *Pool[V]) enterQueue(ctx context.Context) error {
	if p.submitting.Add(1) <= 0 || p.open.Err() != nil && !p.isHandler(ctx) {
		return ErrShutdown
	}
	return ctx.Err()
}

// isHandler tells whether this is the context of a handler of the pool.
func (p *Pool[V]) isHandler(ctx context.Context) bool {
	w := workerOf(ctx)
	return w != nil && w.crew == &p.crew
}

func (p *Pool[V]) leaveQueue() {
	switch left := p.submitting.Add(-1); {
	case left == sealed:
		select {
		case p.through <- struct{}{}:
		default: // this one was refused
		}
	case left == 0 && p.open.Err() != nil:
		p.settle()
	}
}
