// Package pool has workers that drain a queue: a [task.Queue], with all of a task's life, or a
// [fairq.FairQueue], at most once and faster. Retries and delays wait in the queue, not in a
// worker, and take their turns by key like new work. So a tenant who floods the pool, or whose
// tasks all fail, does not make the others wait.
//
//	p := pool.Func(func(ctx context.Context, t *task.Task[Job]) error {
//		return send(ctx, t.Payload)
//	}, nil)
//	err := p.Submit(ctx, "alice", job)
//	err = p.StopAndWait(ctx)
//
// [Func] makes a pool with a queue of its own, in memory. [New] drains a queue that you have
// opened, in whatever store, and [NewWorkers] a FairQueue.
//
// # What is promised
//
//   - Nothing is lost: a task whose Submit returned nil is done, buried, in its queue, handed to
//     DeadLetters, or among the Leftovers: exactly one of these, whatever fails, panics, is
//     cancelled or shut down. Without DeadLetters it may also be forgotten: because its time was
//     over, or because it failed for good in a queue of the pool's own. If its lease is lost, or
//     the process dies, it is tried again; so it is what package task promises: at least once.
//   - With DeadLetters, a letter is taken before its task leaves the queue. If the sink returns an
//     error or panics, the task is buried instead. (A task that was evicted or has expired is not
//     in the queue any more: then the log has all of it.)
//   - Never are there more handlers at the same time than Scale.Max, those in Yield not counted;
//     when fewer are allowed, those that run are finished.
//   - No worker is idle while there is a task that it may take, but for the time that a
//     transaction of the queue's store takes.
//   - An idle pool uses no processor time. One with a Min of 0 has no goroutine after IdleTimeout,
//     and the next task starts one at once.
//   - A task that waits for its next attempt, or for its delay to end, holds no worker and no
//     goroutine, and needs no room: a full queue cannot refuse it.
//   - What was prefetched, see Options.Prefetch, is started in the order in which it was taken,
//     or handed back within half a second, untried. A task whose lease has run out is not
//     started.
//   - If the queue's store is away for a while, the pool goes on when it is back. What came of
//     tasks is not forgotten meanwhile, as long as their leases last.
//   - A task is not started when its time is over, and does not take up room any longer than that.
//   - The context of a handler is done when the lease is lost, when the Timeout or the Deadline of
//     the task is over, and when the time of Shutdown is. [context.Cause] tells which.
//   - When Shutdown has returned anything but an [*AbandonedError], there is no goroutine left. It
//     ends in time whatever handlers and sinks do.
//   - A panic of a handler, a sink, a Backoff.Func, a function of the Observer or the Logger never
//     ends the process.
//
// # Failures
//
// A handler that returns an error, or panics, has failed. The task is tried again after a delay,
// see [Backoff], until it has been tried as often as it may; its own PutOptions.MaxAttempts count
// first, then Policy.MaxAttempts. [Permanent] ends that sooner; [RetryAfter] and [Snooze] name the
// delay.
//
// A task that has failed for good goes to DeadLetters, with everything that is known of it, see
// [DeadLetter]: into another queue ([Forward]), a file (package spill), or any function. Without
// DeadLetters it is buried, so that somebody can look at it and Kick it; but in a queue of the
// pool's own, which nobody looks at, it is forgotten, after Observer, Logger and those in
// Do have been told.
//
// # Beside the other packages
//
//	                 | fairq.New          | task.Open          | pool.Func
//	Capacity 0       | 128                | no limit           | no limit
//	full, by default | refuses            | refuses            | waits
//	wrong options    | panic              | error              | panic
//	a failed item    | the worker's       | comes back         | tried again, up to ten times
//	the end          | Close: workers     | Close: what is     | Shutdown: the rest goes to
//	                 | finish the rest    | taken goes back    | Leftovers; StopAndWait: it is done
//
// docs/design.md has the reasons.
//
// # Cost
//
// With a store in memory, workers take and settle their tasks themselves. With another one, tasks
// are taken in batches and settled in the background, in a goroutine each, 256 or one for each
// worker at most.
//
// Taking and settling a task are O(1) as in package task, O(classes) if there are several, in the
// worst case. A worker that has nothing to do waits in the pool; waking it costs a switch of
// goroutines, and with a task queue the start of one.
package pool
