package pool

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

// Do is Put that waits for the outcome. It returns nil if the task was done, and the recorded
// [*task.Error] if it failed for good. If ctx is done first it returns the error of ctx, and the
// task stays in the queue. While a handler of the pool waits in it, another one gets its place, as
// in [Yield]. A task that follows another one (see Replace) may take its place, and then Do
// returns the outcome of that one. After Shutdown it returns [ErrShutdown] if the queue is the
// pool's own. In another queue it waits on, because other processes may do its tasks.
//
// A handler that calls it with its context gets an [ErrWouldWait] for a task that could never
// start, by the limits that keys have when their calls begin. For that Do reads the limit of the
// key, and needs steps in proportion to the calls of handlers that wait in it.
func (p *Pool[V]) Do(ctx context.Context, key string, payload V, options PutOptions) error {
	c, err := p.tasks.class(options.Class)
	if err != nil {
		return err
	}
	if options.UniqueKey == "" {
		options.UniqueKey = rand.Text()
	}
	if call := c.newNestedCall(ctx, key, &options); call != nil {
		if call.limit, err = c.queue.MaxInFlight(ctx, key); err == nil {
			err = p.nested.enter(call)
		}
		if err != nil {
			return err
		}
		defer p.nested.leave(call)
	}
	Yield(ctx, func() {
		var id task.ID
		if id, err = p.Put(ctx, key, payload, options); err != nil {
			return
		}
		if err = fairq.ErrFull; id != 0 {
			err = c.wait(ctx, options.UniqueKey, options.Replace, id)
			if c.own && p.ctx.Err() != nil && (isOver(err) || errors.Is(err, task.ErrDeleted)) {
				err = ErrShutdown // Shutdown has moved the task to Leftovers
			}
		}
	})
	return err
}

// wait waits for the outcome of a task that was put with a unique key. If it may have replaced a
// task, it may follow that; then its outcome is the second one of the unique key, or that of the
// first task if it has taken its place.
func (c *class[V]) wait(
	ctx context.Context, uniqueKey string, replaces bool, id task.ID,
) error {
	if !replaces {
		return c.queue.Wait(ctx, uniqueKey)
	}
	t, err := c.queue.Peek(ctx, id)
	follows := err == nil && t.Info().State == task.Held && t.Info().UniqueKey == ""
	outcome := c.queue.Wait(ctx, uniqueKey)
	if !follows || !isOutcome(outcome) {
		return outcome
	}
	if err := c.queue.Wait(ctx, uniqueKey); !errors.Is(err, task.ErrNotFound) {
		return err
	}
	return outcome
}

// isOutcome reports whether an error of Queue.Wait is the outcome of a task.
func isOutcome(err error) bool {
	return err == nil || errors.As(err, new(*task.Error)) || errors.Is(err, task.ErrDeleted) ||
		errors.Is(err, task.ErrExpired)
}
