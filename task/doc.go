// Package task has queues of tasks with a life cycle. A [fairq.FairQueue] hands an item out and
// forgets it; a [Queue] remembers a task until who has taken it says how it went.
//
//	tasks, err := task.Open[Job](ctx, new(memory.Store), "emails", nil)
//	id, err := tasks.Put(ctx, "alice", job, task.PutOptions{})
//	t, err := tasks.Take(ctx) // waits; t is a lease
//	err = t.Ack(ctx)          // or Release, Snooze, Fail, Bury, Discard
//
// The states of a task and what leads from one to the other:
//
//	delayed --due--> ready --Take--> taken --Ack, Discard--> gone
//	                   ^               |--Return---------> ready
//	                   |               |--Snooze---------> ready or delayed
//	                   |               |--Release, Fail--> the same, or buried after the last attempt
//	                   |               |--Bury-----------> buried --Kick--> ready
//	                   +--lease lost---+
//	held --StartGroup--> ready
//
// # What is promised
//
//   - Order: priority first; within a priority keys are served in rounds, as by a [fairq.Queue];
//     within a key tasks are taken in the order in which they became ready. With Options.Quantum,
//     rounds share work instead of tasks, by their costs.
//   - A task takes its turn, and its place in its key, when it becomes ready: when it is put, when
//     its delay ends, when it is kicked. What was tried in vain queues up like new work, so a key
//     whose tasks all fail or hang does not hold up the others: this goes for Release, Snooze,
//     Fail and Repeat, with a delay or without, and for each lease that is lost, for nobody knows whether its
//     task was tried. Only what is handed back untried (by Return, ReleaseAll or Close) keeps the
//     turn that it was taken by, and is first; if it comes back so twice in a row, it takes a new
//     one. With Options.KeepPlace a task returns to its place in its key, but not to its turn. What
//     HoldKey hands back keeps its place, and if it has not failed its turn as what is untried does.
//   - A key that has as many tasks taken as Options.MaxInFlightPerKey allows, is paused, or waits
//     (HoldKey, Options.KeyRate), is passed over, at no cost for the others. As soon as it can be
//     served it is first, if it has missed a turn; it never gets back more than one, or with a weight more than those of a round.
//   - A task is with one consumer at a time, as long as the lease lasts. A lease that has run out
//     is lost for good, even if nobody has taken the task since. With a lost lease nothing can be
//     changed.
//   - Nothing is lost: a task leaves the queue when it is acked, discarded, deleted, evicted (and
//     handed to OnEvict), or when its time to live or its deadline ends (and it is handed to
//     OnExpire). One that was tried MaxAttempts times is buried, with its last error.
//   - What has a time happens at that time, not when somebody looks.
//   - Those who wait for tasks are served first come, first served, and one new task wakes one of
//     them. Those who wait for room are admitted in rounds by key. A context that ends loses
//     nothing.
//   - A call that returns an error has changed nothing, unless it says so.
//   - Where a store can make calls parts of a transaction of the caller's own, what is done in a
//     transaction that the store commits is counted and told then, once; after a rollback nothing
//     is. What is done in one that the caller commits (WithTx) is neither counted nor told.
//
// # What is not promised
//
//   - That a task runs only once. A consumer whose lease has run out may still be at it when the
//     next one begins. Task.Context tells it to stop.
//   - With MaxInFlightPerKey, KeyRate or KeepPlace, and for keys that were passed over (paused, waiting, or
//     with no task for the filter of a consumer), the order of keys within a round. (Else it is that in
//     which their tasks became ready.)
//   - That what was deleted or has expired leaves no trace in the order of the others: the tasks of
//     its key behind it may move up by one turn.
//   - First come, first served between takers with different filters, to the letter: who looks in
//     vain for one task may find another that became ready just then. TryTake does not wait behind
//     anybody.
//   - That events tell what other processes did, where a store is shared by several.
//
// # Beside the other packages
//
//	                 | fairq.New          | task.Open          | pool.Func
//	Capacity 0       | 128                | no limit           | no limit
//	full, by default | refuses            | refuses            | waits
//	wrong options    | panic              | error              | panic
//	a failed item    | the worker's       | comes back         | tried again, up to ten times
//	the end          | Close: workers     | Close: what is     | Shutdown: the rest goes to Leftovers;
//	                 | finish the rest    | taken goes back    | StopAndWait: it is done first
//
// docs/design.md has the reasons.
//
// # Stores
//
// Where the tasks are is up to the [Store]. Package memory keeps them in the process. Package
// driver is for those who write another one, and package storetest tells whether it does what is
// said here.
package task
