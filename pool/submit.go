package pool

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

// Batch is a task for SubmitBatch.
type Batch[V any] struct {
	Key     string
	Payload V
	Options PutOptions
}

// SubmitBatch is Put for several tasks, one after the other, until one is refused. As many as there is room for are put in one
// transaction. It returns the ids of those that were put or dropped, and if these are not all, the error that Put would have
// returned for the next. If a class is unknown none is put.
func (p *Pool[V]) SubmitBatch(ctx context.Context, tasks []Batch[V]) (ids []task.ID, err error) {
	classes, puts := make([]*class[V], len(tasks)), make([]task.Batch[V], len(tasks))
	for i, t := range tasks {
		if classes[i], err = p.lines.class(t.Options.Class); err != nil {
			return nil, err
		}
		p.fill(&t.Options)
		puts[i] = task.Batch[V]{Key: t.Key, Payload: t.Payload, Options: t.Options.PutOptions}
	}
	for i, t := range puts {
		p.offered(ctx, classes[i], t.Key, t.Payload, &t.Options)
	}
	defer p.leaveQueue()
	err = p.enterQueue(ctx)
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
			p.follow(ctx, classes[i], puts[i].Options.UniqueKey, id)
		}
	}
	for i, t := range puts[len(ids):] {
		p.refuse(ctx, classes[len(ids)+i], t.Key, t.Payload, &t.Options, err)
	}
	return ids, err
}

// fill puts in the pool's defaults.
func (p *Pool[V]) fill(o *PutOptions) {
	if o.MaxAttempts < 0 {
		o.MaxAttempts = fairq.MaxLen // a task without a limit would get that of the Policy
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

// newTask returns a task that is in no queue, with the times that it would have if it were put now.
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
		ends := now.Add(o.Delay).Add(min(o.TTL, task.MaxDuration)) // so long is Forever
		if o.Deadline.IsZero() || ends.Before(o.Deadline) {
			t.Expires = ends
		}
	}
	return t
}

func (p *Pool[V]) offered(ctx context.Context, c *class[V], key string, payload V, o *task.PutOptions) {
	if f := p.observer.Offered; f != nil {
		p.observe("Offered", func() { f(ctx, c.name, newTask(key, payload, o)) })
	}
}

// refuse tells that Submit, or the like, returns an error.
func (p *Pool[V]) refuse(ctx context.Context, c *class[V], key string, payload V, o *task.PutOptions, err error) {
	p.refused.Add(1)
	if f := p.observer.Refused; f != nil {
		p.observe("Refused", func() { f(ctx, c.name, newTask(key, payload, o), err) })
	}
}
