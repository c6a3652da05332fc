package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fairq/fairq/task"
)

// shutdown ends the workers after their tasks. If ctx is done first it cancels the contexts of the
// handlers, and waits for at most abandonAfter.
func (ws *workerSet) shutdown(ctx context.Context) error {
	ws.mu.Lock()
	ws.closing = true
	ws.updateAllLocked()
	ws.mu.Unlock()
	ws.wake()
	select {
	case <-ws.done.Done():
	case <-ctx.Done():
	}
	if ws.done.Err() != nil { // even if ctx is done too
		ws.running.Wait()
		ws.cancel(ErrShutdown)
		return nil //nolint:nilerr // done is a sign, no error
	}
	first := ws.ctx.Err() == nil
	ws.cancel(ErrShutdown)
	ws.mu.Lock()
	running, nested := ws.active-len(ws.idle), ws.yielding
	ws.updateAllLocked()
	ws.mu.Unlock()
	if first {
		ws.log.Warn("pool: handlers are cancelled", "running", running, "nested", nested)
	}
	ws.wake()
	select {
	case <-ws.done.Done():
		ws.running.Wait()
	case <-time.After(ws.abandonAfter):
	}
	return context.Cause(ctx)
}

// updateAllLocked makes the workers see that the set is closing, or that handlers were cancelled.
func (ws *workerSet) updateAllLocked() {
	ws.updateLocked()
	if ws.closing && ws.mostLocked() == 0 {
		ws.endIdleLocked(len(ws.idle))
	}
	ws.notifyQuietLocked()
}

// abandonedError returns an [ErrAbandoned] if something still runs after Shutdown, or tasks were
// released in it, else err.
func (ws *workerSet) abandonedError(ctx context.Context, err error, released int) error {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	n := ws.active - len(ws.idle) + ws.yielding + ws.backgroundCalls + ws.outbox.busy() +
		released
	if n > 0 {
		return errors.Join(fmt.Errorf("%w: %d handlers, sinks or letters", ErrAbandoned, n),
			context.Cause(ctx))
	}
	return err
}

// notInHandler returns an error if this is the context of a handler, or of another function for
// which the set waits, such as a sink: it would wait for itself.
func (ws *workerSet) notInHandler(ctx context.Context, call string) error {
	if setOf(ctx) == ws {
		return invalid("%s is called with the context of a handler of the pool, for which it would "+
			"wait; call it with another context, in a goroutine of its own", call)
	}
	return nil
}

// Shutdown ends the pool. It submits and takes no more tasks, hands prefetched ones back, and lets
// running handlers finish. While a handler is in [Yield] or Do, workers still take tasks, because
// it may wait for one.
//
// If ctx is done first, the contexts of the handlers are cancelled with the cause [ErrShutdown].
// If a handler then returns an error, its task has not failed: it goes back into the queue, and
// the attempt does not count. A handler that has not returned after Options.AbandonAfter is
// abandoned, and its task goes back too.
//
// A queue that is not the pool's own keeps its tasks. The tasks left in a queue of the pool's own
// go to DeadLetters, with the reason Shutdown; without DeadLetters they are in Leftovers.
//
// The contexts of sinks end when ctx is done, the handlers have ended or were abandoned, and
// AbandonAfter has passed. After another AbandonAfter Shutdown waits no longer. Tasks whose
// letters no sink has taken then are in Leftovers, or buried; evicted and expired ones are only in
// the log.
//
// Shutdown returns nil, or
//
//   - the cause of ctx if handlers had to be cancelled, and an [ErrAbandoned] if some were
//     abandoned;
//   - an [ErrShutdown] with the number of tasks in Leftovers, which end with the process;
//   - the error of a store that cannot take back the pool's tasks: call Shutdown again when it
//     can.
//
// It may be called several times, even at the same time, for instance with another ctx. A handler
// must not call it, because it would wait for itself: with its context Shutdown does nothing and
// returns an [task.ErrInvalid].
func (p *Pool[V]) Shutdown(ctx context.Context) error {
	if err := p.notInHandler(ctx, "Shutdown"); err != nil {
		return err
	}
	defer p.warnRest()
	defer p.markOver()
	p.stopAccepting(ErrShutdown)
	err := p.shutdown(ctx)
	defer p.outbox.giveUpAfter(ctx)() // otherwise a sink could block it forever
	p.outbox.wait()
	p.closeOnce.Do(p.close)
	p.outbox.wait() // for letters of tasks that were left, or expired in between
	released, bad := p.release()
	if err == nil { // they are back, or bad says why not
		released = 0
	}
	err = p.abandonedError(ctx, err, released)
	if bad == nil {
		bad = p.handBackAll()
	}
	if left := len(p.Leftovers()); left > 0 {
		bad = errors.Join(bad,
			fmt.Errorf("%w with %d of its tasks undone, in Leftovers", ErrShutdown, left))
	}
	if bad != nil {
		return errors.Join(err, bad)
	}
	return err
}

