package pool

import (
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

// The errors of the pool. Other errors of Submit and the like are those of [task.Queue.Put]:
// [task.ErrFull], [task.ErrInvalid] and so on.
var (
	// ErrShutdown is returned by a Submit after Shutdown. It is also the context cause when
	// Shutdown cancels handlers.
	ErrShutdown = errors.New("pool: shut down")

	// ErrAbandoned is returned by Shutdown if handlers or sinks have not returned although their
	// contexts were cancelled, or if their tasks are not settled. The error also has the cause of
	// Shutdown's context, and its text says how many there are. A task of another queue that could
	// not be settled is handed back, even if the sink has its letter.
	ErrAbandoned = errors.New("pool: abandoned")

	// ErrTimeout is the context cause when Policy.Timeout elapses. If the handler then returns an
	// error of its context, its task has failed with ErrTimeout.
	ErrTimeout = errors.New("pool: handler timed out")

	// ErrDeadline is the context cause when the deadline of a task is over, and the error of that
	// task.
	ErrDeadline = errors.New("pool: deadline of the task is over")

	// ErrSnoozed marks errors of [Snooze], [HoldKey] and [Repeat], as [errors.Is] reports: nothing
	// has failed, unless a Snooze or HoldKey is joined with another error.
	ErrSnoozed = errors.New("pool: snoozed")
)

type invalidError string

func (e invalidError) Error() string { return "pool: invalid: " + string(e) }
func (invalidError) Unwrap() error   { return task.ErrInvalid }

func invalid(format string, a ...any) error { return invalidError(fmt.Sprintf(format, a...)) }

func newPanicError(function string, value any) *task.PanicError {
	return &task.PanicError{Func: function, Value: value, Stack: debug.Stack()}
}

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// Permanent returns an error that makes a task fail for good, however many attempts are left. It
// returns nil if err is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type retryError struct {
	delay   time.Duration
	snooze  bool
	holdKey bool // the whole key is to wait
	repeat  bool // the task is done, and runs again at a time
	at      time.Time
}

func (e *retryError) Error() string {
	switch {
	case e.repeat:
		return fmt.Sprintf("pool: done, and to be done again at %v", e.at)
	case e.holdKey:
		return fmt.Sprintf("pool: to be done in %v, and the other tasks of its key too", e.delay)
	case e.snooze:
		return fmt.Sprintf("pool: to be done in %v", e.delay)
	}
	return fmt.Sprintf("pool: to be tried again in %v", e.delay)
}

// Is implements the interface that [errors.Is] looks for.
func (e *retryError) Is(target error) bool { return e.snooze && target == ErrSnoozed }

// RetryAfter returns an error that makes a task fail, and retries it after this delay if it has
// attempts left. `errors.Join(err, pool.RetryAfter(time.Minute))` adds the reason. A negative
// delay counts as 0, and a delay above [task.MaxDuration] as MaxDuration.
func RetryAfter(delay time.Duration) error { return &retryError{delay: clamp(delay)} }

// Snooze returns an error that hands the task back for a delay. The task has not failed, and the
// attempt does not count. Joined with another error, as in `errors.Join(err, pool.Snooze(d))`, it
// is a failure like RetryAfter, and counts.
func Snooze(delay time.Duration) error { return &retryError{delay: clamp(delay), snooze: true} }

// HoldKey returns an error that hands the task back for a delay, as Snooze does, and lets all
// other tasks of the key wait too. Use it when a service says when to ask again, such as an HTTP
// server by a Retry-After. The task is then the first of its key. The queue stores the wait, so it
// outlasts the process; see [task.Task.HoldKey]. Joined with another error, as in
// `errors.Join(err, pool.HoldKey(d))`, the task has failed and the attempt counts; the key waits
// all the same, except after the last attempt.
func HoldKey(delay time.Duration) error {
	return &retryError{delay: clamp(delay), snooze: true, holdKey: true}
}

func clamp(d time.Duration) time.Duration { return min(max(d, 0), task.MaxDuration) }

// isOver reports whether an error means that a queue will never have a task again.
func isOver(err error) bool {
	return errors.Is(err, task.ErrClosed) || errors.Is(err, task.ErrDropped) ||
		errors.Is(err, fairq.ErrClosed)
}

// safeError returns err, or a [*task.PanicError] if its method Error, Unwrap, Is or As panics, as
// with a nil pointer in an error. Later calls of these methods could not handle a panic.
func safeError(err error) (is error) {
	if err == nil {
		return nil
	}
	defer func() {
		if v := recover(); v != nil {
			is = newPanicError("a method of an error", v)
		}
	}()
	_, _, _ = err.Error(), errors.Is(err, errLate), errors.As(err, new(*permanentError))
	return err
}
