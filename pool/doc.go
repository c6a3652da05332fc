// Package pool runs workers that drain a queue: a [task.Queue], with retries, delays and leases,
// or a [fairq.FairQueue], at most once and faster. Retries and delays wait in the queue, not in a
// worker, and take their turns by key like new work. So a tenant that floods the pool, or whose
// tasks all fail, delays nobody else. For a tenant whose handlers hang see Failures.
//
//	p := pool.Func(func(ctx context.Context, t *task.Task[Job]) error {
//		return send(ctx, t.Payload)
//	}, nil)
//	err := p.Submit(ctx, "alice", job)
//	err = p.StopAndWait(ctx)
//
// [Func] makes a pool with a queue of its own, in memory. [New] drains a queue that you have
// opened, in any store, and [NewWorkers] a FairQueue.
//
// # What is promised
//
//   - Nothing is lost, whatever fails, panics, is cancelled or shut down. A task whose Submit
//     returned nil is exactly one of these: done, buried, in its queue, handed to DeadLetters, or
//     among the Leftovers. Without DeadLetters it may also be forgotten, because it expired, or
//     failed for good in a queue of the pool's own. If its lease is lost, or the process dies, it
//     is retried: at least once, as package task promises.
//   - The sink takes a letter before its task leaves the queue. If the sink returns an error or
//     panics, the task is buried instead. (An evicted or expired task is in no queue: then the log
//     has all of it.)
//   - At most Scale.Max handlers run at the same time, not counting handlers in Yield. A lower
//     limit lets running handlers finish.
//   - No worker is idle while there is a task that it may take, except during a transaction of the
//     queue's store.
//   - An idle pool uses no processor time. With a Min of 0 it has no goroutine after IdleTimeout,
//     and the next task starts one immediately.
//   - A task that waits for its next attempt, or for its delay to end, holds no worker and no
//     goroutine, and needs no room: a full queue cannot refuse it.
//   - Prefetched tasks, see Options.Prefetch, start in the order in which they were taken, or are
//     handed back within half a second, untried. A task whose lease has run out does not start.
//   - If the queue's store is away for a while, the pool goes on when it is back. It remembers
//     outcomes as long as the leases of their tasks last.
//   - An expired task does not start, and does not take up room.
//   - The context of a handler is done when the lease is lost, when the Timeout or the Deadline of
//     the task is over, and when the ctx of Shutdown is done. [context.Cause] returns the reason.
//   - When Shutdown has returned anything but an [ErrAbandoned], no goroutine is left. It ends
//     in time whatever handlers and sinks do.
//   - A panic of a handler, a sink or the Observer never ends the process.
//
// # Failures
//
// A handler that returns an error, or panics, has failed. The task is retried after a delay (see
// [Backoff]), up to its MaxAttempts: those of its PutOptions, or else of its queue, or else of the
// Policy. With the error [Permanent] it is not retried; [RetryAfter] and [Snooze] set the delay.
//
// A task that has failed for good goes to the function DeadLetters, with everything known of it
// (see [DeadLetter]). The function may put it into another queue, or into a file (package spill).
// Without DeadLetters it is buried, so that somebody can look at it and Kick it. In a queue of the
// pool's own it is forgotten, after Observer, Logger and waiting calls of Do have its error.
//
// A handler that hangs keeps its worker. By default one key whose handlers hang takes all workers,
// so nobody's tasks start any more. A MaxInFlightPerKey of the queue, less than the number of
// workers, prevents that. With w workers and a limit of n, the others are served as long as fewer
// than w/n keys hang. So with a limit of half of the workers one key may hang. A Policy.Timeout
// gives workers back, but only from handlers that heed their contexts. With NewWorkers set the
// MaxInFlightPerKey of a FairQueue with ShareTime, and WorkersOptions.Timeout.
//
// docs/guide.md has the packages side by side.
//
// # Cost
//
// With a store in memory, workers take and settle their tasks themselves. With another store, the
// pool takes tasks in batches, and settles each in a goroutine in the background: at most 256 at a
// time, or Scale.Max if that is more. Beyond that the workers settle.
//
// Taking a task from a pool with several classes is O(classes) in the worst case; otherwise taking
// and settling cost what they cost in package task. An idle worker waits in the pool; waking it
// costs a switch of goroutines.
package pool
