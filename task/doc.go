// Package task has queues of tasks with a life cycle. A [fairq.FairQueue] hands an item out and
// forgets it; a [Queue] keeps a task until the consumer that has taken it reports how it went.
//
//	tasks, err := task.Open[Job](ctx, new(memory.Store), "emails", nil)
//	id, err := tasks.Put(ctx, "alice", job, task.PutOptions{})
//	t, err := tasks.Take(ctx) // waits; t is a lease
//	err = t.Ack(ctx)          // or Release, Snooze, Fail, Bury, Discard
//
// The states of a task and the changes between them:
//
//	delayed --due--> ready --Take--> taken --Ack, Discard--> gone
//	                   ^               |--Return---------> ready
//	                   |               |--Snooze---------> ready or delayed
//	                   |               |--Release, Fail--> the same, or buried after the last
//	                   |               |--Bury-----------> buried --Kick--> ready
//	                   +--lease lost---+
//	held --StartGroup--> ready
//
// # The order
//
//   - Order: priority first; within a priority keys are served in rounds, as by a [fairq.Queue];
//     within a key tasks are taken in the order in which they became ready. In a round, tasks of
//     different keys are taken in that order too.
//   - With Options.Quantum, rounds share work instead of tasks, by their costs. A key with ready
//     tasks can use the rest of its share of the current round for tasks that are put then.
//   - A task takes its turn, and its place in its key, when it becomes ready: when it is put, when
//     its delay ends, when it is kicked.
//   - A task that was tried in vain queues like new work, so a key whose tasks all fail or hang
//     does not hold up the others. A task counts as tried after Release, Snooze, Fail or Repeat,
//     with a delay or without, and after a lost lease, because no store knows whether it was
//     tried.
//   - A task that is handed back untried (by Return, ReleaseAll or Close) keeps its turn, and is
//     first; if it comes back untried twice in a row, it takes a new turn. After TakeID a task has
//     no turn to keep, but handing it back counts as one of the two times. After a new turn by
//     Change or Replace the count begins again.
//   - With Options.KeepPlace a task returns to its place among the tasks of its key and priority.
//     If one of these is ready with an earlier place, even an untried task takes a new turn.
//   - A task that HoldKey hands back keeps its place. If it has not failed, it also keeps its
//     turn, like an untried one.
//   - A key that is at its limit (Options.MaxInFlightPerKey), is paused, or waits (HoldKey,
//     Options.KeyRate), is passed over, at no cost for the others. If it has missed turns, it is
//     first as soon as it can be served. But it never gets back more than one turn, or with a
//     weight more than those of a round.
//
// # Promises
//
//   - One consumer at a time holds a task, while its lease lasts. An expired lease is lost for
//     good, even if no consumer has taken the task since. Calls on a lost lease fail and have no
//     effect.
//   - Nothing is lost: a task leaves the queue when it is acked, discarded, deleted, evicted (and
//     handed to OnEvict), or when its time to live or its deadline ends (and it is handed to
//     OnExpire). A task that was tried MaxAttempts times is buried, with its last error.
//   - Changes that are due at a time happen at that time, and not at the next call.
//   - Calls that wait for tasks are served first come, first served, and one new task wakes one of
//     them. Calls that wait for room are admitted in rounds by key. A context that ends loses
//     nothing.
//   - A call that returns an error has changed nothing, unless its doc names an exception.
//   - Some stores can make calls parts of a transaction of the caller's own. If the store commits
//     it (InTx), its changes are counted and reported then, once; after a rollback they are not.
//     If the caller commits it (WithTx), they are neither counted nor reported.
//
// # Not promised
//
//   - That a task runs only once. A consumer whose lease has expired may still work on the task
//     when the next one begins. Task.Context makes it stop.
//   - That deleted and expired tasks leave no trace in the order of others: the tasks of the key
//     behind such a task may move up by one turn.
//   - Strictly first come, first served between takers with different filters: a taker that looks
//     in vain for one task may find another that has just become ready. TryTake never waits in
//     line.
//   - Events of other processes, where processes share a store.
//
// Package fairq has a table of the packages beside each other.
//
// # Stores
//
// A [Store] keeps the tasks. Package memory keeps them in the process, the modules of store/ in a
// database.
package task
