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
	_, err := p.submit(ctx, key, payload, nil, p.whenFull)
	return err
}

// Put is Submit with options. It returns the id of the task, 0 if the task was dropped.
func (p *Pool[V]) Put(ctx context.Context, key string, payload V,
	options PutOptions,
) (task.ID, error) {
	return p.submit(ctx, key, payload, &options, p.whenFull)
}

// TrySubmit is like Put, but never waits for room and never drops the task: it returns a
// [*task.FullError], and the caller keeps the task.
func (p *Pool[V]) TrySubmit(ctx context.Context, key string, payload V,
	options PutOptions,
) (task.ID, error) {
	return p.submit(ctx, key, payload, &options, Reject)
}

// Entry is a task for SubmitBatch.
type Entry[V any] struct {
	Key     string
	Payload V
	Options PutOptions
}

// SubmitBatch is Put for several tasks, one after the other, until one is refused. One transaction
// puts as many as there is room for. It returns the ids of the put or dropped tasks, and, if these
// are not all, the error that Put would have returned for the next one. If a class is unknown, it
// puts none.
func (p *Pool[V]) SubmitBatch(ctx context.Context, tasks []Entry[V]) (ids []task.ID, err error) {
	offers, puts := make([]offer[V], len(tasks)), make([]task.Entry[V], len(tasks))
	for i, t := range tasks {
		puts[i] = task.Entry[V]{Key: t.Key, Payload: t.Payload}
		offers[i] = offer[V]{key: t.Key, payload: t.Payload, options: &puts[i].Options}
		if err = p.fill(&offers[i], &t.Options); err != nil {
			return nil, err
		}
	}
	for i := range offers {
		p.observeOffer(ctx, EventOffered, &offers[i], nil)
	}
	defer p.endSubmit()
	err = p.beginSubmit(ctx, p.whenFull)
	for first := 0; err == nil && first < len(puts); first = len(ids) {
		c, end := offers[first].class, first+1
		for end < len(puts) && offers[end].class == c {
			end++
		}
		var put []task.ID
		put, err = c.queue.PutBatch(ctx, puts[first:end])
		ids = append(ids, put...)
		if next := len(ids); next < end && errors.Is(err, fairq.ErrFull) {
			var id task.ID
			if id, err = p.makeRoom(ctx, &offers[next], p.whenFull, err); err == nil {
				ids = append(ids, id)
			}
		}
	}
	for i := range offers {
		if i >= len(ids) {
			p.observeOffer(ctx, EventRefused, &offers[i], err)
		} else if puts[i].Options.Replace {
			offers[i].class.repeats.remove(ids[i])
		}
	}
	return ids, err
}

// offer is a task of a Submit or the like.
type offer[V any] struct {
	key     string
	payload V
	options *task.PutOptions // for the queue; they do not change
	class   *class[V]
}

var noOptions task.PutOptions

// fill makes the options of an offer from those of the call and of the pool. It fails if the class
// is unknown.
func (p *Pool[V]) fill(offer *offer[V], options *PutOptions) (err error) {
	o := offer.options
	*o = options.PutOptions
	if o.MaxAttempts < 0 {
		o.MaxAttempts = fairq.MaxLen // or it would get the limit of the Policy
	}
	if o.Delay == 0 {
		o.Delay = p.delay
	}
	o.Delay = max(o.Delay, 0)
	if o.Deadline.IsZero() && p.deadline > 0 && o.TTL >= 0 {
		o.Deadline = time.Now().Add(p.deadline)
	}
	offer.class, err = p.tasks.class(options.Class)
	return err
}

// submit implements Submit (nil options), Put and TrySubmit, which differ in whenFull.
func (p *Pool[V]) submit(
	ctx context.Context, key string, payload V, options *PutOptions, whenFull WhenFull,
) (id task.ID, err error) {
	var o offer[V] // a literal would be made elsewhere, and copied
	o.key, o.payload, o.options, o.class = key, payload, &noOptions, p.tasks.classes[0]
	if options != nil || p.delay != 0 || p.deadline != 0 {
		o.options = new(task.PutOptions)
		if err = p.fill(&o, cmp.Or(options, new(PutOptions))); err != nil {
			return 0, err
		}
	}
	p.observeOffer(ctx, EventOffered, &o, nil)
	defer p.endSubmit()
	if err = p.beginSubmit(ctx, whenFull); err == nil {
		id, err = o.class.queue.Put(ctx, o.key, o.payload, *o.options)
		if errors.Is(err, fairq.ErrFull) {
			id, err = p.makeRoom(ctx, &o, whenFull, err)
		}
	}
	if err != nil {
		p.observeOffer(ctx, EventRefused, &o, err)
	} else if o.options.Replace {
		o.class.repeats.remove(id)
	}
	return id, err
}

// makeRoom handles a task without room by whenFull. full is the error of the queue.
func (p *Pool[V]) makeRoom(
	ctx context.Context, o *offer[V], whenFull WhenFull, full error,
) (id task.ID, err error) {
	inside := setOf(ctx) == &p.workerSet
	switch {
	case whenFull == DropNew && (!inside || p.isHandler(ctx)): // a sink may be the only sender
		t, sent := o.newTask(), make(chan error, 1)
		p.post(newDeadLetter(o.class.name, t, ReasonOverflow, full), nil,
			func(refused error) { sent <- refused })
		if refused := <-sent; refused != nil {
			return 0, errors.Join(full, refused) // the task remains the caller's
		}
		p.observeTask(ctx, EventDropped, o.class.name, t, nil)
		return 0, nil
	case whenFull != Block || inside:
		return 0, full
	}
	waiting := p.accepting
	if !o.class.own || ctx.Done() != nil { // otherwise neither can end the wait
		var cancel context.CancelFunc
		waiting, cancel = context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(p.accepting, cancel)()
	}
	id, err = o.class.queue.PutWait(waiting, o.key, o.payload, *o.options)
	if err != nil && waiting.Err() != nil && ctx.Err() == nil {
		err = ErrShutdown
	}
	return id, err
}

// newTask makes the task that a Put would make now. It is in no queue.
func (o *offer[V]) newTask() *task.Task[V] {
	now, options := time.Now(), o.options
	i := task.Info{
		Key: o.key, Kind: options.Kind, UniqueKey: options.UniqueKey, Group: options.Group,
		Role:     options.Role,
		Priority: max(options.Priority, 0), Cost: cmp.Or(options.Cost, 1), TTR: options.TTR,
		MaxAttempts: options.MaxAttempts, Deadline: options.Deadline, Created: now,
		Expires:  options.Deadline,
		Metadata: maps.Clone(options.Metadata),
	}
	if options.Delay > 0 {
		i.State, i.Until = task.Delayed, now.Add(options.Delay)
	}
	if options.TTL > 0 {
		// A duration above MaxDuration means no end, as in package task.
		ends := now.Add(options.Delay).Add(min(options.TTL, task.MaxDuration))
		if options.Deadline.IsZero() || ends.Before(options.Deadline) {
			i.Expires = ends
		}
	}
	return task.NewTask(i, o.payload)
}

// observeOffer counts and observes an event of an offer. Without an Observer it makes no task.
func (p *Pool[V]) observeOffer(ctx context.Context, kind EventKind, o *offer[V], err error) {
	if p.observer != nil {
		p.observeTask(ctx, kind, o.class.name, o.newTask(), err)
	} else if kind != EventOffered {
		p.counts[kind].Add(1)
	}
}
