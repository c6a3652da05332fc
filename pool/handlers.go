package pool

import (
	"context"
	"time"

	"github.com/fairq/fairq/task"
)

// Repeat returns a handler for tasks that are done again and again. When the handler has done one,
// next says when that is: it gets the time when the task was put, from which its times can be
// counted so that they do not drift, and the time now. A task that runs every hour has
//
//	func(put, now time.Time) time.Time { return now.Add(time.Hour - now.Sub(put)%time.Hour) }
//
// A library for cron expressions has such a function too. If next returns the zero time, the task
// is done for good. If that time is over, the task is done at once,
// or a second later once StopAndWait or Shutdown was called.
//
// The task runs once among all processes that have its queue open, and survives the end of all of
// them. All runs missed while no process is there are one run. If the handler fails the task is
// retried by the Policy, and each run has all attempts. A run that has failed for good ends the
// task like any other: it is buried, until it is kicked, or a dead letter; so does a panic of
// next. Put it with a unique key when the program starts, without a deadline and, if the queue
// has a TTL, with a negative one. The times are as exact as the clocks
// of the processes: a run that is early by another clock is repeated at its time.
func Repeat[V any](
	next func(put, now time.Time) time.Time, handler Handler[*task.Task[V]],
) Handler[*task.Task[V]] {
	return func(ctx context.Context, t *task.Task[V]) (err error) {
		if err := handler(ctx, t); err != nil {
			return err
		}
		defer func() { // the work is done, and must not be done again
			if v := recover(); v != nil {
				err = Permanent(newPanicError("the function for the next time", v))
			}
		}()
		info, now := t.Info(), time.Now()
		if now.Before(info.ReadyAt) { // by the clock of the store
			now = info.ReadyAt
		}
		at := next(info.Created, now)
		if at.IsZero() {
			return nil
		}
		return &retryError{snooze: true, repeat: true, at: at}
	}
}
