// Package postgres keeps the tasks of package task in a Postgres database, for any number of
// processes on any machines. It is a module of its own, with the driver pgx. It needs the right to
// make a schema, or one that is there, and no extension; it is tested with Postgres 15.
//
//	store, err := postgres.Open(ctx, "postgres://host/database", nil)
//	tasks, err := task.Open[Job](ctx, store, "emails", nil)
//
// # What is promised
//
//   - All that package task promises, but for tasks of one key that two processes put at the same
//     moment: these have no order, and the key can have one turn in a round from each process. What
//     waits is delayed by no more than that.
//   - What a call has done survives the process as soon as it returns; as for the server, its
//     synchronous_commit says so.
//   - If a process dies, what it had taken is handed back after Options.Grace of the queue, 30
//     seconds unless set.
//   - With [Store.InTx] or [WithTx] a call is part of a transaction of the caller's own: both happen, or neither
//     does.
//   - Waiting holds no transaction and no connection, but for one in each process that listens to
//     the others. If they are not heard, who waits looks by himself after Options.Poll.
//   - Times are those of the server, so the clocks of the machines do not matter.
//   - When the server is away calls return errors, and as soon as it is back they work; nothing
//     has to be opened again.
//
// # What is not
//
//   - If the connection breaks during a commit, or the server ends it, whether that was done is not
//     known, and the error is a task.ErrUnknown. A task with a UniqueKey can be put again without harm.
//   - The columns of the tables may be different in the next version; Open migrates them.
//   - A pooler that gives each transaction another connection (pgbouncer in transaction mode) is
//     not supported.
//
// # What it costs
//
// Calls that are made at the same time in one process share a transaction, and processes do not
// wait for each other: each passes over the rows that another has locked. Queues whose Options have
// to count (MaxInFlightPerKey, Capacity, KeyCapacity, ThisRound), those that have ever
// had a task with a Kind, and calls for groups need each transaction alone. No call depends on how
// many tasks there are, but for KeyStats, List with a filter, Truncate and Drop.
package postgres
