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
// task stays in the queue. After Shutdown it returns [ErrShutdown] if the queue is the pool's own.
// In another queue it waits on, because other processes may do its tasks. The options must not
// have Replace.
//
// A handler of the pool may call Do: while it waits, another handler gets its place, as in
// [Yield]. If the task cannot start before the handler has returned, only ctx ends the wait. A
// task of the handler's own key is such a task, if MaxInFlightPerKey is 1.
func (p *Pool[V]) Do(ctx context.Context, key string, payload V, options PutOptions) error {
	c, err := p.class(options.Class)
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