// StopAndWait finishes the backlog and then shuts the pool down. From now on only handlers, sinks
// and the Observer can submit. When all queued tasks are done, in the sense of [Pool.Wait], also
// delayed ones and retries, it calls Shutdown. A task that repeats (see [Repeat]) stays in the
// queue, or is in Leftovers if the queue is the pool's own. If ctx is done first, StopAndWait
// calls Shutdown immediately, and returns at least the cause of ctx. If a queue cannot report its
// tasks, it also calls Shutdown, and returns that error.
//
// While the pool is paused no task is done. Other programs may put tasks into a queue that is not
// the pool's own: these are done too, as long as they keep coming.
func (p *Pool[V]) StopAndWait(ctx context.Context) error {
	if err := p.notInHandler(ctx, "StopAndWait"); err != nil {
		return err
	}
	p.stopAccepting(ErrShutdown)
	left := p.Wait(ctx)
	if left != nil && ctx.Err() != nil {
		left = context.Cause(ctx)
	}
	err := p.Shutdown(ctx)
	if left != nil && !errors.Is(err, left) {
		err = errors.Join(left, err)
	}
	return err
}

// release hands back the tasks that could not be settled. Their attempts count, because handlers
// have run them, so closing the consumer must not hand them back.
func (p *Pool[V]) release() (n int, err error) {
	p.unsettled.Range(func(key, t any) bool {
		n++
		of := t.(task.Task[V])
		if err = of.Release(context.Background(), 0); err != nil && !isLost(err) {
			return false
		}
		err = nil
		p.unsettled.Delete(key)
		return true
	})
	return n, err
}

// handBackAll hands back the pool's tasks of queues that are not its own. It is idempotent.
func (p *Pool[V]) handBackAll() (err error) {
	for _, c := range p.classes {
		if c.own || c.queue == nil {
			continue
		}
		if bad := c.consumer.Close(context.Background()); bad != nil && !isOver(bad) {
			err = errors.Join(err,
				fmt.Errorf("pool: tasks of class %q could not be handed back: %w", c.name, bad))
		}
	}
	return err
}

// close ends the rest of the pool, except handBackAll. No tasks are taken after it.
func (p *Pool[V]) close() {
	if p.submitting.Add(sealed) != sealed {
		<-p.submitsDone
	}
	ctx := context.Background()
	for _, c := range p.classes {
		c.disarm()
		if c.own {
			_ = c.consumer.Close(ctx) // in memory that cannot fail
			p.clear(ctx, c)
		}
	}
}

// clear closes a queue of the pool's own, and hands its tasks to DeadLetters or Leftovers.
func (p *Pool[V]) clear(ctx context.Context, c *class[V]) {
	defer c.queue.Close(ctx)
	for after := task.ID(0); ; {
		tasks, err := c.queue.List(ctx, task.ListOptions{After: after, Limit: task.MaxBatch})
		if err != nil || len(tasks) == 0 {
			return
		}
		for _, t := range tasks {
			state := t.Info().State
			after = t.ID
			if c.queue.Delete(ctx, t.ID) != nil {
				continue // its time was over just now
			}
			letter := newDeadLetter(c.name, t, ReasonShutdown, ErrShutdown)
			if letter.Task.Err != nil {
				letter.Err = letter.Task.Err
			}
			if state == task.Buried {
				letter.Reason = ReasonFailed
			}
			if p.sink == nil {
				p.leave(letter)
				continue
			}
			p.post(letter, nil, func(refused error) {
				if refused != nil {
					p.warn("pool: a letter could not be sent", 1, logAttrs(c.name, t, refused))
					p.leave(letter)
				}
			})
		}
	}
}

// leave adds to the Leftovers.
func (p *Pool[V]) leave(letter *DeadLetter[V]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leftovers = append(p.leftovers, *letter)
}

// Leftovers returns the tasks that Shutdown left in queues of the pool's own, and no sink has
// taken.
func (p *Pool[V]) Leftovers() []DeadLetter[V] {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.leftovers)
}
