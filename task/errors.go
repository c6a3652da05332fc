package task

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/driver"
)

// Errors of package fairq that calls here return.
var (
	// ErrFull is returned when the queue is full, or the key is at its limit. The error is a
	// [*FullError].
	ErrFull = fairq.ErrFull

	// ErrKeyFull is returned when the key is at Options.KeyCapacity, or with RejectOverShare has its
	// share of the queue. It is also an ErrFull. The error is a [*FullError].
	ErrKeyFull = fairq.ErrKeyFull

	// ErrWeight is returned when Options.Weight returns a weight that is out of range.
	ErrWeight = fairq.ErrWeight

	// ErrCost is returned when PutOptions.Cost is out of range.
	ErrCost = fairq.ErrCost
)

// FullError has the length and the limit of the queue. [errors.Is] reports it as [ErrFull], and if
// PerKey is true as [ErrKeyFull] too.
type FullError = fairq.FullError

// Error is the reason of a failure. The store records it with the task, and Wait returns it, as an
// error whose text is the Message. It has the fields
//
//	Code    int // of the program's choice
//	Message string
type Error = driver.Error

// FieldError names an invalid value and its limit. [errors.Is] reports it as [ErrInvalid]. It has
// the fields
//
//	Field string // such as "PutOptions.Delay"
//	Value any
//	Limit string // such as "0 to 99"
type FieldError = driver.FieldError

func invalid(field string, value any, limit string) *FieldError {
	return &FieldError{Field: field, Value: value, Limit: limit}
}

var (
	// ErrInvalid is returned for an invalid argument or option. The error is a [*FieldError].
	ErrInvalid = driver.ErrInvalid

	// ErrNotFound is returned when there is no such task, consumer, group or unique key.
	ErrNotFound = driver.ErrNotFound

	// ErrLeaseLost is returned when the consumer no longer holds the task: the task was settled, its
	// lease has expired, its consumer has left or was resumed, or another call deleted or buried it.
	ErrLeaseLost = driver.ErrLeaseLost

	// ErrUnknown is returned when a call may have happened: the answer of the database to its commit
	// was lost, or ctx was done before the answer. The error also wraps the cause, such as
	// context.DeadlineExceeded. Tasks that such a call has taken are handed back. A call that returns
	// an error of the database or of its context without ErrUnknown has not happened.
	ErrUnknown = driver.ErrUnknown

	// ErrResumed is returned by calls of a consumer that another caller has resumed by its ID: that
	// caller has its tasks now. It is an ErrLeaseLost.
	ErrResumed = driver.ErrResumed

	// ErrDuplicate is returned when there is a task with this unique key.
	ErrDuplicate = driver.ErrDuplicate

	// ErrReplace is returned by a Put with PutOptions.Replace if the task with this unique key is
	// buried, has another key, kind or group, or is not a Member of its group. It is also returned if
	// the new task is not a Member of its group.
	ErrReplace = driver.ErrReplace

	// ErrGroupCancelled is returned by calls that put a task into a cancelled group, or start such a
	// group. It is also the cause of the contexts of tasks whose group is cancelled while they are
	// taken.
	ErrGroupCancelled = driver.ErrGroupCancelled

	// ErrPanic is returned when a function of the Options panicked. The error is a [*PanicError].
	ErrPanic = errors.New("task: panic")

	// ErrClosed is returned when the queue, or the consumer, has been closed.
	ErrClosed = errors.New("task: closed")

	// ErrDropped is returned when the queue has been dropped.
	ErrDropped = driver.ErrDropped

	// ErrTaken is returned when the task is taken: by DeleteUnlessTaken and the like, and by TakeID.
	ErrTaken = driver.ErrTaken

	// ErrBlocked is returned by TakeID for a task that cannot be taken now. Its group may hold it, or
	// it follows another task; the queue or its key may be paused or wait; or its key is at its
	// limit.
	ErrBlocked = driver.ErrBlocked

	// ErrDeleted is returned by Wait when the task was deleted, truncated, evicted or cancelled
	// with its group.
	ErrDeleted = driver.ErrDeleted

	// ErrExpired is returned by Wait when the task's time to live or deadline ended before it was
	// done.
	ErrExpired = driver.ErrExpired
)

// maxStack is the most bytes of a panic's stack that the reason of a failure has. They follow a
// printable.StackMark.
const maxStack = 2 << 10

// newError makes an Error of any error; nil stays nil. The Error of a panic ends with an empty
// line and the begin of the stack.
func newError(err error) *Error {
	var e *Error
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &e):
		e = new(Error)
	case e == nil:
		return &Error{Message: "a nil *task.Error"}
	}
	reason := &Error{Code: e.Code, Message: err.Error()}
	if p, ok := errors.AsType[*PanicError](err); ok {
		reason.Message += "\n\n" + string(p.Stack[:min(len(p.Stack), maxStack)])
	}
	return reason
}

// PanicError names the function that panicked. [errors.Is] reports it as [ErrPanic], and also as
// the value of the panic if that is an error.
type PanicError struct {
	Func  string // such as "Options.Weight"
	Value any    // of the panic
	Stack []byte // of the goroutine, as [debug.Stack] formats it
}

// Error names the function and the value.
func (e *PanicError) Error() string {
	return fmt.Sprintf("%v in %s: %v", ErrPanic, e.Func, e.Value)
}

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
