// Package postgres keeps the tasks of package task in a Postgres database, for any number of
// processes on any machines. It is a module of its own, with the driver pgx. It needs the right to
// make a schema, or an existing one, and no extension; it is tested with Postgres 15.
//
//	store, err := postgres.Open(ctx, "postgres://host/database", nil)
//	tasks, err := task.Open[Job](ctx, store, "emails", nil)
//
// # What is promised
//
//   - The promises of package task, except for tasks of one key that two processes put at the same
//     moment: these have no order, and the key can have one turn in a round from each process.
//     This is the only further delay of waiting tasks.
//   - The changes of a call survive the process as soon as it returns; the server's
//     synchronous_commit decides about a crash of the server.
//   - If a process dies, its taken tasks are handed back after Options.Grace of the queue, 30
//     seconds unless set.
//   - With [Store.InTx] or [WithTx] a call is part of a transaction of the caller's own: both
//     happen, or neither does.
//   - Waiting holds no transaction and no connection, except one in each process that listens to
//     the others. If a notification is lost, waiting calls look after Options.Poll.
//   - All times come from the server, so the clocks of the machines do not matter.
//   - While the server is away calls return errors; they work as soon as it is back, without
//     reopening anything.
//
// # Not promised
//
//   - If the connection breaks during a commit, or the server ends it, the outcome is unknown, and
//     the error is a task.ErrUnknown. A task with a UniqueKey can be put again without harm.
//   - The columns of the tables may be different in the next version; Open migrates them.
//   - A pooler that gives each transaction another connection (pgbouncer in transaction mode) is
//     not supported.
//
// # What it costs
//
// Calls made at the same time in one process share a transaction. Processes do not wait for each
// other, because each skips the rows that another has locked, with these exceptions:
//
//   - In queues that count by key (MaxInFlightPerKey, KeyRate, KeyCapacity), or have ever had a
//     task with a Kind, a transaction locks the keys whose tasks it changes.
//   - Queues with a Rate, a Capacity or a Quantum run one transaction at a time, as do calls for
//     groups.
//   - While an old transaction of any program keeps deleted rows in the indexes, one transaction
//     in 4,000 tasks has the queue for itself.
//
// The cost of a call does not depend on the number of tasks, except for KeyStats, List with a
// filter, DeleteSome, Truncate and Drop.
package postgres
