package pool

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/fairq/fairq/task"
)

// Observer has functions that a pool calls as things happen. The goroutine of the event calls
// them, so they should be fast. nil functions cost nothing. If a function panics, the Logger logs
// that, and the pool goes on. The class is [Class].Name, empty if the pool has no classes.
//
// Offered and Refused get the context of the call, and so does Dropped if its own Submit drops a
// task. Started gets the parent of the handler's context. The others get a context that lasts as
// long as the pool. The task is the handler's; it must not be changed or settled. Before it is in
// the queue it has no ID. An item of a FairQueue has only the Payload.
//
// A function that calls Submit, Wait or the like of this pool must pass its context, by which the
// pool sees that the call must not wait; see [Pool.Submit].
type Observer[V any] struct {
	// Offered is called for each task of Submit, SubmitBatch, Do, TrySubmit or Put, unless its
	// class is unknown. Refused is called after it, if that call returns an error for the task.
	Offered func(ctx context.Context, class string, t *task.Task[V])
	Refused func(ctx context.Context, class string, t *task.Task[V], err error)

	// Started is called when a handler begins, with how long the task had been ready: 0 for an
	// item of a FairQueue.
	Started func(ctx context.Context, class string, t *task.Task[V], waited time.Duration)

	// Each started attempt ends in one of these, unless Shutdown has interrupted it. Retried: the
	// task has failed or was snoozed (then the error Is [ErrSnoozed]) and is retried after the
	// delay. Failed: it has failed for good. Cancelled: it was deleted while it ran. Lost: it
	// could not be settled for another reason, see Stats.
	Succeeded func(ctx context.Context, class string, t *task.Task[V], ran time.Duration)
	Retried   func(ctx context.Context, class string, t *task.Task[V], ran, delay time.Duration,
		err error)
	Failed    func(ctx context.Context, class string, t *task.Task[V], ran time.Duration, err error)
	Cancelled func(ctx context.Context, class string, t *task.Task[V], ran time.Duration, err error)
	Lost      func(ctx context.Context, class string, t *task.Task[V], ran time.Duration, err error)

	// Dropped is called for a task without room, Expired for a task whose time was over before it
	// was done.
	Dropped func(ctx context.Context, class string, t *task.Task[V])
	Expired func(ctx context.Context, class string, t *task.Task[V])

	// DeadLetter is called for each letter that was handed to DeadLetters, with the error if it
	// was not taken.
	DeadLetter func(ctx context.Context, letter *DeadLetter[V], err error)

	// Scaled is called when the number of workers has changed.
	Scaled func(from, to int)
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
	if panicked, ok := errors.AsType[*PanicError](err); ok {
		args = append(args, "stack", string(panicked.Stack))
	}
	return args
}

// needsTimes reports whether one of the functions gets a duration.
func (o *Observer[V]) needsTimes() bool {
	return o.Started != nil || o.Succeeded != nil || o.Retried != nil || o.Failed != nil ||
		o.Cancelled != nil || o.Lost != nil
}

// observe calls a function of the Observer. A panic in it must neither end the process nor change
// the outcome of a task.
func (ws *workerSet) observe(name string, call func()) {
	defer func() {
		if v := recover(); v != nil {
			ws.log.Error("pool: a function of the Observer panicked", "func", name, "panic", v, "stack",
				string(debug.Stack()))
		}
	}()
	call()
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
