package pool

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairq/fairq/task"
)

// settle settles a task by one of the task's methods. It retries until ctx is done or the lease
// may have ended; a zero until means that it lasts.
func (p *Pool[V]) settle(ctx context.Context, t *task.Task[V], until time.Time,
	call func(context.Context) error,
) error {
	var first error
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, sourceRetry) {
		err := call(ctx)
		if err == nil {
			return nil
		}
		switch {
		case isLost(err) || errors.Is(err, task.ErrInvalid) || ctx.Err() != nil ||
			!until.IsZero() && !time.Now().Add(wait).Before(until):
			if first != nil { // the first try may have failed after the end of its transaction
				err = fmt.Errorf("%w; and before that: %w", err, first)
			}
			return err
		case first == nil:
			first = err
			p.warn("pool: a task could not be settled; trying again", 1, logAttrs("", t, err))
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done(): // one last try
		}
	}
}

// isLost reports whether an error means that the pool does not have the task any more.
func isLost(err error) bool { return errors.Is(err, task.ErrLeaseLost) || isOver(err) }

// finish settles a task of a queue that is not in memory. That takes a transaction, so it happens
// in the background and the worker goes on. The worker does it itself if too many tasks are being
// settled, or if its next task may be of a key that is about to be held.
func (a *attempt[V]) finish(err error) {
	p := a.class.pool
	again, _ := errors.AsType[*retryError](err)
	if int(p.settling.Add(1)) > max(256, p.base.Max) || again != nil && again.holdKey {
		defer p.settling.Add(-1)
		a.settle(err)
		return
	}
	p.runInBackground(func() {
		defer p.settling.Add(-1)
		a.settle(err)
	})
}

// settle settles the task by the error of its handler.
func (a *attempt[V]) settle(err error) {
	p, t, repeats := a.class.pool, &a.task, &a.class.repeats
	repeats.Delete(t.ID)
	if err == nil {
		a.settleBy(a.ack, EventSucceeded, 0, nil)
		return
	}
	again, _ := errors.AsType[*retryError](err)
	if again == nil {
		again = &retryError{delay: p.policy.Backoff.delay(max(t.Attempts, 1))}
	}
	delay, holds := again.delay, p.policy.InOrder || again.holdKey
	joined, _ := errors.AsType[interface {
		error
		Unwrap() []error
	}](err)
	_, permanent := errors.AsType[*permanentError](err)
	switch {
	case err == errLate: //nolint:errorlint // not that in what Do has returned
		a.fail(ReasonDeadline, err)
	case permanent:
		a.fail(ReasonFailed, err)
	case again.repeat:
		delay = clamp(time.Until(again.at))
		if p.accepting.Err() != nil { // so that StopAndWait finds a moment without a run
			delay = max(delay, time.Second)
		}
		repeats.Store(t.ID, nil) // before others can take it
		if !a.settleBy(func(ctx context.Context) error { return t.Repeat(ctx, delay) },
			EventSucceeded, 0, nil) {
			repeats.Delete(t.ID)
		}
	case p.ctx.Err() != nil: // Shutdown has cancelled the handler
		a.settleBy(t.Return, EventReturned, 0, err)
	case again.snooze && (joined == nil || len(joined.Unwrap()) == 1):
		a.settleBy(func(ctx context.Context) error {
			if holds {
				return t.HoldKey(ctx, nil, delay)
			}
			return t.Snooze(ctx, delay)
		}, EventSnoozed, delay, err)
	default:
		err = a.timedOut(err)
		switch {
		case t.Attempts >= a.maxAttempts():
			a.fail(ReasonFailed, err)
		case a.tooLate(delay): // its time will be over then
			a.fail(ReasonDeadline, err)
		default:
			a.settleBy(func(ctx context.Context) error {
				if holds {
					return t.HoldKey(ctx, err, delay)
				}
				return t.Fail(ctx, err, delay)
			}, EventRetried, delay, err)
		}
	}
	if h := p.prefetcher; h != nil && again.holdKey {
		h.handBack(func(h prefetchedTask[V]) bool { return h.task.Key == t.Key })
	}
}

