package driver

import (
	"errors"
	"fmt"
	"strconv"
)

// What calls of a Backend return, and a task.Queue passes on.
var (
	ErrNotFound       = errors.New("task: not found") // there is no such task, consumer, group or unique key
	ErrLeaseLost      = errors.New("task: lease lost")
	ErrResumed        = fmt.Errorf("%w: the consumer was resumed by somebody else", ErrLeaseLost)
	ErrDuplicate      = errors.New("task: duplicate unique key")
	ErrGroupCancelled = errors.New("task: group is cancelled")
	ErrDropped        = errors.New("task: queue was dropped")
	ErrTaken          = errors.New("task: task is taken")
	ErrBlocked        = errors.New("task: task cannot be taken now")

	// The call may have happened. ErrUnknown is also an error of the database, or of the context.
	ErrUnknown = errors.New("it is not known whether it was done")
)

// How tasks with unique keys end that were not done; see Outcome.
var (
	ErrDeleted = errors.New("task: task was deleted") // also if it was evicted, or cancelled with its group
	ErrExpired = errors.New("task: task has expired") // its time to live or deadline ended
)

// ErrInvalid is what each FieldError is.
var ErrInvalid = errors.New("task: invalid")

// Error is why a task failed: what is recorded with it, and what Wait returns.
type Error struct {
	Code    int // as the program likes
	Message string
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// FieldError says which value makes no sense. [errors.Is] reports it as [ErrInvalid].
type FieldError struct {
	Field string // such as "PutOptions.Delay"
	Value any
	Limit string // what it must be
}

// Error names the field, its value and the limit.
func (e *FieldError) Error() string {
	return fmt.Sprintf("task: %s is %s; it must be %s", e.Field, text(e.Value), e.Limit)
}

// text shows a value, and where one begins and ends that is a string.
func text(value any) string {
	if s, ok := value.(string); ok {
		return strconv.Quote(s)
	}
	return fmt.Sprint(value)
}

// Unwrap returns ErrInvalid.
func (*FieldError) Unwrap() error { return ErrInvalid }
