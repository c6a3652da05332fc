package metrics

import (
	"context"
	"time"

	"github.com/fairq/fairq/pool"
)

// These describe the records of Observe: the first has the attribute class, the second also the
// attribute outcome.
var (
	WaitTimes = Metric{
		Name: "fairq.pool.wait", Unit: "s", Kind: Histogram,
		Help: "How long tasks had been ready when their handlers were called.",
	}
	RunTimes = Metric{
		Name: "fairq.pool.run", Unit: "s", Kind: Histogram, Help: "How long handlers have run.",
	}
)

// Observe returns an Observer for the Options of a pool that calls record, in the goroutines of
// the handlers, and then next, which may be nil. With the outcome "", record gets how long a task
// had been ready when its handler was called, but not for items of a FairQueue. Otherwise it gets
// how long a handler has run, and its outcome: "succeeded", "retried", "snoozed", "failed",
// "cancelled", "lost" or, if Shutdown has interrupted it, "returned".
//
// Programs without a pool can call the Observer themselves: with EventStarted and the time since
// the task's ReadyAt, then with the event for the end of the attempt and the run time.
func Observe[V any](
	next func(context.Context, pool.Event[V]),
	record func(ctx context.Context, class, outcome string, took time.Duration),
) func(context.Context, pool.Event[V]) {
	return func(ctx context.Context, e pool.Event[V]) {
		switch e.Kind {
		case pool.EventStarted:
			if e.Task.ID != 0 {
				record(ctx, valid(e.Class), "", e.Took)
			}
		case pool.EventSucceeded, pool.EventRetried, pool.EventSnoozed, pool.EventFailed,
			pool.EventCancelled, pool.EventLost, pool.EventReturned:
			record(ctx, valid(e.Class), e.Kind.String(), e.Took)
		}
		if next != nil {
			next(ctx, e)
		}
	}
}
