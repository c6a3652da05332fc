package pool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/fairq/fairq/task"
)

// Observer gets the events of a pool as they happen, in their goroutines, so it should be fast.
// Without an Observer no event is made, and no clock is read for it. If it panics, the Logger logs
// that, and the pool goes on.
//
// An EventDropped of a call of Submit or the like comes with the context of that call, any other
// event with a context that lasts as long as the pool. An Observer that calls Submit, Wait or the like of this
// pool must pass its context, by which the pool sees that the call must not wait.
type Observer[V any] func(ctx context.Context, e Event[V])

// Event is a thing that has happened to a task, or to the workers.
type Event[V any] struct {
	Kind  EventKind
	Class string // the Class.Name; empty if the pool has no classes

	// Task is the handler's, and must not be changed or settled; nil for EventScaled and
	// EventDeadLetter. Before it is in the queue it has no ID. An item of a FairQueue has only the
	// Payload.
	Task *task.Task[V]

	// Took of the end of an attempt is how long the handler ran. Of an EventStarted it is how long
	// the task had been ready, 0 for an item of a FairQueue.
	Took time.Duration

	Delay   time.Duration  // of EventRetried and EventSnoozed: until the next attempt
	Err     error          // the reason; of EventDeadLetter, why the sink has not taken it
	Letter  *DeadLetter[V] // of EventDeadLetter
	Workers int            // of EventScaled: how many there are now
}

// EventKind is the kind of an event. Each counter of [Stats] is the number of its events.
type EventKind uint8

// The kinds of events.
const (
	EventStarted EventKind = iota // a handler begins

	// Each started attempt ends in one of these; see the counters of [Stats].
	EventSucceeded
	EventRetried
	EventSnoozed
	EventFailed
	EventCancelled
	EventLost
	EventReturned

	EventDropped    // a task without room
	EventExpired    // a task whose time was over before it was done
	EventDeadLetter // a letter was handed to DeadLetters
	EventScaled     // the number of workers has changed

	eventPanicked // only counted
	eventKinds
)

var eventNames = [...]string{
	"started", "succeeded", "retried", "snoozed", "failed", "cancelled", "lost",
	"returned", "dropped", "expired", "dead letter", "scaled",
}

// String returns the kind in lower case.
func (k EventKind) String() string {
	if int(k) < len(eventNames) {
		return eventNames[k]
	}
	return fmt.Sprintf("EventKind(%d)", uint8(k))
}

// logAttrs returns the attributes of a log line: the task, further attributes, and its error, with
// the stack of a panic.
func logAttrs[V any](class string, t *task.Task[V], err error, more ...any) (args []any) {
	if t.ID != 0 {
		args = append(args, "task", t.ID)
	}
	if t.Key != "" {
		args = append(args, "key", t.Key)
	}
	if class != "" {
		args = append(args, "class", class)
	}
	args = append(append(args, more...), "error", err)
	if panicked, ok := errors.AsType[*task.PanicError](err); ok {
		args = append(args, "stack", string(panicked.Stack))
	}
	return args
}

// observe calls the Observer, if there is one. A panic in it must neither end the process nor
// change the outcome of a task.
func (p *Pool[V]) observe(ctx context.Context, event func() Event[V]) {
	if p.observer != nil {
		p.guard("the Observer", func() { p.observer(ctx, event()) })
	}
}

// guard calls a function of the user whose outcome nobody waits for.
func (ws *workerSet) guard(name string, call func()) {
	defer func() {
		if v := recover(); v != nil {
			ws.log.Error("pool: "+name+" panicked", "panic", v, "stack", string(debug.Stack()))
		}
	}()
	call()
}

// happened counts and observes an event of an attempt.
func (a *attempt[V]) happened(kind EventKind, took, delay time.Duration, err error) {
	p := a.class.pool
	a.counters()[kind].Add(1)
	p.observe(p.storeCtx, func() Event[V] {
		return Event[V]{
			Kind: kind, Class: a.class.name, Task: &a.task, Took: took, Delay: delay, Err: err,
		}
	})
}

// ended is happened for the end of an attempt.
func (a *attempt[V]) ended(kind EventKind, delay time.Duration, err error) {
	a.happened(kind, a.extraOrZero().ran, delay, err)
}

// observeScaled observes a new number of workers.
func (p *Pool[V]) observeScaled(workers int) {
	p.observe(p.storeCtx, func() Event[V] { return Event[V]{Kind: EventScaled, Workers: workers} })
}

// observeTask counts and observes an event of a task that need not run.
func (p *Pool[V]) observeTask(ctx context.Context, kind EventKind, class string, t *task.Task[V],
	err error,
) {
	p.counts[kind].Add(1)
	p.observe(p.inside(ctx), func() Event[V] {
		return Event[V]{Kind: kind, Class: class, Task: t, Err: err}
	})
}

// guardedHandler is a Logger's handler whose panics are dropped, because nothing could report
// them.
type guardedHandler struct{ slog.Handler }

// Enabled implements [slog.Handler].
func (h guardedHandler) Enabled(ctx context.Context, level slog.Level) bool {
	defer func() { _ = recover() }()
	return h.Handler.Enabled(ctx, level)
}

// Handle implements [slog.Handler].
func (h guardedHandler) Handle(ctx context.Context, r slog.Record) error {
	defer func() { _ = recover() }()
	return h.Handler.Handle(ctx, r)
}
