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
//	(queue, primary key's index, primary key)     a row
//	(queue, index, fields, primary key)           nothing: it leads to a row
//	(queue, 100)                                  name, settings and pauses of the queue
//	(queue, 101)                                  its last number, and how many tasks there are
//	(queue, 102, priority)                        the round being served
//	(queue, 103, task)                            a payload
//
// What changes with each task, the counts and rounds, have keys of their own, and so have
// payloads: neither is written again with what is beside it, and who only looks at tasks does not
// read their payloads. An index is read in the order of its keys, so a range of package rows is a
// range of keys, and the ready tasks stand in the fair order.
package kv

import (
	"context"
	"iter"
)

// Engine is an ordered map from bytes to bytes with transactions. No two of these run at the same
// time, and nobody else changes what is in it.
type Engine interface {
	// Begin waits until there is no other transaction, or ctx is done.
	Begin(ctx context.Context) (Txn, error)

	// Joined returns the transaction of the caller's own that ctx carries, nil if it carries none.
	// Commit of it does nothing; after Rollback it can only be rolled back.
	Joined(ctx context.Context) (Txn, error)
}

// Txn is a transaction. It reads what it has written. It is used by one goroutine, and after an
// error it can only be rolled back.
//
// What it returns is valid until it ends, and is not changed. A key that is given to it may be
// changed later, a value not.
type Txn interface {
	// Get returns the value of a key, nil if there is none.
	Get(key []byte) ([]byte, error)

	// Scan yields what is in a span, or an error at last. Nothing is written meanwhile.
	Scan(s Span) iter.Seq2[Entry, error]

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
