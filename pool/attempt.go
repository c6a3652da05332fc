package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/fairq/fairq/task"
)

// attempt is a taken task until the queue knows the outcome. It is also the context of the
// handler, and makes the expensive parts of a context only when the handler asks for them. It is
// never reused, because the handler may have kept its task or its context; so it is small.
type attempt[V any] struct {
	task   task.Task[V] // the argument of the handler
	class  *class[V]
	worker *worker
	extra  *extra // nil before the end if there is none; protected by worker.mu until the end
}

// extra has the rare fields of an attempt.
type extra struct {
	ran      time.Duration   // how long the handler ran; 0 if no option needs that
	deadline time.Time       // of the context; zero if it has none
	late     error           // its cause then
	ended    bool            // the handler has returned; from then on nothing changes
	ctx      context.Context // the real context; nil until the handler asks for it
	cancel   context.CancelFunc
	cause    error // if it was done before the handler
}

// endedPlain is the extra of an attempt that had none at its end.
var endedPlain = &extra{ended: true}

// set returns extra for writing.
func (a *attempt[V]) set() *extra {
	if a.extra == nil {
		a.extra = new(extra)
	}
	return a.extra
}

// do implements job. The worker goes on with the task that an ack may take, which counts in place
// of this one.
func (a *attempt[V]) do(w *worker) {
	defer func() {
		if a == nil {
			return
		}
		err := errGoexit // the handler has ended the goroutine, unless it has panicked
		if v := recover(); v != nil {
			err = newPanicError("the handler", v)
		}
		a.end(w, err)
	}()
	for a != nil {
		err := a.run(w)
		ended := a
		a = nil // end is not called twice if user code ends the goroutine in it
		ended.end(w, err)
		a, _ = w.following.(*attempt[V])
		w.following = nil
	}
}

// run calls the handler. end must be called with its result, even if run does not return.
func (a *attempt[V]) run(w *worker) error {
	p := a.class.pool
	a.task.Begin()
	w.started = time.Time{}
	waited := time.Duration(0)
	if p.observer != nil {
		w.started = time.Now()
		if a.class.queue != nil {
			waited = w.started.Sub(a.task.Info().ReadyAt)
		}
	}
	a.happened(EventStarted, waited, 0, nil)
	a.setDeadline()
	switch {
	case a.task.Attempts > 1 && a.task.Attempts > a.maxAttempts():
		a.task.Attempts = a.maxAttempts()
		return a.lastAttemptLost()
	case a.tooLate(0): // its time was over before there was a worker
		return errLate
	}
	return p.handler(a, &a.task)
}

// end settles the task when run has returned err.
func (a *attempt[V]) end(w *worker, err error) {
	p := a.class.pool
	err = safeError(err)
	var ran time.Duration
	if !w.started.IsZero() {
		ran = time.Since(w.started)
	}
	a.task.End()
	a.endContext(ran)
	switch {
	case a.class.queue == nil:
		p.guard("Done", func() { a.class.done(a.task.Payload) }) // which calls the key function
		a.settleItem(err)
	case a.class.inMemory:
		a.settle(err)
	default:
		a.finish(err)
	}
}

// lastAttemptLost returns the error of a task whose last attempt has ended without a result.
func (a *attempt[V]) lastAttemptLost() error {
	err := fmt.Errorf("pool: not done after %d attempts, of which the last one has "+
		"ended without a result", a.task.Attempts)
	if last := a.task.Info().Err; last != nil {
		err = fmt.Errorf("%w; the last error: %w", err, last)
	}
	return Permanent(err)
}

var (
	errGoexit = errors.New("pool: handler called runtime.Goexit")
	errLate   = fmt.Errorf("%w; it was not started", ErrDeadline)
)

// setDeadline computes the deadline of the handler.
func (a *attempt[V]) setDeadline() {
	var at time.Time
	late := ErrDeadline
	if a.task.Expires() {
		at = a.task.Info().Deadline
	}
	if timeout := a.class.pool.policy.Timeout; timeout > 0 {
		if by := time.Now().Add(timeout); at.IsZero() || !at.Before(by) {
			at, late = by, ErrTimeout
		}
	}
	if !at.IsZero() {
		a.set().deadline, a.set().late = at, late
	}
}

