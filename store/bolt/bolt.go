package bolt

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"go.etcd.io/bbolt"

	"github.com/fairq/fairq/store/internal/kv"
	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/driver"
)

// Options say how a Store keeps its tasks. The zero value is right for most.
type Options struct {
	// MaxPayload is how many bytes an encoded payload may have; 0 means 16 MiB, 1 GiB is the most.
	MaxPayload int

	// History is how long tasks that are gone can be listed by Store.History; 0 means that they
	// are forgotten at once. It makes every task that ends cost one more write.
	History time.Duration

	// KeepSchema makes Open return an error, instead of making a file or beginning a store in it,
	// if there is none.
	KeepSchema bool
}

const maxPayload = 1 << 30 // bbolt keeps values of up to 2 GiB, and those of 32-bit systems less

func (o *Options) check() error {
	const of = "bolt.Options."
	return cmp.Or(
		rows.CheckRange(of+"History", o.History, driver.MaxDuration),
		rows.CheckRange(of+"MaxPayload", o.MaxPayload, maxPayload),
	)
}

// Store keeps tasks in a file, which no other process can open meanwhile. All methods may be
// called at any time by any goroutine. Queues are opened with [task.Open].
type Store struct {
	rules  *rows.Store
	engine *engine
	name   string // in errors
}

// timeout is how long a transaction waits for the one of a caller's own that runs.
const timeout = 10 * time.Second

// Open opens the file, which it makes if there is none. nil options are the defaults. A file that
// is open already, here or in another process, is refused at once.
func Open(ctx context.Context, path string, o *Options) (*Store, error) {
	if o == nil {
		o = &Options{}
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	e, err := openEngine(path, o.KeepSchema)
	if err != nil {
		return nil, fmt.Errorf("bolt: %s: open: %w", path, err)
	}
	s := &Store{engine: e, name: "bolt: " + e.path}
	db, err := kv.Open(ctx, s.name, e, kv.Options{KeepSchema: o.KeepSchema})
	if err != nil {
		_ = e.close()
		return nil, err
	}
	s.rules = rows.New(db, rows.Options{
		MaxPayload: cmp.Or(o.MaxPayload, 16<<20), History: o.History, Timeout: timeout,
		Poll: time.Minute, // nobody else writes
	})
	return s, nil
}

// Open implements [driver.Store].
func (s *Store) Open(
	ctx context.Context, queue string, settings driver.Settings, n driver.Notifier,
) (driver.Backend, error) {
	return s.rules.Open(ctx, queue, settings, n)
}

// Queues implements [driver.Store].
func (s *Store) Queues(ctx context.Context, from string, n int) ([]string, error) {
	return s.rules.Queues(ctx, from, n)
}

// History returns up to n tasks of a queue that are gone, in the order of their ids, those with
// greater ids than after: the last one of the page before; none if Options.History is 0. It
// returns [task.ErrNotFound] if there is no such queue.
func (s *Store) History(
	ctx context.Context, queue string, after task.ID, n int,
) ([]driver.Ended, error) {
	return s.rules.History(ctx, queue, after, n)
}

// Close closes the file. The queues that are open should be closed before: what is taken is handed
// back then, otherwise only after Options.Grace of the queue.
func (s *Store) Close() error {
	if err := s.engine.close(); err != nil {
		return fmt.Errorf("%s: close: %w", s.name, err)
	}
	return nil
}

// InTx calls f with a transaction of the same file, for buckets of the caller's own, and with a
// context that makes calls of queues a part of it. It commits, or if f returns an error or panics
// rolls back. The bucket "fairq" is the Store's.
//
// Both are for one goroutine at a time, until f returns. f must not end the transaction itself. All
// calls of queues with other contexts wait for it, so it should be short; one that f makes itself
// fails after 10 seconds.
func (s *Store) InTx(ctx context.Context, f func(ctx context.Context, tx *bbolt.Tx) error) error {
	t, err := s.engine.begin(ctx)
	if err != nil {
		return fmt.Errorf("%s: begin: %w", s.name, err)
	}
	defer t.Rollback()
	t.wrote = true
	if err := f(context.WithValue(ctx, txKey{}, t), t.tx); err != nil {
		return err
	}
	if err := t.Commit(); err != nil {
		return fmt.Errorf("%s: commit: %w", s.name, err)
	}
	s.rules.Changed(0)
	return nil
}
