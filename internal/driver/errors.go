package driver

import (
	"errors"
	"fmt"
	"strconv"
)

// Errors of the calls of a Backend, which a task.Queue passes on.
var (
	ErrNotFound       = errors.New("task: not found") // of a task, consumer, group or unique key
	ErrLeaseLost      = errors.New("task: lease lost")
	ErrResumed        = fmt.Errorf("%w: the consumer was resumed by somebody else", ErrLeaseLost)
	ErrDuplicate      = errors.New("task: duplicate unique key")
	ErrReplace        = errors.New("task: task cannot be replaced")
	ErrGroupCancelled = errors.New("task: group is cancelled")
	ErrDropped        = errors.New("task: queue was dropped")
	ErrTaken          = errors.New("task: task is taken")
	ErrBlocked        = errors.New("task: task cannot be taken now")

	// ErrUnknown means that the call may have happened. It also wraps the error of the database or
	// of the context.
	ErrUnknown = errors.New("it is not known whether it was done")
)

// Outcomes of tasks with unique keys that were not done; see Outcome.
var (
	ErrDeleted = errors.New("task: task was deleted") // or evicted, or cancelled with its group
	ErrExpired = errors.New("task: task has expired") // its time to live or deadline ended
)

// ErrInvalid is wrapped by each FieldError.
var ErrInvalid = errors.New("task: invalid")

// Error is the reason of a failure. The store records it with the task, and Wait returns it.
type Error struct {
	Code    int // of the program's choice
	Message string
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// FieldError names an invalid value. [errors.Is] reports it as [ErrInvalid].
type FieldError struct {
	Field string // such as "PutOptions.Delay"
	Value any
	Limit string // such as "0 to 99"
}

// Error names the field, its value and the limit.
func (e *FieldError) Error() string {
	return fmt.Sprintf("task: %s is %s; it must be %s", e.Field, text(e.Value), e.Limit)
}

// text returns a value as text, a string in quotes.
func text(value any) string {
	if s, ok := value.(string); ok {
		return strconv.Quote(s)
	}
	return fmt.Sprint(value)
}

// Unwrap returns ErrInvalid.
func (*FieldError) Unwrap() error { return ErrInvalid }
