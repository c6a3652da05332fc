package pool

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairq/fairq/task"
)

// ending is what a queue is told of a task that was taken.
type ending struct {
	how   how
	delay time.Duration
	err   error
}

type how uint8

const (
	done how = iota
	snoozed
	retried
	buried
	discarded
	goesOn // asks whether the lease is held
)

// firstRetell is how long after a failure a queue is told again, and then twice as long each time, up to sourceRetry.
const firstRetell = 10 * time.Millisecond

// tell tells the queue what came of a task. If that fails, and the lease may be held yet, it tries again until Shutdown waits for nothing any more.
func (p *Pool[V]) tell(t *task.Task[V], e ending) error {
	var first error
	for wait := firstRetell; ; wait = min(2*wait, sourceRetry) {
		err := tellOnce(p.steady, t, e)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, task.ErrLeaseLost) || isOver(err) || errors.Is(err, task.ErrInvalid) || p.steady.Err() != nil ||
			!t.Until.IsZero() && !time.Now().Add(wait).Before(t.Until):
			if first != nil { // which may have been after the end of the transaction
				err = fmt.Errorf("%w; and before that: %w", err, first)
			}
			return err
		case first == nil:
			first = err
			p.log.Warn("pool: the queue could not be told what came of a task; trying again", about("", &t.Info, err)...)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-p.steady.Done(): // once more
			timer.Stop()
		}
	}
}

func tellOnce[V any](ctx context.Context, t *task.Task[V], e ending) error {
	switch e.how {
	case snoozed:
		return t.Snooze(ctx, e.delay)
	case retried:
		return t.Fail(ctx, e.err, e.delay)
	case buried:
		return t.Bury(ctx, e.err)
	case discarded:
		return t.Discard(ctx, e.err)
	case goesOn:
		return t.Touch(ctx, 0)
	}
	return t.Ack(ctx)
}

// finish settles a task. Unless that takes no time, it is done in the background, and the worker goes on, as long as not too many
// are unsettled.
func (r *run[V]) finish(err error) {
	p := r.pool
	if r.class.direct {
		r.settle(err)
		return
	}
	if p.settling.Add(1) > p.mostUnsettled {
		defer p.settling.Add(-1)
		r.settle(err)
		return
	}
	r.counts = &p.later
	p.background(func() {
		defer p.settling.Add(-1)
		r.settle(err)
	})
}
