// Package kv stores the tables of package rows in an ordered map from bytes to bytes. It is the
// driver for stores over key-value engines. An adapter is a [Map], which reads at a moment and
// commits under conditions, or an [Engine], whose transactions read their own writes.
//
// # Layout
//
// A key is an encoded tuple. The encoding keeps the order of tuples (see tuple.go).
//
//	(0, 0)                                     the version of the layout
//	(0, 1)                                     the ID of the newest queue
//	(0, 2, name)                               the ID of a queue
//	(0, 3)                                     the number of the newest process
//	(queue, primary key's index, primary key)  a row
//	(queue, index, fields, primary key)        an index entry, which leads to a row
//	(queue, 100)                               name, settings and pauses of the queue
//	(queue, 101, process, n)                   a tally: counters of a process. Each of its
//	                                           transactions of the same time uses another n
//	(queue, 102)                               the lock of the queue: its process and its end
//	(queue, 102, 0)                            the mark: no ready task or turn comes before it
//	(queue, 103, task)                         a payload
//	(queue, 104)                               the last change that others may wait for: its
//	                                           process, and the number of its transaction
//
// Tallies hold the counters that change with each task, and payloads have keys of their own. So a
// change of a task's state rewrites neither the settings nor the payload, and a caller that only
// looks at tasks does not read payloads. An index is read in the order of its keys. So a range of
// package rows is a range of keys, and the ready tasks are in the fair order.
//
// # Many clients
//
// A transaction locks nothing. It reads the state that was committed before it began. It guards
// the few keys that others must not write before it commits (see rows.DB).
//
// Every transaction changes the number of tasks or the round being served. One row for these would
// make all transactions conflict, so each process has tallies instead. The sum of all tallies'
// counts is the number of tasks. The greatest round in a tally is the round being served. Each
// transaction guards and writes one tally. If the outcome of a commit is unknown, the number in
// the tally shows whether the commit happened. An exclusive transaction guards all tallies and
// writes the row (queue, 100), which all other transactions guard.
//
// All processes find the same due changes. Each change is first left to one process, and then to
// the next: see nextMakes.
//
// A large transaction might never commit, because small ones overtake it. So a process whose
// transactions fail again and again locks the queue. Then transactions of other processes wait.
//
// Until an engine is compacted, it finds the first key behind deleted keys slowly. So reads of
// ready tasks begin at a mark. After some thousand tasks were taken, a transaction that takes
// tasks moves the mark to the first task. It guards the skipped keys, because another transaction
// may be putting a task there. Each transaction that puts a ready task guards the mark, and moves
// it back if the task comes before it. A queue with lines has turns in the place of these tasks.
package kv

import (
	"context"
	"errors"
	"iter"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/store/internal/rows"
)

// ErrConflict is returned by a Txn that has changed nothing and may be tried again. Another
// transaction has written a guarded key, or the Txn has taken too long.
var ErrConflict = errors.New("another transaction was faster")

// ErrUnknown is returned by a Commit whose outcome is unknown: it may have happened, or still
// happen.
var ErrUnknown = driver.ErrUnknown

// ErrFull is returned by a Commit for which the database has no room. The commit may have
// happened. If it has not, it never will.
var ErrFull = errors.New("the database is full")

// Server is the part that Engine and Map have in common.
type Server interface {
	// Traits returns the traits of a store over this server, always the same.
	Traits() rows.Traits

	// Watch calls f with each entry that is written in a span, until ctx is done. It calls f with
	// nil if it may have missed entries.
	Watch(ctx context.Context, from, to []byte, f func(*Entry))
}

// Engine is an ordered map from bytes to bytes with transactions.
type Engine interface {
	Server

	Begin(ctx context.Context) (Txn, error)

	// Joined returns the caller's own transaction that ctx carries, nil if there is none. Commit
	// of that transaction does nothing. After its Rollback, the caller can only roll back too.
	Joined(ctx context.Context) (Txn, error)
}

// Txn is a transaction. It reads the state that was committed when it began, with its own writes.
// One goroutine uses it. After an error it can only be rolled back.
//
// Returned keys and values are valid until the transaction ends, and the caller must not change
// them. The caller may change a key that it passes to a method after the method has returned. It
// must never change a value that it has passed.
type Txn interface {
	// Get returns the value of a key, nil if there is none.
	Get(key []byte) ([]byte, error)

	// Fetch announces the keys that Get will read, and the spans that Scan will read. An engine
	// whose reads are exchanges with a server reads all of them in one exchange.
	Fetch(keys [][]byte, spans ...Span) error

	// Scan yields the entries of a span, or an error at the end. The caller writes nothing until
	// the scan is over.
	Scan(s Span) iter.Seq2[Entry, error]

	// Guard makes Commit return ErrConflict if, since this transaction began, another one has
	// committed a write to a key in the range from <= key < to. If to is nil, the range is the one
	// key that from names. Guard may leave out keys that this transaction has written before, as
	// FoundationDB does.
	Guard(from, to []byte)

	Put(key, value []byte) error

	// Delete deletes a key if it exists, and Clear all keys from <= key < to.
	Delete(key []byte) error
	Clear(from, to []byte) error

	// Commit returns when the writes are durable.
	Commit() error

	// Rollback undoes the writes, unless the transaction is over.
	Rollback()
}

// Span is the first Limit keys of From <= key < To; with Desc, the last Limit. Limit 0 means all
// of them. Then the reader may break off, so an engine does not fetch all at once.
type Span struct {
	From, To []byte
	Desc     bool // the last key comes first
	Limit    int
	Loose    bool // each page may be of a later moment: only single entries are of interest
}

// Entry is a key with its value. Revision is for the Map from which it comes.
type Entry struct {
	Key, Value []byte
	Revision   int64
}
