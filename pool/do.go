package pool

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"

	"github.com/fairq/fairq/task"
)

// Do is Put that waits for the outcome. It returns nil if the task was done, and the recorded
// [*task.Error] if it failed for good. If ctx is done first it returns the error of ctx, and the
// task stays in the queue. While a handler of the pool waits in it, another one gets its place, as
// in [Yield]: only ctx ends the wait for a task that cannot start before the handler has returned,
// such as one of its own key with a MaxInFlightPerKey of 1. After Shutdown it returns
// [ErrShutdown] if the queue is the pool's own. In another queue it waits on, because other
// processes may do its tasks. The options must not have Replace.
func (p *Pool[V]) Do(ctx context.Context, key string, payload V, options PutOptions) error {
	c, err := p.tasks.class(options.Class)
	switch {
	case err != nil:
		return err
	case options.Replace:
		return invalid("Do: PutOptions.Replace is true; call Put and Queue.Wait")
	}
	options.UniqueKey = cmp.Or(options.UniqueKey, rand.Text())
	Yield(ctx, func() {
		if _, err = p.Put(ctx, key, payload, options); err != nil {
			return
		}
		err = c.queue.Wait(ctx, options.UniqueKey)
		if c.own && p.ctx.Err() != nil && (isOver(err) || errors.Is(err, task.ErrDeleted)) {
			err = ErrShutdown // Shutdown has moved the task to Leftovers
		}
	})
	return err
}
