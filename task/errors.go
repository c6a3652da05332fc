package task

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task/driver"
)

// What calls return of package fairq, by the same names here.
var (
	// ErrFull is returned when the queue is full, or has as many tasks of the key as it may. The
	// error is a [*FullError].
	ErrFull = fairq.ErrFull

	// ErrKeyFull is returned when the queue has as many tasks of the key as Options.KeyCapacity
	// allows. It is also an ErrFull. The error is a [*FullError].
	ErrKeyFull = fairq.ErrKeyFull

	// ErrWeight is returned when Options.Weight returns a weight that is out of range.
	ErrWeight = fairq.ErrWeight

	// ErrCost is returned when PutOptions.Cost is out of range.
	ErrCost = fairq.ErrCost
)

// FullError says how full the queue was. [errors.Is] reports it as [ErrFull], and if Key is true as
// [ErrKeyFull] too.
type FullError = fairq.FullError

// Error is why a task failed: what is recorded with it, and what Wait returns: a Message, and a
// Code, an int that means what the program says.
type Error = driver.Error

// FieldError says which value makes no sense, and what its limit is. [errors.Is] reports it as
// [ErrInvalid].
type FieldError = driver.FieldError

func invalid(field string, value any, limit string) *FieldError {
	return &FieldError{Field: field, Value: value, Limit: limit}
}

var (
	// ErrInvalid is returned when an argument or an option makes no sense. The error is a
	// [*FieldError].
	ErrInvalid = driver.ErrInvalid

	// ErrNotFound is returned when there is no such task, consumer, group or unique key.
	ErrNotFound = driver.ErrNotFound

	// ErrLeaseLost is returned when a task is not held any more: it has been settled, its lease has
	// run out, its consumer has left or was resumed, or it was deleted or buried by others.
	ErrLeaseLost = driver.ErrLeaseLost

	// ErrUnknown is returned when a call may have been done or not: the answer of the database to
	// its commit was lost, or ctx was done before there was one. The error is also the cause, such
	// as context.DeadlineExceeded. Without ErrUnknown, a call that returns an error of the database
	// or of its context has not been done. What such a call has taken is handed back.
	ErrUnknown = driver.ErrUnknown

	// ErrResumed is returned by a consumer that somebody else has resumed with its id, and who has
	// its tasks now. It is an ErrLeaseLost.
	ErrResumed = driver.ErrResumed

	// ErrDuplicate is returned when there is a task with this unique key.
	ErrDuplicate = driver.ErrDuplicate

	// ErrGroupCancelled is returned when a task is put into a cancelled group, or such a group is
	// to be started. It is also the cause of the contexts of tasks whose group is cancelled while
	// they are taken.
	ErrGroupCancelled = driver.ErrGroupCancelled

	// ErrPanic is returned when a function of the Options panicked. The error is a [*PanicError].
	ErrPanic = errors.New("task: panic")

	// ErrClosed is returned when the queue, or the consumer, has been closed.
	ErrClosed = errors.New("task: closed")

	// ErrDropped is returned when the queue has been dropped.
	ErrDropped = driver.ErrDropped

	// ErrTaken is returned when somebody has the task: by DeleteUnlessTaken and the like, and by TakeID.
	ErrTaken = driver.ErrTaken

	// ErrBlocked is returned when a task that is to be taken by its id cannot be: its group holds
	// it, the queue or its key is paused or waits, or as many tasks of its key are taken as may be.
	ErrBlocked = driver.ErrBlocked

	// ErrDeleted is returned by Wait when the task was deleted, truncated, evicted or cancelled
	// with its group.
	ErrDeleted = driver.ErrDeleted

	// ErrExpired is returned by Wait when the task's time to live or deadline ended before it was
	// done.
	ErrExpired = driver.ErrExpired
)

// newError makes an Error of any error; nil stays nil.
func newError(err error) *Error {
	var e *Error
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &e):
		return &Error{Message: err.Error()}
	case e == nil:
		return &Error{Message: "a nil *task.Error"}
	}
	return &Error{Code: e.Code, Message: err.Error()}
}

// PanicError says which function panicked. [errors.Is] reports it as [ErrPanic], and if it panicked
// with an error as that too.
type PanicError struct {
	Func  string // such as "Options.Weight"
	Value any    // what it panicked with
	Stack []byte // of the goroutine, as [debug.Stack] formats it
}

// Error names the function and the value.
func (e *PanicError) Error() string { return fmt.Sprintf("%v in %s: %v", ErrPanic, e.Func, e.Value) }

// Unwrap returns ErrPanic, and the value if it is an error.
func (e *PanicError) Unwrap() []error {
	if err, ok := e.Value.(error); ok {
		return []error{ErrPanic, err}
	}
	return []error{ErrPanic}
}

// guard calls a function of the user's, and returns a *PanicError if it panics.
func guard(name string, f func()) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{name, v, debug.Stack()}
		}
	}()
	f()
	return nil
}
