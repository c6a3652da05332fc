package pool

import (
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

var (
	// ErrShutdown is returned when a task is submitted to a pool that was shut down, and is the
	// cause that the contexts of handlers are cancelled with when its time is over.
	ErrShutdown = errors.New("pool: shut down")

	// ErrTimeout is the cause that a handler's context is done with when Policy.Timeout is over.
	// If the handler then returns an error of its context, this is what its task has failed with.
	ErrTimeout = errors.New("pool: handler timed out")

	// ErrDeadline is the cause that a handler's context is done with when the deadline of its task
	// is over, and what the task has failed with then.
	ErrDeadline = errors.New("pool: deadline of the task is over")

	// ErrSnoozed is what an error of [Snooze] or [HoldKey] is, as [errors.Is] reports: nothing has
	// failed.
	ErrSnoozed = errors.New("pool: snoozed")

	// ErrInvalid is returned when an argument or an option makes no sense. The error names it,
	// with the limit. It is that of package task.
	ErrInvalid = task.ErrInvalid
)

// What calls return of the packages fairq and task, and what the contexts of handlers are done
// with, by the same names here.
var (
	// ErrFull is returned when there is no room for a task, and by Do when it was dropped.
	// If no more tasks of its key may be queued, it is also an ErrKeyFull. A task that is refused
	// gets a [*FullError], which may be wrapped.
	ErrFull    = fairq.ErrFull
	ErrKeyFull = fairq.ErrKeyFull

	// ErrWeight is returned when Options.Weight returns a weight that is out of range.
	ErrWeight = fairq.ErrWeight

	// ErrCost is returned when PutOptions.Cost is out of range.
	ErrCost = fairq.ErrCost

	// ErrPanic is returned when a function of the queue's options panics, such as Weight. If a
	// handler panics, it is what its task has failed with. The error is a [*PanicError].
	ErrPanic = task.ErrPanic

	// ErrDuplicate is returned when there is a task with this PutOptions.UniqueKey.
	ErrDuplicate = task.ErrDuplicate

	// ErrGroupCancelled is returned when a task is put into a cancelled group.
	ErrGroupCancelled = task.ErrGroupCancelled

	// ErrClosed and ErrDropped are returned when the queue, which is not the pool's own, has been
	// closed or dropped.
	ErrClosed  = task.ErrClosed
	ErrDropped = task.ErrDropped

	// ErrDeleted is returned by Do when the task was deleted, truncated, evicted or
	// cancelled with its group, and ErrExpired when its time was over before it was done.
	ErrDeleted = task.ErrDeleted
	ErrExpired = task.ErrExpired

	// ErrLeaseLost is a cause that the context of a handler is done with: its task was given to
	// another one, or deleted.
	ErrLeaseLost = task.ErrLeaseLost
)

// FullError says how full the queue was. [errors.Is] reports it as [ErrFull], and if PerKey is
// true as [ErrKeyFull] too.
type FullError = fairq.FullError

type invalidError struct{ err error }

func (e *invalidError) Error() string   { return "pool: invalid: " + e.err.Error() }
func (e *invalidError) Unwrap() []error { return []error{ErrInvalid, e.err} }

func invalid(format string, a ...any) error { return &invalidError{fmt.Errorf(format, a...)} }

// PanicError says which function panicked, and where. [errors.Is] reports it as [ErrPanic], and if
// it panicked with an error as that too.
type PanicError = task.PanicError

func newPanicError(function string, value any) *PanicError {
	return &PanicError{Func: function, Value: value, Stack: debug.Stack()}
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
}

func (e *retryError) Error() string {
	switch {
	case e.holdKey:
		return fmt.Sprintf("pool: to be done in %v, and the other tasks of its key too", e.delay)
	case e.snooze:
		return fmt.Sprintf("pool: to be done in %v", e.delay)
	}
	return fmt.Sprintf("pool: to be tried again in %v", e.delay)
}

// Is implements the interface that [errors.Is] looks for.
func (e *retryError) Is(target error) bool { return e.snooze && target == ErrSnoozed }

// RetryAfter returns an error that makes a task fail, and be tried again after this delay if it
// has attempts left. `errors.Join(err, pool.RetryAfter(time.Minute))` also says why. A negative
// delay counts as 0, one of more than [task.MaxDuration] as that.
func RetryAfter(delay time.Duration) error { return &retryError{delay: clamp(delay)} }

// Snooze returns an error that has the handler called again after a delay. The task has not
// failed, and the attempt does not count.
func Snooze(delay time.Duration) error { return &retryError{delay: clamp(delay), snooze: true} }

// HoldKey returns an error that has the handler called again after a delay, as Snooze does, and has
// all other tasks of the key wait until then too: what the task needs has said when it may be asked
// again, such as an HTTP server by a Retry-After. The task is the first of its key then. The queue
// keeps that, so it outlasts the process; see [task.Task.HoldKey].
func HoldKey(delay time.Duration) error {
	return &retryError{delay: clamp(delay), snooze: true, holdKey: true}
}

func clamp(d time.Duration) time.Duration { return min(max(d, 0), task.MaxDuration) }

// isOver tells whether an error means that a queue will never have anything again.
func isOver(err error) bool {
	return errors.Is(err, task.ErrClosed) || errors.Is(err, task.ErrDropped) || errors.Is(err, fairq.ErrClosed)
}

// safeError returns err, or a [*PanicError] if its method Error, Unwrap, Is or As panics, as that
// of a nil pointer in an error may: later calls of these are where nobody could handle it.
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
