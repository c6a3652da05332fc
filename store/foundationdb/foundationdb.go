//go:build cgo && foundationdb

package foundationdb

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/apple/foundationdb/bindings/go/src/fdb"
	"github.com/apple/foundationdb/bindings/go/src/fdb/subspace"

	"github.com/fairq/fairq/store/internal/kv"
	"github.com/fairq/fairq/store/internal/rows"
)

// Options say how a Store keeps its tasks. The zero value is right for most.
type Options struct {
	// Subspace has all keys; nil means the bytes "fairq/". Everything in it belongs to the Store.
	Subspace subspace.Subspace

	// MaxPayload limits the bytes of an encoded payload, up to 90,000; 0 means 90,000.
	MaxPayload int

	// Skew is the largest difference between the clocks of two machines; 0 means a second. After a
	// lease has ended or a process has died, other processes wait for Skew. Only then they take
	// over the task.
	Skew time.Duration

	// Poll is the interval at which waiting calls look for changes of other processes; 0 means ten
	// seconds. It covers a lost watch.
	Poll time.Duration

	// Timeout limits the retries of a call; 0 means 30 seconds. If the cluster does not answer for
	// so long, the call returns an error.
	Timeout time.Duration

	// History is how long Store.History lists a task that has left; 0 means not at all. Each task
	// that ends costs one more write.
	History time.Duration

	// KeepSchema makes Open return an error, instead of beginning a store, if there is none.
	KeepSchema bool
}

// FoundationDB's limits are 100,000 bytes for a value and ten million for a transaction.
const (
	maxPayload = 90_000
	maxValue   = 100_000
	maxKey     = 10_000
	maxWrites  = 2_000 // rows, which with their indexes have a kilobyte that maxBytes does not count
	maxBytes   = 5_000_000
)

func (o *Options) rules() rows.Options {
	return rows.Options{
		MaxPayload: o.MaxPayload, History: o.History, Poll: o.Poll, Timeout: o.Timeout,
	}
}

// Store keeps tasks in FoundationDB. All methods may be called at any time by any goroutine.
// [task.Open] opens its queues.
//
// The methods Open and Queues implement [task.Store]. History(ctx, queue, after, n) returns up to
// n tasks that have left a queue, in the order of their ids. The ids are greater than after, which
// is the last id of the page before. History returns no task if Options.History is 0, and
// [task.ErrNotFound] if there is no such queue.
type Store struct {
	*rules
	db *kv.DB
}

type rules = rows.Store // with the methods Open, Queues and History

// Open opens a store in a database. nil options are the defaults.
func Open(ctx context.Context, db fdb.Database, o *Options) (*Store, error) {
	return open(ctx, o, created(db))
}

func created(db fdb.Database) func() (calls, error) {
	return func() (calls, error) {
		t, err := db.CreateTransaction()
		return binding{t}, err
	}
}

func open(ctx context.Context, o *Options, create func() (calls, error)) (*Store, error) {
	if o == nil {
		o = &Options{}
	}
	if err := kv.CheckOptions("foundationdb", o.Skew, maxPayload, o.rules()); err != nil {
		return nil, err
	}
	e := &engine{create: create, prefix: []byte("fairq/"), traits: rows.Traits{
		MaxWrites: maxWrites, MaxBytes: maxBytes, Linger: 50 * time.Microsecond,
		Skew: cmp.Or(o.Skew, time.Second),
	}}
	if o.Subspace != nil {
		e.prefix = o.Subspace.Bytes()
	}
	r := o.rules()
	r.MaxPayload = cmp.Or(r.MaxPayload, maxPayload)
	db, rules, err := kv.OpenStore(ctx, fmt.Sprintf("foundationdb: %q", e.prefix), e,
		kv.Options{KeepSchema: o.KeepSchema}, r)
	if err != nil {
		return nil, err
	}
	return &Store{rules, db}, nil
}

// WithTx returns a context that makes calls of a queue part of the caller's own transaction in the
// same database. The calls happen if the transaction is committed.
//
// If such a call fails, the transaction must not be committed. Return the error from the function
// given to fdb.Database.Transact, which retries the transaction if possible.
//
// The store never learns how the transaction ends. So this process does not count such a call.
// Events and OnExpire do not report it, and Task.Info stays the same.
func WithTx(ctx context.Context, tx fdb.Transaction) context.Context {
	return context.WithValue(ctx, txKey{}, calls(binding{tx}))
}

// Close ends the watches of the Store. The database stays open. Close the open queues first, so
// that they hand back their taken tasks. Otherwise these tasks return only after Options.Grace of
// the queue.
func (s *Store) Close() error {
	s.db.Close()
	return nil
}
