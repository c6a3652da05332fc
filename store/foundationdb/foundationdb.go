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
	"github.com/fairq/fairq/task/driver"
)

// Options say how a Store keeps its tasks. The zero value is right for most.
type Options struct {
	// Subspace has all keys; nil means that of the bytes "fairq/". All that is in it is the Store's.
	Subspace subspace.Subspace

	// MaxPayload is how many bytes an encoded payload may have, up to 90,000, which is what 0 means.
	MaxPayload int

	// Skew is by how much the clocks of two machines may differ; 0 means a second. A consumer
	// whose process has died is expired that much later.
	Skew time.Duration

	// Poll is how often somebody who waits looks for what other processes have done; 0 means ten
	// seconds. A watch tells, but one can be lost.
	Poll time.Duration

	// Timeout is how long a call may try; 0 means 30 seconds. If the cluster does not answer for
	// that long, it returns an error.
	Timeout time.Duration

	// History is how long tasks that are gone can be listed by Store.History; 0 means that they
	// are forgotten at once. It makes every task that ends cost one more write.
	History time.Duration

	// KeepSchema makes Open return an error, instead of beginning a store, if there is none.
	KeepSchema bool
}

// FoundationDB's limits are 100,000 bytes for a value and ten million for a transaction.
const (
	maxPayload = 90_000
	maxValue   = 100_000
	maxKey     = 10_000
	maxWrites  = 2_000 // rows, which have a kilobyte with their indexes beside what maxBytes counts
	maxBytes   = 5_000_000
)

func (o *Options) check() error {
	const of = "foundationdb.Options."
	return cmp.Or(
		rows.CheckRange(of+"Skew", o.Skew, driver.MaxDuration),
		rows.CheckRange(of+"Poll", o.Poll, driver.MaxDuration),
		rows.CheckRange(of+"Timeout", o.Timeout, driver.MaxDuration),
		rows.CheckRange(of+"History", o.History, driver.MaxDuration),
		rows.CheckRange(of+"MaxPayload", o.MaxPayload, maxPayload),
	)
}

// Store keeps tasks in FoundationDB. All methods may be called at any time by any goroutine. Queues
// are opened with [task.Open].
//
// Its methods Open and Queues are those of [task.Store]. History(ctx, queue, after, n) returns up to
// n tasks of a queue that are gone, in the order of their ids, those with greater ids than after: the
// last one of the page before; none if Options.History is 0. It returns [task.ErrNotFound] if there
// is no such queue.
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
	if err := o.check(); err != nil {
		return nil, err
	}
	e := &engine{create: create, prefix: []byte("fairq/"), traits: rows.Traits{
		MaxWrites: maxWrites, MaxBytes: maxBytes, Linger: 50 * time.Microsecond, Skew: cmp.Or(o.Skew, time.Second),
	}}
	if o.Subspace != nil {
		e.prefix = o.Subspace.Bytes()
	}
	timeout := cmp.Or(o.Timeout, 30*time.Second)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	db, err := kv.Open(ctx, fmt.Sprintf("foundationdb: %q", e.prefix), e, kv.Options{KeepSchema: o.KeepSchema})
	if err != nil {
		return nil, err
	}
	s := &Store{db: db, rules: rows.New(db, rows.Options{
		MaxPayload: cmp.Or(o.MaxPayload, maxPayload), History: o.History,
		Poll: cmp.Or(o.Poll, 10*time.Second), Timeout: timeout,
	})}
	db.OnChange(func(queue uint64) { rows.Changed(s.rules, queue) })
	return s, nil
}

// WithTx returns a context with which calls of a queue become part of a transaction of the caller's
// own, in the same database: they happen if it is committed. If such a call fails the transaction
// must not be committed; its error is returned from the function given to fdb.Database.Transact,
// which begins anew if that helps. The store never learns how the transaction ends: this process
// does not count what such a call has done, events and OnExpire do not tell it, and Task.Info stays
// as it was.
func WithTx(ctx context.Context, tx fdb.Transaction) context.Context {
	return context.WithValue(ctx, txKey{}, calls(binding{tx}))
}

// Conflicts returns how many transactions of this Store had to be tried again, because others were
// faster.
func (s *Store) Conflicts() int64 { return s.db.Conflicts() }

// Close ends what the Store watches; the database is the caller's. The queues that are open should
// be closed before: what is taken is handed back then, otherwise only after Options.Grace of the
// queue.
func (s *Store) Close() error {
	s.db.Close()
	return nil
}
