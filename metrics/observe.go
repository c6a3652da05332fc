package metrics

import (
	"context"
	"errors"
	"time"

	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// Times records how long the tasks of a pool wait and run. The goroutines of the handlers call it.
type Times interface {
	// Waited records how long a task had been ready when its handler was called. It is not called
	// for items of a FairQueue.
	Waited(ctx context.Context, class string, d time.Duration)

	// Ran records how long a handler has run, and its outcome: "succeeded", "retried", "snoozed",
	// "failed", "cancelled" or "lost".
	Ran(ctx context.Context, class, outcome string, d time.Duration)
}

// These describe the records of Times: the first has the attribute class, the second also the
// attribute outcome.
const (
	WaitName = "fairq.pool.wait"
	WaitHelp = "How long tasks had been ready when their handlers were called."
	RunName  = "fairq.pool.run"
	RunHelp  = "How long handlers have run."
)

// Observe returns an Observer for the Options of a pool that calls t, and then o. Programs without
// a pool can call it themselves: Started with the time since the task's ReadyAt, then Succeeded,
// Retried, Failed, Cancelled or Lost with the run time.
func Observe[V any](o pool.Observer[V], t Times) pool.Observer[V] {
	next := o
	o.Started = func(ctx context.Context, class string, tk *task.Task[V], waited time.Duration) {
		if tk.ID != 0 {
			t.Waited(ctx, valid(class), waited)
		}
		if next.Started != nil {
			next.Started(ctx, class, tk, waited)
		}
	}
	o.Succeeded = func(ctx context.Context, class string, tk *task.Task[V], ran time.Duration) {
		t.Ran(ctx, valid(class), "succeeded", ran)
		if next.Succeeded != nil {
			next.Succeeded(ctx, class, tk, ran)
		}
	}
	o.Retried = func(ctx context.Context, class string, tk *task.Task[V], ran, delay time.Duration,
		err error,
	) {
		outcome := "retried"
		if errors.Is(err, pool.ErrSnoozed) {
			outcome = "snoozed"
		}
		t.Ran(ctx, valid(class), outcome, ran)
		if next.Retried != nil {
			next.Retried(ctx, class, tk, ran, delay, err)
		}
	}
	type ended = func(context.Context, string, *task.Task[V], time.Duration, error)
	failed := func(outcome string, f ended) ended {
		return func(ctx context.Context, class string, tk *task.Task[V], ran time.Duration, err error) {
			t.Ran(ctx, valid(class), outcome, ran)
			if f != nil {
				f(ctx, class, tk, ran, err)
			}
		}
	}
	o.Failed, o.Cancelled, o.Lost = failed("failed", next.Failed),
		failed("cancelled", next.Cancelled), failed("lost", next.Lost)
	return o
}
