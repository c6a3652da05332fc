package pool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

// run is a task that was taken, and the context of its handler. The parts of that which cost something are made when the handler
// asks for them.
type run[V any] struct {
	pool  *Pool[V]
	class *class[V]
	task  *task.Task[V]

	worker   *worker
	counts   *counters
	policy   *Policy
	ran      time.Duration // 0 if nobody asks for it
	deadline time.Time     // of the context; zero if there is none
	cause    error         // of that; when the handler has returned, what its context was done with, if it was

	mu     sync.Mutex // protects all that follows
	ended  bool
	ctx    context.Context // nil as long as nobody asks for it
	cancel context.CancelFunc
}

// do implements work.
func (r *run[V]) do(w *worker) {
	r.worker, r.counts = w, &w.counts
	inc(&w.counts.started)
	r.pool.byKey.add(r.task.Key, fairq.Counts{Served: 1})
	o := &r.pool.observer
	var started time.Time
	if !r.class.direct || o.times() {
		started = time.Now()
	}
	w.started = started
	err := errGoexit
	defer r.pool.lines.more(-1)
	defer r.class.taken.Add(-1)
	defer func() { // also if the handler ends the goroutine
		if v := recover(); v != nil {
			inc(&w.counts.panics)
			err = newPanicError(v)
		}
		if !started.IsZero() {
			r.ran = time.Since(started)
		}
		r.end()
		r.finish(sound(err))
	}()
	if o.Started != nil {
		r.pool.observe("Started", func() { o.Started(w.ctx, r.class.name, r.task, started.Sub(r.task.ReadyAt)) })
	}
	r.limit()
	most := r.attempts()
	switch {
	case most > 0 && r.task.Attempts > most: // the last one that it may have has ended without a word
		r.task.Attempts = most
		err = r.spent()
	case r.late(0): // while it waited for a worker
		err = errLate
	default:
		err = r.pool.handler(r, r.task)
	}
}

// spent returns what a task has failed with that was tried as often as it may.
func (r *run[V]) spent() error {
	err := fmt.Errorf("pool: not done after %d attempts, of which the last one has ended without a result", r.task.Attempts)
	if r.task.Err != nil {
		err = fmt.Errorf("%w; the last error: %w", err, r.task.Err)
	}
	return Permanent(err)
}

var (
	errGoexit = errors.New("pool: handler called runtime.Goexit")
	errLate   = fmt.Errorf("%w; it was not started", ErrDeadline)
)

// limit finds out how long the handler has.
func (r *run[V]) limit() {
	r.policy = &r.pool.policy
	if r.pool.forTask != nil {
		r.policy = new(r.pool.forTask(r.task, r.pool.policy))
	}
	sooner := func(at time.Time, cause error) {
		if !at.IsZero() && (r.deadline.IsZero() || at.Before(r.deadline)) {
			r.deadline, r.cause = at, cause
		}
	}
	if r.policy.Timeout > 0 {
		sooner(time.Now().Add(r.policy.Timeout), ErrTimeout)
	}
	sooner(r.task.Deadline, ErrDeadline)
}

// Deadline implements [context.Context].
func (r *run[V]) Deadline() (time.Time, bool) { return r.deadline, !r.deadline.IsZero() }

// Done implements [context.Context].
func (r *run[V]) Done() <-chan struct{} { return r.real().Done() }

// Err implements [context.Context].
func (r *run[V]) Err() error { return r.real().Err() }

// Value implements [context.Context].
func (r *run[V]) Value(key any) any {
	r.mu.Lock()
	ctx, ended := r.ctx, r.ended
	r.mu.Unlock()
	if ended && key == (workerKey{}) { // who goes on is no handler any more
		return nil
	}
	if ctx == nil {
		ctx = r.worker.ctx
	}
	return ctx.Value(key)
}

// real returns the context that is behind this one.
func (r *run[V]) real() context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx == nil {
		leased, cancel := r.leased()
		r.ctx, r.cancel = leased, cancel
		if !r.deadline.IsZero() {
			timed, stop := context.WithDeadlineCause(leased, r.deadline, r.cause)
			r.ctx, r.cancel = timed, func() { stop(); cancel() }
		}
		if r.ended {
			r.cancel()
		}
	}
	return r.ctx
}

// leased returns a context that ends with the lease. That the lease was lost before, the store is asked in the background, unless
// that takes no time: who calls Done may hold a lock meanwhile, as database/sql does, or be in a transaction that the store has
// to wait for.
func (r *run[V]) leased() (context.Context, context.CancelFunc) {
	if r.class.direct {
		return r.task.Context(r.worker.ctx)
	}
	ctx, cancel := context.WithCancelCause(r.worker.ctx)
	r.pool.background(func() {
		leased, end := r.task.Context(ctx)
		context.AfterFunc(leased, func() {
			cancel(context.Cause(leased))
			end()
		})
	})
	return ctx, func() { cancel(context.Canceled) }
}

