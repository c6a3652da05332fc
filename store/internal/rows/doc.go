// Package rows keeps the queues of package task in the rows of a database. It has all rules that
// the databases of this repository have in common: it implements driver.Backend by reads and
// writes of single rows. [DB] is the contract of a database, and package rowstest checks it.
//
// # Rounds
//
// Package order decides the turn of a task: the round in which it is taken. A line has the ready
// tasks of one key and priority. A task that becomes ready gets a turn at once, behind the turns
// of its line. Tasks are taken in the order of (priority, round, place).
//
// For each priority the database stores the round being served, which only grows. The last turn of
// a line is not stored, because the last ready task of the line has it. So this turn is right
// after a restart and after a purge, and needs no sweeping.
//
// When a task leaves its line, except by a Take, the next task of the line gets its turn. The
// tasks behind that one move up one after the other: see closeGap.
//
// If two processes put tasks of one key at the same moment, and the database allows that, neither
// sees the other's task. The key then gets two turns in one round.
//
// # Work instead of tasks
//
// With costs, the row of a task has the account of its line before its turn. The account after the
// turn is not stored: it follows from the cost of the task, by the rule of package account. So a
// task that gets the turn of a deleted task pays its own cost.
//
// A task may use up parts of later rounds. When such a task is taken, the account of its line is
// written to the table of Served, because the line may have no ready task left that has it. The
// row is swept when the round being served has passed the account.
//
// # Queues with lines
//
// Some queues give turns to lines instead of tasks. These are queues with KeepPlace or limits by
// key, and queues in which a task ever had a kind, or a key was ever paused or waited. The turns
// are in a table of their own: a take finds the line there, and then takes its first task. A line
// with tasks of several kinds has a row for each kind.
//
// A key is blocked if it is at its limit, paused or waits. The turns of its lines then leave the
// index that a take reads, but keep their rounds. So the key comes first when it is free again.
//
// # Databases
//
// The contract of a database is small, so that a database with nothing but ordered keys can be a
// store too. [DB] and [View] are this contract. [Schema] declares the tables and their indexes,
// and [Calls] has the ranges that the rules read.
//
// # Transactions
//
// The calls of one process share transactions as far as possible (see committer). Each call
// returns when its transaction is committed, and notifiers are called only then. Where
// transactions can run at the same time, each queue has its own, so that a locked queue does not
// hold up the others.
package rows
