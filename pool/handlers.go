package pool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fairq/fairq/task"
)

// Mux is handlers by kind of task. Its Handle is the handler of a pool, and its Kinds are for
// Options.Kinds, so that the pool takes no others. It must not be changed while it is in use.
type Mux[V any] map[string]Handler[*task.Task[V]]

// Handle calls the handler of the task's kind. If there is none the task fails for good.
func (m Mux[V]) Handle(ctx context.Context, t *task.Task[V]) error {
	if h := m[t.Kind]; h != nil {
		return h(ctx, t)
	}
	return Permanent(invalid("there is no handler for kind %q", t.Kind))
}

// Kinds returns the kinds that there are handlers for, in alphabetical order. It is never nil,
// which would mean all.
func (m Mux[V]) Kinds() []string {
	kinds := slices.AppendSeq([]string{}, maps.Keys(m))
	slices.Sort(kinds)
	return kinds
}

// Step is a part of a [Chain].
type Step[T any] struct {
	Name   string
	Handle Handler[T]
}

// Chain returns a handler that calls others, one after the other, until one returns an error; that
// is wrapped, with the name of its step. When the task is tried again, all of them are called
// again.
func Chain[T any](steps ...Step[T]) Handler[T] {
	return func(ctx context.Context, t T) error {
		for _, s := range steps {
			if err := s.Handle(ctx, t); err != nil {
				return fmt.Errorf("step %s: %w", s.Name, err)
			}
		}
		return nil
	}
}

// Parallel returns a handler that calls others, all at the same time, each in a goroutine of its
// own, and joins their errors. A panic is an error too.
func Parallel[T any](handlers ...Handler[T]) Handler[T] {
	return func(ctx context.Context, t T) error {
		errs := make([]error, len(handlers))
		var all sync.WaitGroup
		for i, h := range handlers {
			all.Go(func() {
				errs[i] = errGoexit
				defer func() {
					if v := recover(); v != nil {
						errs[i] = newPanicError("the handler", v)
					}
				}()
				errs[i] = h(ctx, t)
			})
		}
		all.Wait()
		return errors.Join(errs...)
	}
}

// Transit returns a handler that puts each task into another queue, with its key, kind, priority,
// unique key, deadline, limit of attempts, and what is left of its time to live. If that queue is
// full, it waits for room: so it, in turn, holds up the pool's. Then this queue is done with it.
func Transit[V any](next *task.Queue[V]) Handler[*task.Task[V]] {
	return func(ctx context.Context, t *task.Task[V]) error {
		_, err := next.PutWait(ctx, t.Key, t.Payload, resubmitOptions(&t.Info, time.Now()).Task())
		return err
	}
}

// Forward returns a sink that puts each letter into another queue, as Transit does, and with what
// is left of its delay. It is a new task there, which has all its attempts; one that has failed,
// or was too late, has neither deadline, nor time to live, nor delay of its own.
func Forward[V any](next *task.Queue[V]) Sink[V] {
	return func(ctx context.Context, letter *DeadLetter[V]) error {
		options := letter.PutOptions(time.Now()).Task()
		if letter.Reason == Failed || letter.Reason == Deadline {
			options.Deadline, options.TTL, options.Delay = time.Time{}, 0, 0
		}
		_, err := next.PutWait(ctx, letter.Task.Key, letter.Payload, options)
		return err
	}
}

// resubmitOptions returns the options to put a task again, as of now.
func resubmitOptions(i *task.Info, now time.Time) PutOptions {
	p := PutOptions{
		Priority: i.Priority, Kind: i.Kind, UniqueKey: i.UniqueKey, MaxAttempts: i.MaxAttempts, Deadline: i.Deadline,
	}
	if i.State == task.Delayed {
		p.Delay = max(i.Until.Sub(now), 0)
	}
	if i.Expires.IsZero() || i.Expires.Equal(i.Deadline) {
		return p
	}
	if p.TTL = min(i.Expires.Sub(now)-p.Delay, task.MaxDuration); p.TTL <= 0 {
		p.TTL, p.Deadline = 0, i.Expires // which is over, or will be before the delay is
	}
	return p
}