// end ends the context.
func (r *run[V]) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended, r.cause = true, nil
	if r.ctx != nil {
		r.cause = context.Cause(r.ctx)
		r.cancel()
	}
}

// settle tells the queue what came of the task.
func (r *run[V]) settle(err error) {
	p, t, counts := r.pool, r.task, r.counts
	var again *retryError
	errors.As(err, &again)
	switch {
	case err == nil:
		r.told(p.tell(t, ending{}), &counts.succeeded, func() {
			if f := p.observer.Succeeded; f != nil {
				p.observe("Succeeded", func() { f(p.steady, r.class.name, t, r.ran) })
			}
		})
	case errors.Is(err, errLate):
		r.fail(Deadline, err)
	case errors.As(err, new(*permanentError)):
		r.fail(Failed, err)
	case p.ctx.Err() != nil: // it was interrupted
		r.told(p.tell(t, ending{how: snoozed}), &counts.returned, nil)
	case again != nil && again.snooze:
		r.told(p.tell(t, ending{how: snoozed, delay: again.delay}), &counts.snoozed, func() { r.retried(again.delay, err) })
	default:
		if r.cause != nil && errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, r.cause) {
			err = timedOut(r.cause, err)
		}
		delay := time.Duration(0)
		if most := r.attempts(); most > 0 && t.Attempts >= most {
			r.fail(Failed, err)
			return
		} else if again != nil {
			delay = again.delay
		} else {
			delay = clamp(r.policy.Backoff.Delay(t.Attempts)) // nobody has checked a policy of ForTask
		}
		if r.late(delay) {
			r.fail(Deadline, err)
			return
		}
		r.told(p.tell(t, ending{how: retried, delay: delay, err: err}), &counts.retried, func() { r.retried(delay, err) })
	}
}

// attempts returns how often the task may be tried; 0 means any number of times.
func (r *run[V]) attempts() int {
	switch {
	case r.task.MaxAttempts > 0:
		return r.task.MaxAttempts
	case r.policy.MaxAttempts == 0:
		return DefaultMaxAttempts
	}
	return max(r.policy.MaxAttempts, 0)
}

// late tells whether the task's time would be over after a delay.
func (r *run[V]) late(delay time.Duration) bool {
	if r.task.Deadline.IsZero() && r.task.Expires.IsZero() {
		return false
	}
	now := time.Now()
	return !r.task.Deadline.IsZero() && !now.Add(delay).Before(r.task.Deadline) ||
		!r.task.Expires.IsZero() && !now.Before(r.task.Expires)
}

func (r *run[V]) retried(delay time.Duration, err error) {
	if f := r.pool.observer.Retried; f != nil {
		r.pool.observe("Retried", func() { f(r.pool.steady, r.class.name, r.task, r.ran, delay, err) })
	}
	r.pool.log.Debug("pool: to be tried again",
		about(r.class.name, &r.task.Info, err, "attempts", r.task.Attempts, "delay", delay)...)
}

// told counts what came of the task, if the queue has taken notice.
func (r *run[V]) told(err error, count *counter, then func()) {
	if err == nil {
		inc(count)
		if then != nil {
			then()
		}
		return
	}
	inc(&r.counts.lost)
	if f := r.pool.observer.Lost; f != nil {
		r.pool.observe("Lost", func() { f(r.pool.steady, r.class.name, r.task, r.ran, err) })
	}
	level := slog.LevelWarn
	if errors.Is(r.cause, task.ErrDeleted) {
		level = slog.LevelDebug // it was cancelled, and the handler could know
	}
	r.pool.log.Log(r.pool.steady, level, "pool: the queue could not be told what came of a task",
		about(r.class.name, &r.task.Info, err)...)
}

// fail ends a task that has failed for good.
func (r *run[V]) fail(reason Reason, err error) {
	p, t := r.pool, r.task
	end := buried
	if r.class.own {
		end = discarded
	}
	if p.sink != nil {
		if lost := p.tell(t, ending{how: goesOn}); lost != nil { // then the letter is not ours to send
			r.told(lost, nil, nil)
			return
		}
		end = discarded
		bad := send(p.ctx, &p.crew, &p.observer, p.sink, newLetter(r.class.name, t, reason, err))
		if bad != nil {
			end, err = buried, errors.Join(err, bad)
		}
	}
	r.failed(end, reason, err)
}

// failed ends the task, and tells.
func (r *run[V]) failed(end how, reason Reason, err error) {
	p, t := r.pool, r.task
	r.class.failures.record(&t.Info, err)
	r.told(p.tell(t, ending{how: end, err: err}), &r.counts.failed, func() {
		if reason == Deadline {
			p.expired(r.class.name, t)
		}
		if f := p.observer.Failed; f != nil {
			p.observe("Failed", func() { f(p.steady, r.class.name, t, r.ran, err) })
		}
		p.log.Warn("pool: a task failed for good",
			about(r.class.name, &t.Info, err, "reason", reason.String(), "attempts", t.Attempts)...)
	})
}