// settleItem counts the outcome of an item of a FairQueue, and sends its letter if it has failed.
func (a *attempt[V]) settleItem(err error) {
	switch {
	case err == nil:
		a.ended(EventSucceeded, 0, nil)
	case a.class.pool.ctx.Err() != nil:
		a.fail(ReasonShutdown, a.timedOut(err))
	default:
		a.fail(ReasonFailed, a.timedOut(err))
	}
}

// timedOut returns the error of a task. If the time of the handler was over before it returned,
// and so its context was done, the error says that too.
func (a *attempt[V]) timedOut(err error) error {
	if cause := a.extra.cause; cause != nil && errors.Is(err, context.DeadlineExceeded) &&
		!errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// ack acks the task. If the worker would take the next task immediately, with no user code in
// between, one call does both.
func (a *attempt[V]) ack(ctx context.Context) error {
	p, c := a.class.pool, a.class
	if len(p.classes) > 1 || p.prefetcher != nil ||
		c.watch.Load() == watchArmed || p.interrupt.Load() || p.observer != nil {
		return a.task.Ack(ctx)
	}
	next := c.newAttempt(a.worker)
	found, err := c.consumer.AckAndTake(ctx, &a.task, &next.task)
	if found {
		a.worker.following = next
	} else {
		a.worker.spare = next
	}
	return err
}

// fail ends a task that has failed for good. Its dead letter goes first: the task may leave the
// queue only when the sink has the letter.
func (a *attempt[V]) fail(reason Reason, err error) {
	p, c, t := a.class.pool, a.class, &a.task
	endBy := func(end func(context.Context, error) error) bool {
		is := a.settleBy(func(ctx context.Context) error { return end(ctx, err) }, EventFailed, 0, err)
		if is && reason == ReasonDeadline {
			p.observeTask(EventExpired, c.name, t)
		}
		return is
	}
	switch {
	case p.sink != nil:
		p.post(newDeadLetter(c.name, t, reason, err), a, func(refused error) {
			if refused == nil {
				endBy(t.Discard)
				return
			}
			err = errors.Join(err, refused)
			if c.own { // onGone is called if its time is over
				c.refused.Store(t.ID, nil)
			}
			if endBy(t.Bury) && t.Info().State == 0 { // it could not be buried, or is an item
				p.letterLost(c.name, t, reason, err)
			} else {
				c.refused.Delete(t.ID)
			}
		})
	case c.own:
		endBy(t.Discard)
	default:
		endBy(t.Bury)
	}
}

// settleBy settles the task, and makes the outcome known. It returns false if it cannot settle the
// task.
func (a *attempt[V]) settleBy(call func(context.Context) error, kind EventKind,
	delay time.Duration, err error,
) bool {
	if a.class.queue == nil { // an item is in no queue
		a.ended(kind, delay, err)
		return true
	}
	p, t := a.class.pool, &a.task
	ctx, until := p.storeCtx, t.Info().Until
	if kind == EventFailed {
		ctx = p.settleCtx
		if p.sink != nil {
			until = time.Time{} // the lease is being extended, see keepLease
		}
	}
	noted := false
	bad := p.settle(ctx, t, until, func(ctx context.Context) error {
		err := call(ctx)
		if err != nil && !isLost(err) && kind != EventReturned { // closing the consumer returns it
			p.unsettled.Store(t, *t) // a copy, because the next call changes the task
			noted = true
		} else if noted {
			p.unsettled.Delete(t)
		}
		return err
	})
	switch {
	case bad == nil:
		a.ended(kind, delay, err)
	case errors.Is(a.extra.cause, task.ErrDeleted):
		a.ended(EventCancelled, 0, bad)
	default:
		a.ended(EventLost, 0, bad)
	}
	return bad == nil
}
