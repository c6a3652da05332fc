// Package sqlite keeps the tasks of package task in an SQLite database: one file, and no server.
// It is a module of its own, with SQLite translated to Go (modernc.org/sqlite), so it needs no C
// compiler.
//
//	store, err := sqlite.Open(ctx, "tasks.db", nil)
//	tasks, err := task.Open[Job](ctx, store, "emails", nil)
//
// # What is promised
//
//   - The promises of package task, for any number of processes on this machine that have the file
//     open. The rounds are exact, because there is one writer at a time.
//   - The changes of a call survive the process as soon as it returns, and a power cut too unless
//     Synchronous is [Normal].
//   - If a process dies, its taken tasks are handed back after Options.Grace of the queue, 30
//     seconds unless set.
//   - With [Store.InTx] or [WithTx] a call is part of a transaction of the caller's own: both
//     happen, or neither does.
//   - Waiting holds no transaction and no lock. A waiting call notices changes of its process
//     immediately, and changes of others after Options.Poll.
//
// # Not promised
//
//   - The file must not be on a network file system, and no other machine can use it.
//   - The clock is the machine's: if it is set back, delays and leases last longer by as much.
//   - The columns of the tables may be different in the next version; Open migrates them.
//
// # What it costs
//
// Calls made at the same time share a transaction, so a disk that takes a millisecond for each
// does not limit many callers to a thousand calls a second. The cost of a call does not depend on
// the number of tasks, except for KeyStats, List with a filter, DeleteSome, Truncate and Drop.
// Stats counts the keys, now and then if there are many. All calls, even reads, need the lock for
// writing.
package sqlite
