package pool

import (
	"context"
	"errors"
	"math"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

// PutOptions are the options of a task: those of package task, and the task's class. In a pool a
// MaxAttempts of 0 means the default of the queue, or else that of the Policy; negative means no
// limit.
type PutOptions struct {
	task.PutOptions

	// Class selects the queue, in a pool with several; "" means the first one.
	Class string
}

// Submit puts a task of a key, with the pool's defaults, into the queue of the pool, the first one
// if it has several. If there is no room, it waits for some. If ctx is done, it returns the error
// of ctx. After Shutdown it returns [ErrShutdown], unless a handler, a sink or the Observer of the
// pool calls it.
//
// A handler or a sink of the pool gets a [*task.FullError] instead of waiting for room, because
// it may have to make that room. The pool recognizes them by the context that they were called
// with, or one made from it, until the handler returns. With another context the call may wait for
// itself.
func (p *Pool[V]) Submit(ctx context.Context, key string, payload V) error {
	_, err := p.submit(ctx, key, payload, PutOptions{}, true)
	return err
}

// Put is Submit with options. It returns the id of the task.
func (p *Pool[V]) Put(ctx context.Context, key string, payload V,
	options PutOptions,
) (task.ID, error) {
	return p.submit(ctx, key, payload, options, true)
}

// TrySubmit is like Put, but never waits for room: it returns a [*task.FullError].
func (p *Pool[V]) TrySubmit(ctx context.Context, key string, payload V,
	options PutOptions,
) (task.ID, error) {
	return p.submit(ctx, key, payload, options, false)
}

// submit implements Submit, Put and TrySubmit, which differ in whether they wait for room.
func (p *Pool[V]) submit(
	ctx context.Context, key string, payload V, o PutOptions, waits bool,
) (id task.ID, err error) {
	c, err := p.class(o.Class)
	if err != nil {
		return 0, err
	}
	if o.MaxAttempts < 0 {
		o.MaxAttempts = fairq.MaxLen // or it would get the limit of the Policy
	}
	defer p.endSubmit()
	if p.submitting.Add(1) <= 0 {
		return 0, ErrShutdown
	}
	inside := setOf(ctx) == &p.workerSet
	waits = waits && !inside
	if waits && p.sink != nil { // the task could become a letter
		p.outbox.waitForRoom(ctx, p.accepting)
	}
	switch {
	case p.accepting.Err() != nil && !inside:
		return 0, ErrShutdown
	case ctx.Err() != nil:
		return 0, ctx.Err()
	}
	id, err = c.queue.Put(ctx, key, payload, o.PutOptions)
	if errors.Is(err, fairq.ErrFull) && waits {
		id, err = p.putWait(ctx, c, key, payload, o.PutOptions)
	}
	if o.Replace {
		c.repeats.Delete(id)
	}
	return id, err
}

// putWait waits for room.
func (p *Pool[V]) putWait(
	ctx context.Context, c *class[V], key string, payload V, o task.PutOptions,
) (task.ID, error) {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.accepting, cancel)()
	id, err := c.queue.PutWait(waiting, key, payload, o)
	if err != nil && waiting.Err() != nil && ctx.Err() == nil {
		err = ErrShutdown
	}
	return id, err
}

// sealed is added to Pool.submitting when no call may submit any more. It is far enough below zero
// to keep the sum negative.
const sealed = math.MinInt64 / 2

// endSubmit ends a submit, even if it was refused.
func (p *Pool[V]) endSubmit() {
	switch left := p.submitting.Add(-1); {
	case left == sealed:
		select {
		case p.submitsDone <- struct{}{}:
		default: // it has its token; this call came later and was refused
		}
	case left == 0 && p.accepting.Err() != nil:
		p.notifyQuiet()
	}
}
