package pool

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

// attempt is a task that was taken, from then until the queue knows what came of it. It is also
// the context of the handler: what is dear about that is made when the handler asks for it.
type attempt[V any] struct {
	pool  *Pool[V]
	class *class[V]
	task  *task.Task[V]

	worker   *worker
	policy   *Policy
	ran      time.Duration // how long the handler ran; 0 if nobody asks for that
	deadline time.Time     // of the context; zero if it has none
	// of that; later, if the context was done before the handler, of the context
	cause error

	next *attempt[V] // at a task that was taken when this one was acked; nil if none was

	inBackground bool // it is settled there

	mu     sync.Mutex      // protects all that follows
	ended  bool            // the handler has returned
	ctx    context.Context // the real one; nil until somebody asks for it
	cancel context.CancelFunc
}

// do implements job. The worker goes on with what is taken when a task is acked.
func (a *attempt[V]) do(w *worker) {
	for a != nil {
		a.run(w)
		next := a.next
		a.next = nil // whoever has kept its context is not to keep the rest
		a = next
	}
}

// run calls the handler, and settles the task.
func (a *attempt[V]) run(w *worker) {
	a.worker = w
	inc(&w.counts.started)
	a.pool.keyCounts.Add(a.task.Key, fairq.Counts{Served: 1})
	o := &a.pool.observer
	var started time.Time
	if !a.class.inMemory || o.times() || a.pool.costUnit > 0 {
		started = time.Now()
	}
	w.started = started
	err := errGoexit
	handled := false
	defer a.pool.tasks.addRunning(-1)
	defer a.class.taken.Add(-1)
	defer func() { // also if the handler ends the goroutine
		if v := recover(); v != nil {
			inc(&w.counts.panics)
			err = newPanicError("the handler", v)
		}
		if !started.IsZero() {
			a.ran = time.Since(started)
		}
		if handled && a.pool.costUnit > 0 {
			_ = a.class.queue.Done(a.task.Key, costOf(a.ran, a.pool.costUnit)) // it learns: see Options.complete
		}
		a.endContext()
		a.finish(safeError(err))
	}()
	if o.Started != nil {
		a.pool.observe("Started", func() { o.Started(w.ctx, a.class.name, a.task, started.Sub(a.task.ReadyAt)) })
	}
	a.setDeadline()
	limit := a.maxAttempts()
	switch {
	case limit > 0 && a.task.Attempts > limit: // its last attempt has ended without a result
		a.task.Attempts = limit
		err = a.lastAttemptLost()
	case a.tooLate(0): // its time was over before there was a worker
		err = errLate
	default:
		handled = true
		err = a.pool.handler(a, a.task)
	}
}

// costOf returns what an attempt has cost that ran for so long.
func costOf(ran, unit time.Duration) int64 { return int64((ran + unit - 1) / unit) }

// lastAttemptLost returns what a task has failed with whose last attempt has ended without a
// result.
func (a *attempt[V]) lastAttemptLost() error {
	err := fmt.Errorf("pool: not done after %d attempts, of which the last one has ended without a result", a.task.Attempts)
	if a.task.Err != nil {
		err = fmt.Errorf("%w; the last error: %w", err, a.task.Err)
	}
	return Permanent(err)
}

var (
	errGoexit = errors.New("pool: handler called runtime.Goexit")
	errLate   = fmt.Errorf("%w; it was not started", ErrDeadline)
)

// setDeadline finds out how long the handler has.
func (a *attempt[V]) setDeadline() {
	a.policy = &a.pool.policy
	if a.pool.forTask != nil {
		a.policy = new(a.pool.forTask(a.task, a.pool.policy))
	}
	sooner := func(at time.Time, cause error) {
		if !at.IsZero() && (a.deadline.IsZero() || at.Before(a.deadline)) {
			a.deadline, a.cause = at, cause
		}
	}
	if a.policy.Timeout > 0 {
		sooner(time.Now().Add(a.policy.Timeout), ErrTimeout)
	}
	sooner(a.task.Deadline, ErrDeadline)
}

// Deadline implements [context.Context].
func (a *attempt[V]) Deadline() (time.Time, bool) { return a.deadline, !a.deadline.IsZero() }

// Done implements [context.Context].
func (a *attempt[V]) Done() <-chan struct{} { return a.context().Done() }

// Err implements [context.Context].
func (a *attempt[V]) Err() error { return a.context().Err() }

// Value implements [context.Context].
func (a *attempt[V]) Value(key any) any {
	a.mu.Lock()
	ctx, ended := a.ctx, a.ended
	a.mu.Unlock()
	if ended && key == (workerKey{}) { // what runs on is no handler any more
		return nil
	}
	if ctx == nil {
		ctx = a.worker.ctx
	}
	return ctx.Value(key)
}

// real returns the context behind this one, and makes it if need be.
func (a *attempt[V]) context() context.Context {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ctx == nil {
		leased, cancel := a.leaseContext()
		a.ctx, a.cancel = leased, cancel
		if !a.deadline.IsZero() {
			timed, stop := context.WithDeadlineCause(leased, a.deadline, a.cause)
			a.ctx, a.cancel = timed, func() { stop(); cancel() }
		}
		if a.ended {
			a.cancel()
		}
	}
	return a.ctx
}

// leaseContext returns a context that ends with the lease. Whether the lease is lost already, the
// store is asked in background, unless that takes no time: the caller of Done may hold a lock, as
// database/sql does, or may have a transaction that the store has to wait for.
func (a *attempt[V]) leaseContext() (context.Context, context.CancelFunc) {
	if a.class.inMemory {
		return a.task.Context(a.worker.ctx)
	}
	ctx, cancel := context.WithCancelCause(a.worker.ctx)
	a.pool.background(func() {
		leased, end := a.task.Context(ctx)
		context.AfterFunc(leased, func() {
			cancel(context.Cause(leased))
			end()
		})
	})
	return ctx, func() { cancel(context.Canceled) }
}

// counts returns where it is counted what becomes of the attempt.
func (a *attempt[V]) counts() *counters {
	if a.inBackground {
		return &a.pool.backgroundCounts
	}
	return &a.worker.counts
}

// endContext ends the context.
func (a *attempt[V]) endContext() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended, a.cause = true, nil
	if a.ctx != nil {
		a.cause = context.Cause(a.ctx)
		a.cancel()
	}
}

// maxAttempts returns how often the task may be tried; 0 means no limit.
func (a *attempt[V]) maxAttempts() int {
	switch {
	case a.task.MaxAttempts > 0:
		return a.task.MaxAttempts
	case a.policy.MaxAttempts == 0:
		return DefaultMaxAttempts
	}
	return max(a.policy.MaxAttempts, 0)
}

// tooLate tells whether the task's time is over, or its deadline will be after a delay.
func (a *attempt[V]) tooLate(delay time.Duration) bool {
	if a.task.Deadline.IsZero() && a.task.Expires.IsZero() {
		return false
	}
	now := time.Now()
	return !a.task.Deadline.IsZero() && !now.Add(delay).Before(a.task.Deadline) ||
		!a.task.Expires.IsZero() && !now.Before(a.task.Expires)
}
