// Package rows keeps the queues of package task in the rows of a database. It holds all rules that
// the stores of this repository have in common: what a driver.Backend promises, told in reads and
// writes of single rows. What a database has to do for it is [DB]; package rowstest checks that.
//
// # Rounds
//
// Package order says which turn a task gets. A task that becomes ready gets it at once, after those of
// its line: the round being served is stored, for each priority, and only grows; the last turn of a
// line is not stored, because it is that of its last ready task. So it is right after a restart and
// after a purge, and nothing has to be swept. The ready tasks in the order of (priority, round, place)
// are the order in which they are taken. If one of them leaves the line otherwise than by being taken,
// the next one gets its turn, and what is behind that moves up one after the other: see closeGap.
//
// Where two processes put tasks of the same key at the same moment, and the database lets them,
// neither sees the other's: then the key gets one turn in that round from each of them.
//
// # Work instead of tasks
//
// A task has in its row what its key has used of its round before it. What is used after it follows
// from its cost, by the rule of package account: it is not written down, so a task that gets the turn
// of another one, because that was deleted, pays its own cost. The account of a line without ready
// tasks is written to the table of Served when a task is taken that has used rounds to come: there it
// is found when the task is gone, and swept when it is void.
//
// # Queues that count by key
//
// With MaxInFlightPerKey or KeepPlace, or once there are kinds or a key was paused or waited, only the
// front of each line (a key in a priority) is in the index of ready tasks: its first task, and the
// first one of each further kind, which shares its turn. The others are parked; the line gets its next
// turn when it has used the one before. The front of a key that is busy, paused or waits leaves the
// index and keeps its round, so it is first when it comes back.
//
// # Databases
//
// A database is asked for little, so that one with nothing but ordered keys can be a store too: see
// [DB] and [View] for what it has to do, [Schema] for the tables and their indexes, and [Calls] for
// the ranges of these that the rules read.
//
// # Transactions
//
// The calls of one process are put together into as few transactions as there can be (see
// committer), and each returns when its own is committed. Nobody is told anything before. Where
// transactions can run at the same time, each queue has its own, so that a queue that somebody has
// locked does not hold up the others.
package rows
