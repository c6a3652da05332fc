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

// Observe returns an Observer for the Options of a pool that calls record in the goroutines of the
// handlers. An Observer of your own can call it. With the outcome "", record gets how long a task
// had been ready when its handler was called, but not for items of a FairQueue. With any other
// outcome it gets how long a handler has run. These outcomes are "succeeded", "retried",
// "snoozed", "failed", "cancelled", "lost" or, if Shutdown has interrupted it, "returned".
//
// A program without a pool can call the Observer itself. It first passes EventStarted with the
// time since the task's ReadyAt. At the end of the attempt it passes the event for the outcome,
// with the run time.
func Observe[V any](
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
	}
}
