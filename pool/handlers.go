package pool

import (
	"context"
	"time"

	"github.com/fairq/fairq/task"
)

// Repeat returns a handler for tasks that are done again and again. When a task has been done,
// next returns its next time. It gets the time when the task was put and the time now. Count from
// the first, so that the times do not drift. A task that runs every hour has
//
//	func(put, now time.Time) time.Time { return now.Add(time.Hour - now.Sub(put)%time.Hour) }
//
// A library for cron expressions has such a function too. If next returns the zero time, the task
// is done for good. If it returns a time that is over, the task is done again at once, or a second
// later after StopAndWait or Shutdown was called.
//
// Put the task with a unique key when the program starts, without a deadline and, if the queue has
// a TTL, with a negative one. It runs once among all processes that have its queue open, and
// survives the end of all of them.
//
//   - All runs that are missed while there is no process are one run.
//   - If the handler fails, the task is retried by the Policy. Each run has all attempts.
//   - A run that has failed for good ends the task, and so does a panic of next: it is buried,
//     until it is kicked, or becomes a dead letter.
//   - The times are as exact as the clocks of the processes: a run that is early by the clock of
//     another process is repeated at its time.
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
