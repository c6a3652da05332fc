package pool

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

// PutOptions are what a task can have beyond a key and a payload: all that [task.PutOptions] has,
// which tells more about it, and what is for pools only.
type PutOptions struct {
	Priority    int           // less is more urgent, 0 is first
	Delay       time.Duration // until it is ready; 0 means Options.Delay, negative means none
	TTL         time.Duration // for how long it is of use; 0 means what the queue says
	Deadline    time.Time     // the end of its use; the zero Time means what Options.Deadline says
	TTR         time.Duration // how long a lease lasts, see Task.Touch; 0 means what the queue says
	MaxAttempts int           // 0 means what the queue or Policy says, negative means no limit
	Kind        string        // which handler it is for, see [Mux]
	UniqueKey   string        // only one task of a queue can have it at a time; see Queue.Wait
	Group       string        // holds it back until task.Queue.StartGroup
	Role        task.Role     // what it is in its group

	// Class is the queue that it is for, of a pool that has several; "" means the first one.
	Class string

	// CancelWithContext ties the task to the context that it is submitted with: when that is done,
	// the task is removed. If it is running, the context of its handler is done, with a cause that
	// Is [ErrLeaseLost]. It is not tried again, and there is no dead letter. So this is for
	// callers who wait for what the handler does; note that the context of an HTTP request is also
	// done when the HTTP handler returns. It costs a unique key and, except for SubmitWait, a
	// goroutine until the task is gone or Shutdown. It does nothing for a task that is put in a
	// transaction of the caller's.
	CancelWithContext bool
}

// Task returns the options without those that are for pools only: to put a task into a queue.
func (o PutOptions) Task() task.PutOptions {
	return task.PutOptions{
		Priority: o.Priority, Delay: o.Delay, TTL: o.TTL, Deadline: o.Deadline, TTR: o.TTR, MaxAttempts: o.MaxAttempts,
		Kind: o.Kind, UniqueKey: o.UniqueKey, Group: o.Group, Role: o.Role,
	}
}

// Batch is a task for SubmitBatch.
type Batch[V any] struct {
	Key     string
	Payload V
	Options PutOptions
}

// SubmitBatch is Put for several tasks, one after the other, until one is refused. As many as
// there is room for are put in one transaction. It returns the ids of those that were put or
// dropped, and, if these are not all, the error that Put would have returned for the next one. If
// a class is unknown, none is put.
func (p *Pool[V]) SubmitBatch(ctx context.Context, tasks []Batch[V]) (ids []task.ID, err error) {
	classes, puts := make([]*class[V], len(tasks)), make([]task.Batch[V], len(tasks))
	for i, t := range tasks {
		if classes[i], err = p.tasks.class(t.Options.Class); err != nil {
			return nil, err
		}
		p.setDefaults(&t.Options)
		puts[i] = task.Batch[V]{Key: t.Key, Payload: t.Payload, Options: t.Options.Task()}
	}
	for i, t := range puts {
		p.offered(ctx, classes[i], t.Key, t.Payload, &t.Options)
	}
	defer p.endSubmit()
	err = p.beginSubmit(ctx)
	for first := 0; err == nil && first < len(puts); first = len(ids) {
		c, end := classes[first], first+1
		for end < len(puts) && classes[end] == c {
			end++
		}
		var put []task.ID
		put, err = c.queue.PutBatch(ctx, puts[first:end])
		ids = append(ids, put...)
		if next := len(ids); next < end && errors.Is(err, fairq.ErrFull) {
			var id task.ID
			t := puts[next]
			if id, err = p.makeRoom(ctx, c, t.Key, t.Payload, t.Options, p.whenFull, err); err == nil {
				ids = append(ids, id)
			}
		}
	}
	for i, id := range ids {
		if tasks[i].Options.CancelWithContext && id != 0 {
			p.cancelWith(ctx, classes[i], puts[i].Options.UniqueKey, id)
		}
	}
	for i, t := range puts[len(ids):] {
		p.refuse(ctx, classes[len(ids)+i], t.Key, t.Payload, &t.Options, err)
	}
	return ids, err
}

// setDefaults fills in what the pool's options say.
func (p *Pool[V]) setDefaults(o *PutOptions) {
	if o.MaxAttempts < 0 {
		o.MaxAttempts = fairq.MaxLen // or it would get the limit of the Policy
	}
	if o.Delay == 0 {
		o.Delay = p.delay
	}
	o.Delay = max(o.Delay, 0)
	if o.Deadline.IsZero() && p.deadline > 0 {
		o.Deadline = time.Now().Add(p.deadline)
	}
	if o.CancelWithContext && o.UniqueKey == "" {
		o.UniqueKey = rand.Text()
	}
}

// newTask returns a task that is in no queue, with the times that it would have if it were put
// now.
func newTask[V any](key string, payload V, o *task.PutOptions) *task.Task[V] {
	now := time.Now()
	t := &task.Task[V]{Payload: payload, Info: task.Info{
		Key: key, Kind: o.Kind, UniqueKey: o.UniqueKey, Group: o.Group, Role: o.Role,
		Priority: o.Priority, MaxAttempts: o.MaxAttempts, Deadline: o.Deadline, Created: now, Expires: o.Deadline,
	}}
	if o.Delay > 0 {
		t.State, t.Until = task.Delayed, now.Add(o.Delay)
	}
	if o.TTL > 0 {
		// What is longer than MaxDuration is for ever, as in package task.
		ends := now.Add(o.Delay).Add(min(o.TTL, task.MaxDuration))
		if o.Deadline.IsZero() || ends.Before(o.Deadline) {
			t.Expires = ends
		}
	}
	return t
}

// offered tells the Observer of a task that is handed to Submit or the like.
func (p *Pool[V]) offered(ctx context.Context, c *class[V], key string, payload V, o *task.PutOptions) {
	if f := p.observer.Offered; f != nil {
		p.observe("Offered", func() { f(ctx, c.name, newTask(key, payload, o)) })
	}
}

// refuse counts a task for which Submit or the like returns an error, and tells the Observer.
func (p *Pool[V]) refuse(ctx context.Context, c *class[V], key string, payload V, o *task.PutOptions, err error) {
	p.refused.Add(1)
	if errors.Is(err, ErrFull) {
		p.keyCounter.add(key, fairq.Counts{Refused: 1})
	}
	if f := p.observer.Refused; f != nil {
		p.observe("Refused", func() { f(ctx, c.name, newTask(key, payload, o), err) })
	}
}
