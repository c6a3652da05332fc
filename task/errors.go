package task

import (
	"errors"
	"fmt"
)

// A full queue returns a [*fairq.FullError], which is a fairq.ErrFull, and also a fairq.ErrKeyFull if it is the key that
// has too many tasks.
var (
	// ErrInvalid is returned when an argument or an option makes no sense. The error is a [*FieldError].
	ErrInvalid = errors.New("task: invalid")

	// ErrNotFound is returned when there is no such task, consumer, group or address.
	ErrNotFound = errors.New("task: not found")

	// ErrLeaseLost is returned when a task is not held any more: it has been settled, its lease has run out, its consumer has
	// left, or it was deleted or buried by others.
	ErrLeaseLost = errors.New("task: lease lost")

	// ErrDuplicateAddress is returned when there is a task with this address.
	ErrDuplicateAddress = errors.New("task: duplicate address")

	// ErrGroupCancelled is returned when a task is put into a cancelled group, or such a group is to be started.
	ErrGroupCancelled = errors.New("task: group is cancelled")

	// ErrClosed is returned when the queue, or the consumer, has been closed.
	ErrClosed = errors.New("task: closed")

	// ErrDropped is returned when the queue has been dropped.
	ErrDropped = errors.New("task: queue was dropped")

	// ErrDeleted is returned by Wait when the task was deleted, truncated, evicted or cancelled with its group.
	ErrDeleted = errors.New("task: task was deleted")

	// ErrExpired is returned by Wait when the task's time to live ended before it was done.
	ErrExpired = errors.New("task: task has expired")
)

// Error is why a task failed: what is recorded with it, and what Wait returns.
type Error struct {
	Code    int // as the program likes
	Message string
}

// Error returns the message, and the code if there is one.
func (e *Error) Error() string {
	if e.Code != 0 {
		return fmt.Sprintf("%s (code %d)", e.Message, e.Code)
	}
	return e.Message
}

// newError makes an Error of any error; nil stays nil.
func newError(err error) *Error {
	var e *Error
	if err == nil || errors.As(err, &e) {
		return e
	}
	return &Error{Message: err.Error()}
}

// FieldError says which value makes no sense. [errors.Is] reports it as [ErrInvalid].
type FieldError struct {
	Field string // such as "PutOptions.Delay"
	Value any
	Limit string // what it must be
}

// Error names the field, its value and the limit.
func (e *FieldError) Error() string {
	value := fmt.Sprint(e.Value)
	if s, ok := e.Value.(string); ok {
		value = fmt.Sprintf("%q", s)
	}
	return fmt.Sprintf("task: %s is %s; it must be %s", e.Field, value, e.Limit)
}

// Unwrap returns ErrInvalid.
func (*FieldError) Unwrap() error { return ErrInvalid }
