package task

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/fairq/fairq/internal/driver"
)

// TakeID takes the task of that id, out of order and without waiting. It uses no turn of the key.
// So there is none to give back: a task that is handed back queues like new work, unless the queue
// has KeepPlace. A delayed or buried task becomes ready first, as at the end of its delay or by
// Kick. TakeID returns [ErrNotFound] if there is no such task, [ErrTaken] if it is taken, and
// [ErrBlocked] if it cannot be taken now.
func (q *Queue[V]) TakeID(ctx context.Context, id ID) (*Task[V], error) {
	return q.self.TakeID(ctx, id)
}

// Peek returns a task in any state. It returns [ErrNotFound] if there is none.
func (q *Queue[V]) Peek(ctx context.Context, id ID) (*Task[V], error) {
	if err := q.notifier.over(); err != nil {
		return nil, err
	}
	t, err := q.peek(ctx, id, "")
	return t, nameMissing(err, "task", id)
}

// Find returns the task with that unique key, in any state. It returns [ErrNotFound] if there is
// none. Another task may get the unique key later, but ids are never used again: a later call by
// the id does not change that other task. With PutOptions.Replace, what another caller has put may
// have the same id: see there.
func (q *Queue[V]) Find(ctx context.Context, uniqueKey string) (*Task[V], error) {
	if err := q.notifier.over(); err != nil {
		return nil, err
	}
	if uniqueKey == "" {
		return nil, ErrNotFound
	}
	t, err := q.peek(ctx, 0, uniqueKey)
	return t, nameMissing(err, "unique key", strconv.Quote(uniqueKey))
}

func (q *Queue[V]) peek(ctx context.Context, id ID, uniqueKey string) (*Task[V], error) {
	r, err := q.backend.Peek(ctx, id, uniqueKey)
	if err != nil {
		return nil, err
	}
	return q.show(&r)
}

// KickID makes one buried task ready. It returns [ErrNotFound] if there is no such task, or it is
// not buried.
func (q *Queue[V]) KickID(ctx context.Context, id ID) error {
	return q.change(ctx, id, driver.KickOne, nil, false)
}

// Bury buries a task in any state. A lease on it is lost. Bury returns [ErrNotFound] if there is
// no such task. It may bury what another caller has put with PutOptions.Replace: see Delete.
func (q *Queue[V]) Bury(ctx context.Context, id ID, reason error) error {
	return q.change(ctx, id, driver.BuryOne, buryError(reason), false)
}

// BuryUnlessTaken is Bury, but leaves a taken task as it is and returns [ErrTaken]. It is atomic.
func (q *Queue[V]) BuryUnlessTaken(ctx context.Context, id ID, reason error) error {
	return q.change(ctx, id, driver.BuryOne, buryError(reason), true)
}

func buryError(reason error) *Error {
	if reason == nil {
		reason = errBuried
	}
	return newError(reason)
}

// Delete removes a task in any state. A lease on it is lost. Delete returns [ErrNotFound] if there
// is no such task. It may remove what another caller has put with PutOptions.Replace: see there.
func (q *Queue[V]) Delete(ctx context.Context, id ID) error {
	return q.change(ctx, id, driver.Delete, nil, false)
}

// DeleteUnlessTaken is Delete, but leaves a taken task as it is and returns [ErrTaken].
func (q *Queue[V]) DeleteUnlessTaken(ctx context.Context, id ID) error {
	return q.change(ctx, id, driver.Delete, nil, true)
}

// Change is a change of a task, for [Queue.Change]. What a zero field stands for stays as it is.
type Change[V any] struct {
	// Delay is the time from now until the task is ready, negative to make it ready now. The time to
	// live changes with the delay, as if the task had been put with it. Delay must be 0 for a held or
	// buried task.
	Delay time.Duration

	// Priority is the new priority; negative means priority 0. A different one puts the task behind
	// all others of its key, even with KeepPlace. Its turn stays with the ready tasks that it leaves
	// behind.
	Priority int

	// A new Payload does not move the task.
	Payload *V
}

// Change changes a task that is not taken, in one transaction. It returns [ErrTaken] if the task
// is taken, and [ErrNotFound] if there is none. Find returns the id of the task with a unique key.
// After a Put with PutOptions.Replace it changes what the last caller has put.
func (q *Queue[V]) Change(ctx context.Context, id ID, c Change[V]) error {
	if err := q.notifier.over(); err != nil {
		return err
	}
	var a driver.Amendment
	if c.Delay != 0 {
		a.Delay = new(max(c.Delay, 0))
	}
	if c.Priority != 0 {
		a.Priority = new(max(c.Priority, 0))
	}
	switch {
	case c.Delay > MaxDuration:
		return checkDelay("Change.Delay", c.Delay)
	case c.Priority > MaxPriority:
		return invalid("Change.Priority", c.Priority, fmt.Sprintf("%d at most", MaxPriority))
	case c.Payload != nil && q.options.AsIs: // it may have another Codec
		return errAsIs
	case c.Payload != nil:
		payload, err := q.encode(*c.Payload)
		if err != nil {
			return fmt.Errorf("task: payload of task %d: %w", id, err)
		}
		a.Payload = &payload
	}
	return nameMissing(q.backend.Amend(ctx, id, a), "task", id)
}

func (q *Queue[V]) change(
	ctx context.Context, id ID, change driver.Change, reason *Error, unlessTaken bool,
) error {
	if err := q.notifier.over(); err != nil {
		return err
	}
	return nameMissing(q.backend.Change(ctx, id, change, unlessTaken, reason), "task", id)
}

// nameMissing adds to an ErrNotFound of a store the thing that was not found.
func nameMissing(err error, what string, name any) error {
	if errors.Is(err, ErrNotFound) {
		return fmt.Errorf("%w: %s %v", ErrNotFound, what, name)
	}
	return err
}
