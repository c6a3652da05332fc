package task

import (
	"context"
	"slices"

	"github.com/fairq/fairq/task/driver"
)

// TakeID takes the task of that id, out of order and without waiting, and without a turn of its
// key: if it is handed back it queues up like new work, unless the queue is one with KeepPlace. A
// task that is delayed or buried is made ready first, as at the end of its delay or by Kick. TakeID
// returns [ErrNotFound] if there is no such task, [ErrTaken] if somebody has it, and [ErrBlocked]
// if it cannot be taken now.
func (q *Queue[V]) TakeID(ctx context.Context, id ID) (*Task[V], error) {
	return q.self.TakeID(ctx, id)
}

// Peek returns a task, in whatever state it is. It returns [ErrNotFound] if there is none.
func (q *Queue[V]) Peek(ctx context.Context, id ID) (*Task[V], error) {
	if err := q.notifier.over(); err != nil {
		return nil, err
	}
	return q.peek(ctx, id, "")
}

// Find returns the task with that unique key, in whatever state it is. It returns [ErrNotFound] if
// there is none. As ids are never used again, what is done to it by its id is never done to another
// one that has got the unique key meanwhile.
func (q *Queue[V]) Find(ctx context.Context, uniqueKey string) (*Task[V], error) {
	if err := q.notifier.over(); err != nil {
		return nil, err
	}
	if uniqueKey == "" {
		return nil, ErrNotFound
	}
	return q.peek(ctx, 0, uniqueKey)
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
	return q.change(ctx, id, driver.KickOne, nil)
}

// Bury buries a task, in whatever state it is. A lease on it is lost. It returns [ErrNotFound] if
// there is none. See also [UnlessTaken].
func (q *Queue[V]) Bury(ctx context.Context, id ID, reason error, conditions ...Condition) error {
	if reason == nil {
		reason = errBuried
	}
	return q.change(ctx, id, driver.BuryOne, newError(reason), conditions...)
}

// Delete removes a task, in whatever state it is. A lease on it is lost. It returns [ErrNotFound]
// if there is none. See also [UnlessTaken].
func (q *Queue[V]) Delete(ctx context.Context, id ID, conditions ...Condition) error {
	return q.change(ctx, id, driver.Delete, nil, conditions...)
}

func (q *Queue[V]) change(ctx context.Context, id ID, change driver.Change, reason *Error, conditions ...Condition) error {
	if err := q.notifier.over(); err != nil {
		return err
	}
	return q.backend.Change(ctx, id, change, slices.Contains(conditions, UnlessTaken), reason)
}
