// Package each goes through the tasks of a queue, for tools that look at them and help by hand.
package each

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/fairq/fairq/internal/printable"
	"github.com/fairq/fairq/task"
)

// Task yields the tasks that the options name. It reads Limit tasks at a time, but with NextFirst
// only once. After an error it ends.
func Task[V any](
	ctx context.Context, q *task.Queue[V], o task.ListOptions,
) iter.Seq2[*task.Task[V], error] {
	return func(yield func(*task.Task[V], error) bool) {
		for {
			tasks, err := q.List(ctx, o)
			for _, t := range tasks {
				if o.After = t.ID; !yield(t, nil) {
					return
				}
			}
			if err != nil {
				yield(nil, err)
			}
			if err != nil || len(tasks) < o.Limit || o.NextFirst {
				return
			}
		}
	}
}

// Failure returns the reason for which a task has failed last, "" if there is none. If that was a
// panic, package task has put its stack behind the reason: Failure returns it apart.
func Failure(i *task.Info) (reason, stack string) {
	if i.Err != nil {
		reason, stack, _ = strings.Cut(i.Err.Message, printable.StackMark)
	}
	return reason, stack
}

// Do makes at most 100 calls (together) at the same time, because stores combine such calls in
// one transaction. After each 1,000 calls (pause) it sleeps, to let other processes in: SQLite
// does not give its lock to the longest waiter, and others ask for it every 10 ms.
const (
	together = 100
	pause    = 1000
)

// Do calls do for each task that is chosen, and returns how many it has changed. It passes over
// tasks that were taken or are gone since they were read. After an error it makes no more calls.
func Do[V any](
	ctx context.Context, tasks iter.Seq2[*task.Task[V], error], chosen func(t *task.Task[V]) bool,
	do func(ctx context.Context, id task.ID) error,
) (n int, err error) {
	var mu sync.Mutex // for n and err
	count := func(did int, failed error) (goOn bool) {
		mu.Lock()
		defer mu.Unlock()
		n, err = n+did, cmp.Or(err, failed)
		return err == nil
	}
	var running sync.WaitGroup
	turns, asked := make(chan struct{}, together), 0
	for t, failed := range tasks {
		if !count(0, failed) {
			break
		}
		if !chosen(t) {
			continue
		}
		if asked++; asked%pause == 0 {
			running.Wait()
			time.Sleep(20 * time.Millisecond)
		}
		turns <- struct{}{}
		running.Go(func() {
			switch err := do(ctx, t.ID); {
			case err == nil:
				count(1, nil)
			case !errors.Is(err, task.ErrTaken) && !errors.Is(err, task.ErrNotFound):
				count(0, err)
			}
			<-turns
		})
	}
	running.Wait()
	return n, err
}
