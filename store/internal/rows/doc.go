// Package rows keeps the queues of package task in the rows of a database. It has all rules that
// the databases of this repository have in common: it implements driver.Backend by reads and
// writes of single rows. [DB] is the contract of a database, and package rowstest checks it.
//
// # Rounds
//
// Package order decides the turn of a task. A task that becomes ready gets its turn at once,
// behind the turns of its line. The round being served is stored for each priority, and only
// grows. The last turn of a line is not stored, because its last ready task has it. So it is right
// after a restart and after a purge, and needs no sweeping. Tasks are taken in the order of
// (priority, round, place). If a task leaves its line, except by a Take, the next one gets its
// turn, and the tasks behind that move up one after the other: see closeGap.
//
// If two processes put tasks of the same key at the same moment, and the database allows it,
// neither sees the other's task: then the key gets a turn in that round from each of them.
//
// # Work instead of tasks
//
// The row of a task has the account of its line before its turn. The account after it follows from
// the cost of the task, by the rule of package account, and is not stored. So a task that gets the
// turn of a deleted one pays its own cost. When a task that uses later rounds is taken, the
// account of its line goes to the table of Served, because the line may have no ready task left
// that holds it. It is swept when it is void.
//
// # Queues that count by key
//
// With MaxInFlightPerKey or KeepPlace, or once there are kinds or a key was paused or waited, only
// the front of each line (a key in a priority) is in the index of ready tasks: its first task, and
// the first task of each further kind, which shares its turn. The others are parked; the line gets
// its next turn when it has used the one before. The front of a key that is at its limit, paused
// or waits leaves the index and keeps its round, so it is first when it comes back.
//
// # Databases
//
// The contract of a database is small, so that one with nothing but ordered keys can be a store
// too: see [DB] and [View] for it, [Schema] for the tables and their indexes, and [Calls] for the
// ranges that the rules read.
//
// # Transactions
//
// The calls of one process share transactions as far as possible (see committer), and each returns
// when its transaction is committed. No notifier is called before. Where transactions can run at
// the same time, each queue has its own, so that a locked queue does not hold up the others.
package rows
