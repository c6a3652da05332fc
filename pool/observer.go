package pool

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/fairq/fairq/task"
)

// Observer is told what happens in a pool. Its functions are called by the goroutine to which it
// happens, so they should be quick. nil functions cost nothing. If a function panics, the Logger
// is told, and all goes on as if it had returned. The class is that of [Class].Name, empty if the
// pool has no classes.
//
// The context of Offered and Refused, and of Dropped if a task is dropped by its own Submit, is
// that of the call. That of Started is the parent of the handler's. The others last as long as the
// pool. The task is the one that the handler gets; it must not be changed or settled. Before it is
// in the queue it has no ID. Of an item of a FairQueue there is only the Payload.
type Observer[V any] struct {
	// Offered is told of each task that is handed to Submit, SubmitBatch, Do, TrySubmit or
	// Put, unless its class is unknown. Refused is told, after it, of those for which that call
	// returns an error.
	Offered func(ctx context.Context, class string, t *task.Task[V])
	Refused func(ctx context.Context, class string, t *task.Task[V], err error)

	// Started is told that a handler begins, and for how long the task had been ready: 0 for an
	// item of a FairQueue.
	Started func(ctx context.Context, class string, t *task.Task[V], waited time.Duration)

	// Each attempt that was started ends in one of these, unless Shutdown has interrupted it.
	// Retried is told of a task that has failed or was snoozed (then the error Is [ErrSnoozed]) and
	// is tried again after the delay, Failed of one that has failed for good, Cancelled of one that
	// was deleted meanwhile, and Lost of one that could not be settled for another reason: see Stats.
	Succeeded func(ctx context.Context, class string, t *task.Task[V], ran time.Duration)
	Retried   func(ctx context.Context, class string, t *task.Task[V], ran, delay time.Duration, err error)
	Failed    func(ctx context.Context, class string, t *task.Task[V], ran time.Duration, err error)
	Cancelled func(ctx context.Context, class string, t *task.Task[V], ran time.Duration, err error)
	Lost      func(ctx context.Context, class string, t *task.Task[V], ran time.Duration, err error)

	// Dropped is told of a task that there was no room for, Expired of one whose time was over
	// before it was done.
	Dropped func(ctx context.Context, class string, t *task.Task[V])
	Expired func(ctx context.Context, class string, t *task.Task[V])

	// DeadLetter is told of each letter that was handed to DeadLetters, and of its error if it was
	// not taken.
	DeadLetter func(ctx context.Context, letter *DeadLetter[V], err error)

	// Scaled is told that the number of workers has changed.
	Scaled func(from, to int)
}

// about returns what a log line says of a task: which one it is, what else is given, and its
// error, with the stack if that is of a panic.
func about[V any](class string, t *task.Task[V], err error, more ...any) (args []any) {
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

// times tells whether one of the functions is told a duration.
func (o *Observer[V]) times() bool {
	return o.Started != nil || o.Succeeded != nil || o.Retried != nil || o.Failed != nil || o.Cancelled != nil || o.Lost != nil
}

// observe calls a function of the Observer. If it panics, the process must not end, nor may it
// change what becomes of a task.
func (ws *workerSet) observe(name string, call func()) {
	defer func() {
		if v := recover(); v != nil {
			ws.log.Error("pool: a function of the Observer panicked", "func", name, "panic", v, "stack", string(debug.Stack()))
		}
	}()
	call()
}

// observeOutside is observe in a goroutine that need not be the pool's: it may be one that submits,
// for which Shutdown waits, or that hands out what has expired, for which Wait does.
func (ws *workerSet) observeOutside(name string, call func()) {
	ws.known(func() { ws.observe(name, call) })
}

// guardedHandler is a Logger's handler whose panics are swallowed: there is nobody who could be
// told.
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
