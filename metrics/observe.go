package metrics

import (
	"context"
	"time"

	"github.com/fairq/fairq/pool"
)

// Times records how long the tasks of a pool wait and run. The goroutines of the handlers call it.
type Times interface {
	// Waited records how long a task had been ready when its handler was called. It is not called
	// for items of a FairQueue.
	Waited(ctx context.Context, class string, d time.Duration)

	// Ran records how long a handler has run, and its outcome: "succeeded", "retried", "snoozed",
	// "failed", "cancelled", "lost" or, if Shutdown has interrupted it, "returned".
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

// Observe returns an Observer for the Options of a pool that calls t, and then next, which may be
// nil. Programs without a pool can call it themselves: with EventStarted and the time since the
// task's ReadyAt, then with the event for the end of the attempt and the run time.
func Observe[V any](next pool.Observer[V], t Times) pool.Observer[V] {
	return func(ctx context.Context, e pool.Event[V]) {
		switch e.Kind {
		case pool.EventStarted:
			if e.Task.ID != 0 {
				t.Waited(ctx, valid(e.Class), e.Took)
			}
		case pool.EventSucceeded, pool.EventRetried, pool.EventSnoozed, pool.EventFailed,
			pool.EventCancelled, pool.EventLost, pool.EventReturned:
			t.Ran(ctx, valid(e.Class), e.Kind.String(), e.Took)
		}
		if next != nil {
			next(ctx, e)
		}
	}
}
