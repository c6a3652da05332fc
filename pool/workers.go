package pool

import (
	"context"
	"log/slog"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

// Workers drain a FairQueue; [NewWorkers] makes them. All methods may be called at any time by any
// goroutine.
type Workers struct {
	*workerSet
	shutdown, wait func(context.Context) error // of the Pool
}

// WorkersOptions configure [NewWorkers]. The zero value of each field is its default. [Options]
// says more about the fields that it has too.
type WorkersOptions[V any] struct {
	Workers  int // how many; 0 means [runtime.GOMAXPROCS]
	Scale    Scale
	Schedule []Range

	// Timeout is how long a handler has before its context is done; 0 means no limit.
	Timeout time.Duration

	// DeadLetters receives failed items. If it is nil they are only observed and logged.
	DeadLetters Handler[*DeadLetter[V]]

	AbandonAfter time.Duration // 0 means a second
	Observer     func(ctx context.Context, e Event[V])
	Logger       *slog.Logger
}

// NewWorkers returns workers that call a handler for each item of a FairQueue. The queue stays the
// caller's, so its pushes decide what happens when it is full. Each item is handled at most once;
// a failed item goes to DeadLetters. With [fairq.Options].ShareTime an item is in hand until its
// handler returns.
//
// Workers are several times faster than a Pool, whose task queue has retries, delays, kinds and
// priorities. An item costs one allocation of some 150 bytes for its context. No context is used
// again, because a goroutine that the handler has started may still have it.
//
// The workers start immediately. To end them, close the queue, Wait, and then Shutdown. nil
// options are the defaults. NewWorkers panics if the options do not make sense.
func NewWorkers[K comparable, V any](queue *fairq.FairQueue[K, V], handler Handler[V],
	options *WorkersOptions[V],
) *Workers {
	if queue == nil || handler == nil {
		panic("pool: NewWorkers: the queue or the handler is nil")
	}
	var o Options[V]
	if w := options; w != nil {
		o = Options[V]{
			Workers: w.Workers, Scale: w.Scale, Schedule: w.Schedule, Policy: Policy{Timeout: w.Timeout},
			DeadLetters: w.DeadLetters, AbandonAfter: w.AbandonAfter, Observer: w.Observer,
			Logger: w.Logger,
		}
	}
	setup, err := o.completeCommon()
	if err != nil {
		panic(err)
	}
	p := &Pool[V]{
		handler: func(ctx context.Context, t *task.Task[V]) error { return handler(ctx, t.Payload) },
		policy:  o.Policy, sink: o.DeadLetters, observer: o.Observer,
	}
	p.workerSettings = *setup
	c := &class[V]{
		pool: p, queued: queue.Len,
		done: func(item V) { _ = queue.Done(item) }, // it is an error without ShareTime
	}
	watch := queue.Watch(c.due)
	c.disarm = watch.Disarm
	c.takeOne = func(_ context.Context, into *task.Task[V], wasIdle bool,
	) (found, more bool, err error) {
		for {
			into.Attempts = 1
			if into.Payload, found = queue.Pop(); found && !wasIdle {
				return true, false, nil // no idle worker relies on it
			}
			if more = !watch.Arm(1); found || !more {
				return found, more, nil
			}
			if s := queue.Stats(); s.Closed && s.Len == 0 {
				return false, false, fairq.ErrClosed
			}
		}
	}
	p.classes = []*class[V]{c}
	p.start(p)
	return &Workers{&p.workerSet, p.Shutdown, p.Wait}
}

// Shutdown ends the workers. They take no more items, and running handlers finish. While a handler
// is in [Yield] workers still take items, because it may wait for one. If ctx is done first, the
// contexts of the handlers are cancelled with the cause [ErrShutdown]. Queued items stay in the
// queue.
//
// It returns nil if all handlers ended by themselves, the cause of ctx if they had to be
// cancelled, and an [ErrAbandoned] if some have not returned Options.AbandonAfter later. It may
// be called several times, even at the same time, for instance with another ctx. A handler must
// not call it, because it would wait for itself: with its context it does nothing and returns an
// [task.ErrInvalid]. To finish the backlog first, close the queue and call Wait.
func (w *Workers) Shutdown(ctx context.Context) error { return w.shutdown(ctx) }

// Wait waits until all workers are idle and nothing is queued. It returns [ErrShutdown] if
// Shutdown has left items, and the error of ctx if ctx is done first. A handler must not call it,
// because it would wait for itself: with its context it returns an [task.ErrInvalid].
func (w *Workers) Wait(ctx context.Context) error { return w.wait(ctx) }
