// Package kv keeps the tables of package rows in an ordered map from bytes to bytes: it is the
// driver for stores over key-value engines. An engine is a small adapter, see [Engine].
//
// # Layout
//
// A key is a tuple, encoded so that the bytes are in the order of the tuples (see tuple.go).
//
//	(0, 0)                                        what this is, and its version
//	(0, 1)                                        the last ID of a queue
//	(0, 2, name)                                  the ID of a queue
//	(0, 3)                                        the number of the last process
//	(queue, primary key's index, primary key)     a row
//	(queue, index, fields, primary key)           nothing: it leads to a row
//	(queue, 100)                                  name, settings and pauses of the queue
//	(queue, 101, process, n)                      what the n-th of those transactions counts that
//	                                              a process makes at the same time: a tally
//	(queue, 102)                                  which process has locked it, and until when
//	(queue, 102, 0)                               a mark: no ready task comes before it
//	(queue, 103, task)                            a payload
//	(queue, 104, process)                         the tasks that a process asks for or may take
//	(queue, 105)                                  which process has handed out tasks last
//	(queue, 106)                                  which process has done last what others may wait for, and the
//	                                              number of that transaction
//
// What changes with each task is in tallies, the payloads have keys of their own: neither is
// written again with what is beside it, and who only looks at tasks does not read their payloads.
// An index is read in the order of its keys, so a range of package rows is a range of keys, and
// the ready tasks stand in the fair order.
//
// # Many clients
//
// Nothing is locked: a transaction reads what was committed before it began, and guards those keys
// that others must not write before it is committed (see rows.DB), which are few. So what all
// transactions change, how many tasks there are and which round is being served, is in a tally for
// each process, and the sum or the greatest of these counts. Each transaction guards and writes
// its own tally: if it is not known whether a commit was done, the number in it tells. A
// transaction that is alone in its queue guards all tallies, and all others guard the row (queue,
// 100), which it writes. Who fails again and again locks the queue: others do not begin then, so
// that what has much to do is committed too.
//
// Where keys were deleted it takes time to find the next one, unless the engine was compacted since.
// So the ready tasks are read from a mark on. After some thousand were taken, who takes moves it to
// the first one, and guards what it passes over, where others may just put one. Who puts one before it
// moves it back, and who puts one behind it guards it.
package kv

import (
	"context"
	"errors"
	"iter"

	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/task/driver"
)

// ErrConflict is returned by a Txn that has done nothing, and may be tried again: others have
// written what it guards, or it has taken too long.
var ErrConflict = errors.New("another transaction was faster")

// ErrUnknown is returned by a Commit of which it is not known whether it was done, or will be.
var ErrUnknown = driver.ErrUnknown

// ErrFull is returned by a Commit for which there is no room. It may have been done, as with
// ErrUnknown, but if it was not, it never will be.
var ErrFull = errors.New("the database is full")

// Engine is an ordered map from bytes to bytes with transactions.
type Engine interface {
	// Traits are those of a store over it, and always the same.
	Traits() rows.Traits

	Begin(ctx context.Context) (Txn, error)

	// Joined returns the transaction of the caller's own that ctx carries, nil if it carries none.
	// Commit of it does nothing; after Rollback it can only be rolled back.
	Joined(ctx context.Context) (Txn, error)

	// Changed tells whether others may have committed something since the last call. It is cheap.
	Changed(ctx context.Context) (bool, error)
}

// Watcher is an Engine that tells what others write.
type Watcher interface {
	Engine

	// Watch calls f with each entry of a span that is written, and without one if some may have
	// been missed, until ctx is done.
	Watch(ctx context.Context, from, to []byte, f func(*Entry))
}

// Txn is a transaction. It reads what was committed when it began, and what it has written. It is
// used by one goroutine, and after an error it can only be rolled back.
//
// What it returns is valid until it ends, and is not changed. A key that is given to it may be
// changed later, a value not.
type Txn interface {
	// Get returns the value of a key, nil if there is none.
	Get(key []byte) ([]byte, error)

	// Fetch says which keys will be read next, and which spans will be scanned. Where each read is
	// an exchange with a server, all are read in one.
	Fetch(keys [][]byte, spans ...Span) error

	// Scan yields what is in a span, or an error at last. Nothing is written meanwhile.
	Scan(s Span) iter.Seq2[Entry, error]

	// Guard has Commit return ErrConflict if others have committed, since the transaction began,
	// something that writes the keys from one on and before another, or if to is nil the key from.
	// What the transaction itself has written before may be left out, as by FoundationDB.
	Guard(from, to []byte)

	Put(key, value []byte) error

	// Delete deletes a key, if it is there, and Clear all those from one on and before another.
	Delete(key []byte) error
	Clear(from, to []byte) error

	// Commit returns when what was written is durable.
	Commit() error

	// Rollback undoes what was written, unless the transaction is over.
	Rollback()
}

// Span is the keys from one on and before another, the first or the last Limit of them. A Limit
// of 0 means all, and does not mean that all will be read.
type Span struct {
	From, To []byte
	Desc     bool // the last comes first
	Limit    int
}

// Entry is a key with its value.
type Entry struct{ Key, Value []byte }