// Deadline implements [context.Context].
func (a *attempt[V]) Deadline() (at time.Time, ok bool) {
	a.worker.mu.Lock()
	defer a.worker.mu.Unlock()
	if a.extra != nil {
		at = a.extra.deadline
	}
	return at, !at.IsZero()
}

// Done implements [context.Context].
func (a *attempt[V]) Done() <-chan struct{} { return a.context().Done() }

// Err implements [context.Context].
func (a *attempt[V]) Err() error { return a.context().Err() }

// Value implements [context.Context].
func (a *attempt[V]) Value(key any) any {
	ctx, ended := a.worker.ctx, false
	a.worker.mu.Lock()
	if x := a.extra; x != nil {
		ended = x.ended
		if x.ctx != nil {
			ctx = x.ctx
		} else if ended {
			ctx = endedContext
		}
	}
	a.worker.mu.Unlock()
	if ended && (key == workerKey{} || key == setKey{}) {
		return nil // the goroutine left behind is no handler
	}
	return ctx.Value(key)
}

// endedContext is the real context of an attempt whose handler never asked for it.
var endedContext = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// context returns the real context, and makes it if necessary.
func (a *attempt[V]) context() context.Context {
	a.worker.mu.Lock()
	defer a.worker.mu.Unlock()
	x := a.set()
	switch {
	case x.ctx != nil:
		return x.ctx
	case x.ended:
		return endedContext
	}
	leased, cancel := a.leaseContext()
	x.ctx, x.cancel = leased, cancel
	if !x.deadline.IsZero() {
		timed, stop := context.WithDeadlineCause(leased, x.deadline, x.late)
		x.ctx, x.cancel = timed, func() { stop(); cancel() }
	}
	return x.ctx
}

// leaseContext returns a context that ends with the lease. It asks the store whether the lease is
// lost already. Unless the store is in memory, it does so in the background: the caller of Done
// may hold a lock, as database/sql does, or have a transaction for which the store waits.
func (a *attempt[V]) leaseContext() (context.Context, context.CancelFunc) {
	switch {
	case a.class.queue == nil:
		return context.WithCancel(a.worker.ctx)
	case a.class.inMemory:
		return a.task.Context(a.worker.ctx)
	}
	ctx, cancel := context.WithCancelCause(a.worker.ctx)
	a.class.pool.runInBackground(func() {
		leased, end := a.task.Context(ctx)
		context.AfterFunc(leased, func() {
			cancel(context.Cause(leased))
			end()
		})
	})
	return ctx, func() { cancel(context.Canceled) }
}

// endContext ends the context of a handler with this run time.
func (a *attempt[V]) endContext(ran time.Duration) {
	a.worker.mu.Lock()
	if a.extra == nil && ran == 0 {
		a.extra = endedPlain
		a.worker.mu.Unlock()
		return
	}
	x := a.set()
	x.ran, x.ended = ran, true
	if x.ctx != nil {
		x.cause = context.Cause(x.ctx)
	}
	a.worker.mu.Unlock()
	if x.ctx != nil {
		x.cancel()
	}
}

// maxAttempts returns how often the task may be tried.
func (a *attempt[V]) maxAttempts() int {
	n := cmp.Or(a.task.Info().MaxAttempts, a.class.pool.policy.MaxAttempts, 10)
	if n < 0 {
		return math.MaxInt
	}
	return n
}

// tooLate reports whether the task's time is over, or will be after a delay.
func (a *attempt[V]) tooLate(delay time.Duration) bool {
	if !a.task.Expires() {
		return false
	}
	i, now := a.task.Info(), time.Now()
	return !i.Deadline.IsZero() && !now.Add(delay).Before(i.Deadline) || !now.Before(i.Expires)
}
