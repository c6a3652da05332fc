package pool_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// shutdown shuts the pool down, in one of several ways.
func (l *ledger) shutdown() {
	var all sync.WaitGroup
	for i := range 1 + l.rand.IntN(3) {
		limit := time.Duration(-1)
		if i == 0 || l.rand.IntN(2) == 0 {
			limit = []time.Duration{0, 50 * time.Millisecond, time.Second, time.Minute}[l.rand.IntN(4)]
		}
		pause := time.Duration(l.rand.IntN(100)) * time.Millisecond
		all.Go(func() {
			time.Sleep(pause)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if limit >= 0 {
				ctx, cancel = context.WithTimeout(ctx, limit)
				defer cancel()
			}
			l.shutDownOnce(ctx, limit >= 0)
		})
	}
	for range l.rand.IntN(5) {
		time.Sleep(time.Duration(l.rand.IntN(60)) * time.Millisecond)
		l.interfere()
		synctest.Wait()
		l.checkIdle()
		l.mu.Lock()
		closing := l.closing
		l.mu.Unlock()
		if closing {
			require.ErrorIs(l, l.p.Submit(l.ctx, "late", nil), pool.ErrShutdown)
		}
	}
	all.Wait()
	// handlers that were abandoned come to their end
	err := insist(func() error { return l.p.Shutdown(context.Background()) })
	s := l.p.Stats()
	require.Equal(l, len(l.p.Leftovers()) > 0, err != nil, err)
	require.Zero(l, s.Workers+s.Idle+s.Nested)
	require.True(l, s.Closed)
	synctest.Wait()
	for _, n := range l.classes {
		if s, err := n.queue.Stats(l.ctx); err == nil {
			l.mu.Lock()
			require.LessOrEqual(l, s.Taken, n.held, "tasks were not handed back")
			l.mu.Unlock()
		}
	}
}

func (l *ledger) shutDownOnce(ctx context.Context, limited bool) {
	l.mu.Lock()
	// handlers that wait for tasks may need them, paused or not
	l.closing, l.paused, l.forced = true, false, l.forced || limited
	l.mu.Unlock()
	err := l.p.Shutdown(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	require.Equal(l, len(l.p.Leftovers()) > 0, errors.Is(err, pool.ErrShutdown), err)
	switch {
	case errors.Is(err, pool.ErrAbandoned):
		l.abandoned = true
		require.True(l, l.forced) // by this call or another one
	case err != nil:
		require.True(l, errors.Is(err, context.DeadlineExceeded) || errors.Is(err, pool.ErrShutdown) ||
			errors.Is(err, errStore), err) // tasks could not be released: the last call does
		fallthrough
	default:
		require.Zero(l, l.running+l.nested, "handlers run after Shutdown")
	}
}

// checkContext checks whether the context of a handler is done for a good reason.
func (l *ledger) checkContext(ctx context.Context, t *task.Task[*chore], began time.Time) {
	if slow := t.Payload.class.slow; slow != nil && ctx.Err() == nil {
		time.Sleep(3*slow.takes + 1) // a first call does not know immediately
	}
	err := ctx.Err() // before the cause, because ctx may end in between
	cause, now := context.Cause(ctx), time.Now()
	limit := l.options.Policy.Timeout
	moody := t.Payload.class.fails() // then nothing may have reported the lost lease
	switch {
	case cause == nil:
		if err != nil || limit > 0 && now.Sub(began) > limit || !t.Info().Until.IsZero() &&
			now.After(t.Info().Until) && !moody {
			l.Errorf("a context lives after %v, with a timeout of %v and a lease until %v", now.Sub(began),
				limit, t.Info().Until.Sub(began))
		}
	case errors.Is(cause, pool.ErrTimeout):
		if limit == 0 || now.Sub(began) < limit {
			l.Errorf("a context has timed out after %v, with a timeout of %v", now.Sub(began), limit)
		}
	case errors.Is(cause, pool.ErrDeadline):
		if now.Before(t.Info().Deadline) {
			l.Errorf("a context has ended before its deadline")
		}
	case errors.Is(cause, task.ErrLeaseLost):
		l.mu.Lock()
		defer l.mu.Unlock()
		c := t.Payload
		// by an earlier attempt
		deleted := c.put.TTR > 0 &&
			slices.ContainsFunc(c.plan, func(a act) bool { return a.how == "delete" })
		if !c.class.closed && !l.abandoned && !deleted &&
			(t.Info().Until.IsZero() || now.Before(t.Info().Until)) {
			l.Errorf("a lease was lost: %v", c)
		}
	default:
		l.mu.Lock()
		defer l.mu.Unlock()
		if !errors.Is(cause, pool.ErrShutdown) || !l.forced {
			l.Errorf("a context has ended because of %v", cause)
		}
	}
}

// isRefusal reports whether Submit may return such an error.
func (l *ledger) isRefusal(c *chore) bool {
	err := c.err
	return errors.Is(err, fairq.ErrFull) || errors.Is(err, pool.ErrShutdown) ||
		errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, context.Canceled) ||
		errors.Is(err, task.ErrClosed) && (c.class.closed || c.waits)
}
