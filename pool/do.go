package pool

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

// Do is Put that waits for the outcome. It returns nil if the task was done. If the task failed
// for good, it returns a [*task.Error], which also wraps the error of the handler if this pool ran
// it, but is not Permanent, RetryAfter, Snooze or HoldKey: a handler that returns it has just
// failed. If ctx is done first it returns the error of ctx, and the task stays in the queue. While
// a handler of the pool waits in it, another one gets its place, as in [Yield]. A task that
// follows another one (see Replace) may take its place, and then Do returns the outcome of that
// one. After Shutdown it returns [ErrShutdown] if the queue is the pool's own. In another queue it
// waits on, because other processes may do its tasks.
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
	c.failures.expect(options.UniqueKey)
	defer c.failures.forget(options.UniqueKey)
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
			err = c.failures.explain(options.UniqueKey, id, err)
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

// failures keeps the errors of tasks that have failed for good in this process, for Do, because a
// queue keeps only their text. It knows only the unique keys for which a Do waits.
type failures struct {
	mu          sync.Mutex // protects byUniqueKey
	byUniqueKey map[string]*failure
}

// failure is why the last task with a unique key has failed.
type failure struct {
	waiting int // calls of Do
	task    task.ID
	err     error
}

// expect is called before a Do waits for a unique key, and forget afterwards.
func (f *failures) expect(uniqueKey string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.byUniqueKey == nil {
		f.byUniqueKey = map[string]*failure{}
	}
	if f.byUniqueKey[uniqueKey] == nil {
		f.byUniqueKey[uniqueKey] = new(failure)
	}
	f.byUniqueKey[uniqueKey].waiting++
}

func (f *failures) forget(uniqueKey string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.byUniqueKey[uniqueKey].waiting--; f.byUniqueKey[uniqueKey].waiting == 0 {
		delete(f.byUniqueKey, uniqueKey)
	}
}

// record keeps the failure of a task, before the task is settled.
func (f *failures) record(id task.ID, uniqueKey string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if failed := f.byUniqueKey[uniqueKey]; failed != nil {
		failed.task, failed.err = id, err
	}
}

// explain returns the outcome of a task. If the task has failed in this process, the error also
// wraps that of the handler.
func (f *failures) explain(uniqueKey string, id task.ID, outcome error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	failed := f.byUniqueKey[uniqueKey]
	if recorded, ok := errors.AsType[*task.Error](outcome); ok && failed.task == id {
		return &failedError{recorded, failed.err}
	}
	return outcome
}

// failedError is the error of Do if the task has failed in this process.
type failedError struct {
	recorded *task.Error
	cause    error
}

func (e *failedError) Error() string { return e.recorded.Error() }

// Is and As look into both, but not for the cause's Permanent, RetryAfter and so on: these were
// about its own task. A handler that returns the error of another task has just failed.
func (e *failedError) Is(target error) bool {
	return errors.Is(e.recorded, target) || errors.Is(e.cause, target)
}

// As implements the interface that [errors.As] looks for; see Is.
func (e *failedError) As(target any) bool {
	switch target.(type) {
	case **permanentError, **retryError:
		return false
	}
	return errors.As(e.recorded, target) || errors.As(e.cause, target)
}
