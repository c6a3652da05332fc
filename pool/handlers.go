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

// Mux maps kinds of tasks to handlers. Its method Handle is the handler for a pool, and
// Options.Kinds should be its Kinds, so that the pool takes no other kinds. It must not change
// while in use.
type Mux[V any] map[string]Handler[*task.Task[V]]

// Handle calls the handler of the task's kind. If there is none the task fails for good.
func (m Mux[V]) Handle(ctx context.Context, t *task.Task[V]) error {
	if h := m[t.Kind]; h != nil {
		return h(ctx, t)
	}
	return Permanent(invalid("there is no handler for kind %q", t.Kind))
}

// Kinds returns the kinds with a handler, in alphabetical order. It is never nil, which would mean
// all.
func (m Mux[V]) Kinds() []string {
	kinds := slices.AppendSeq([]string{}, maps.Keys(m))
	slices.Sort(kinds)
	return kinds
}

// Chain returns a handler that calls others one after the other. When one returns an error it
// stops, and returns that error with the number of the step, from 1 on. When the task is tried
// again, all of them are called again.
func Chain[T any](steps ...Handler[T]) Handler[T] {
	return func(ctx context.Context, t T) error {
		for i, step := range steps {
			if err := step(ctx, t); err != nil {
				return fmt.Errorf("step %d: %w", i+1, err)
			}
		}
		return nil
	}
}

// Parallel returns a handler that calls others at the same time, each in a goroutine of its own,
// and joins their errors. If one panics, that is an error too.
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

// Repeat returns a handler for tasks that are done again and again. When the handler has done one,
// next says when that is: it gets the time when the task was put, from which its times can be
// counted so that they do not drift, and the time now. A task that runs every hour has
//
//	func(put, now time.Time) time.Time { return now.Add(time.Hour - now.Sub(put)%time.Hour) }
//
// A library for cron expressions has such a function too. If next returns the zero time, the task
// is done for good. If that time is over, the task is done at once.
//
// The task runs once among all processes that have its queue open, and survives the end of all of
// them. All runs missed while no process is there are one run. If the handler fails the task is
// retried by the Policy, and each run has all attempts. A run that has failed for good ends the
// task like any other: it is buried, until it is kicked, or a dead letter; so does a panic of
// next. Put it with a unique key when the program starts, without a deadline and, if the pool or
// the queue has a default for its end, with a negative TTL. The times are as exact as the clocks
// of the processes: a run that is early by another clock is repeated at its time.
func Repeat[V any](
	next func(put, now time.Time) time.Time, handler Handler[*task.Task[V]],
) Handler[*task.Task[V]] {
	return func(ctx context.Context, t *task.Task[V]) (err error) {
		if err := handler(ctx, t); err != nil {
			return err
		}
		defer func() { // the work is done, and must not be done again
			if v := recover(); v != nil {
				err = Permanent(newPanicError("the function for the next time", v))
			}
		}()
		info, now := t.Info(), time.Now()
		if now.Before(info.ReadyAt) { // by the clock of the store
			now = info.ReadyAt
		}
		at := next(info.Created, now)
		if at.IsZero() {
			return nil
		}
		return &retryError{snooze: true, repeat: true, at: at}
	}
}

// Transit returns a handler that puts each task into another queue; in this queue it is then done.
// The task keeps its key, kind, priority, unique key, metadata, deadline and limit of attempts,
// and the rest of its time to live. If the other queue is full the handler waits for room, which
// slows this pool too. If the pool itself drains the other queue, the handler fails instead, with
// an [task.ErrFull].
func Transit[V any](next *task.Queue[V]) Handler[*task.Task[V]] {
	return func(ctx context.Context, t *task.Task[V]) error {
		info := t.Info()
		return putWait(ctx, next, t.Key, t.Payload, resubmitOptions(&info, time.Now()))
	}
}

// Forward returns a sink that puts each letter into another queue, as Transit does, with the rest
// of its delay. It is a new task there, with all its attempts. A task that failed or was too late
// has no deadline, time to live or delay there.
func Forward[V any](next *task.Queue[V]) Sink[V] {
	return func(ctx context.Context, letter *DeadLetter[V]) error {
		options := letter.PutOptions(time.Now())
		if letter.Reason == ReasonFailed || letter.Reason == ReasonDeadline {
			options.Deadline, options.TTL, options.Delay = time.Time{}, 0, 0
		}
		return putWait(ctx, next, letter.Task.Key, letter.Payload, options.PutOptions)
	}
}

// putWait puts a task into another queue. It waits for room, unless the context belongs to a pool
// that drains that queue: then it could wait for itself.
func putWait[V any](ctx context.Context, next *task.Queue[V], key string, payload V,
	options task.PutOptions,
) error {
	put := next.PutWait
	if ws := setOf(ctx); ws != nil && ws.source.drains(next) {
		put = next.Put
	}
	_, err := put(ctx, key, payload, options)
	return err
}

// resubmitOptions returns the options to put a task again now.
func resubmitOptions(i *task.Info, now time.Time) task.PutOptions {
	p := task.PutOptions{
		Priority: i.Priority, Cost: i.Cost, Kind: i.Kind, UniqueKey: i.UniqueKey, TTR: i.TTR,
		MaxAttempts: i.MaxAttempts, Deadline: i.Deadline, Metadata: i.Metadata,
	}
	if i.State == task.Delayed {
		p.Delay = max(i.Until.Sub(now), 0)
	}
	if i.Expires.IsZero() || i.Expires.Equal(i.Deadline) {
		return p
	}
	if p.TTL = min(i.Expires.Sub(now)-p.Delay, task.MaxDuration); p.TTL <= 0 {
		p.TTL, p.Deadline = 0, i.Expires // a TTL cannot end before the delay, a Deadline can
	}
	return p
}
