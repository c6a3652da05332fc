package pool

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

// PutOptions are the options of a task: those of the queue, and its class. In a pool a Delay of 0
// means Options.Delay, and a negative one none. Without a Deadline the task gets
// Options.DeadlineAfter, unless its TTL is negative. A MaxAttempts of 0 means the default of the
// queue, or else that of the Policy; negative means no limit.
type PutOptions struct {
	task.PutOptions

	// Class selects the queue, in a pool with several; "" means the first one.
	Class string
}

// Submit puts a task of a key, with the pool's defaults, into the queue of the pool, the first one
// if it has several. Options.WhenFull decides if there is no room. If ctx is done, it returns the
// error of ctx. After Shutdown it returns [ErrShutdown], unless a handler of the pool calls it.
//
// A handler or a sink of the pool gets a [*task.FullError] instead of waiting for room, because
// it may have to make that room; a sink also with DropNew. The pool recognizes them by the context
// that they were called with, or one made from it, until the handler returns. With another context
// the call may wait for itself.
func (p *Pool[V]) Submit(ctx context.Context, key string, payload V) error {
	_, err := p.submit(ctx, key, payload, PutOptions{}, p.whenFull)
	return err
}

// Put is Submit with options. It returns the id of the task, 0 if the task was dropped.
func (p *Pool[V]) Put(ctx context.Context, key string, payload V,
	options PutOptions,
) (task.ID, error) {
	return p.submit(ctx, key, payload, options, p.whenFull)
}

// TrySubmit is like Put, but never waits for room and never drops the task: it returns a
// [*task.FullError], and the caller keeps the task.
func (p *Pool[V]) TrySubmit(ctx context.Context, key string, payload V,
	options PutOptions,
) (task.ID, error) {
	return p.submit(ctx, key, payload, options, Reject)
}

// submit implements Submit, Put and TrySubmit, which differ in whenFull.
func (p *Pool[V]) submit(
	ctx context.Context, key string, payload V, o PutOptions, whenFull WhenFull,
) (id task.ID, err error) {
	c, err := p.tasks.class(o.Class)
	if err != nil {
		return 0, err
	}
	if o.MaxAttempts < 0 {
		o.MaxAttempts = fairq.MaxLen // or it would get the limit of the Policy
	}
	o.Delay = max(cmp.Or(o.Delay, p.delay), 0)
	if o.Deadline.IsZero() && p.deadline > 0 && o.TTL >= 0 {
		o.Deadline = time.Now().Add(p.deadline)
	}
	defer p.endSubmit()
	if err = p.beginSubmit(ctx, whenFull); err != nil {
		return 0, err
	}
	id, err = c.queue.Put(ctx, key, payload, o.PutOptions)
	if errors.Is(err, fairq.ErrFull) {
		id, err = p.makeRoom(ctx, c, task.Entry[V]{Key: key, Payload: payload, Options: o.PutOptions},
			whenFull, err)
	}
	if o.Replace {
		c.repeats.Delete(id)
	}
	return id, err
}

// makeRoom handles a task without room by whenFull. full is the error of the queue.
func (p *Pool[V]) makeRoom(
	ctx context.Context, c *class[V], e task.Entry[V], whenFull WhenFull, full error,
) (id task.ID, err error) {
	inside := setOf(ctx) == &p.workerSet
	switch {
	case whenFull == DropNew && (!inside || p.isHandler(ctx)): // a sink may be the only sender
		t, sent := newTask(&e), make(chan error, 1)
		p.post(newDeadLetter(c.name, t, ReasonOverflow, full), nil,
			func(refused error) { sent <- refused })
		if refused := <-sent; refused != nil {
			return 0, errors.Join(full, refused) // the task remains the caller's
		}
		p.observeTask(ctx, EventDropped, c.name, t, nil)
		return 0, nil
	case whenFull != Block || inside:
		return 0, full
	}
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.accepting, cancel)()
	id, err = c.queue.PutWait(waiting, e.Key, e.Payload, e.Options)
	if err != nil && waiting.Err() != nil && ctx.Err() == nil {
		err = ErrShutdown
	}
	return id, err
}

// newTask makes the task that a Put would make now. It is in no queue.
func newTask[V any](e *task.Entry[V]) *task.Task[V] {
	now, o := time.Now(), &e.Options
	i := task.Info{
		Key: e.Key, Kind: o.Kind, UniqueKey: o.UniqueKey, Group: o.Group, Role: o.Role,
		Priority: max(o.Priority, 0), Cost: cmp.Or(o.Cost, 1), TTR: o.TTR, MaxAttempts: o.MaxAttempts,
		Deadline: o.Deadline, Created: now, Expires: o.Deadline, Metadata: maps.Clone(o.Metadata),
	}
	if o.Delay > 0 {
		i.State, i.Until = task.Delayed, now.Add(o.Delay)
	}
	// A duration above MaxDuration means no end, as in package task.
	ends := now.Add(o.Delay).Add(min(o.TTL, task.MaxDuration))
	if o.TTL > 0 && (o.Deadline.IsZero() || ends.Before(o.Deadline)) {
		i.Expires = ends
	}
	return task.NewTask(i, e.Payload)
}
