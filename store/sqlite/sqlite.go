package sqlite

import (
	"cmp"
	"context"
	"time"

	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/task/driver"
)

// Options say how a Store keeps its tasks. The zero value is right for most.
type Options struct {
	// Synchronous says what a power cut, or a crash of the operating system, may cost; a crash of
	// the process costs nothing.
	Synchronous Synchronous

	// Prefix begins the names of tables and indexes; "" means "fairq_". It is letters, digits and
	// underscores, 40 at most.
	Prefix string

	// BusyTimeout is how long a transaction waits for its turn, and for a lock that another process
	// has; 0 means 10 seconds. A call may wait for the one before it and then for its own, so at
	// most twice as long; a context can end that sooner.
	BusyTimeout time.Duration

	// Poll is how often somebody who waits asks whether another process has changed something; 0
	// means 10 milliseconds. That costs some microseconds. What happens in this process is known at
	// once.
	Poll time.Duration

	// MaxPayload is how many bytes an encoded payload may have; 0 means 16 MiB.
	MaxPayload int

	// History is how long tasks that are gone can be listed by Store.History; 0 means that they are
	// forgotten at once. It makes every task that ends cost one more write.
	History time.Duration

	// KeepSchema makes Open return an error, instead of migrating, if the tables are missing or
	// older than this program needs.
	KeepSchema bool
}

// Synchronous is when SQLite waits for the disk.
type Synchronous uint8

const (
	// Full waits at each commit: what a call has done when it returns survives a power cut.
	Full Synchronous = iota

	// Normal waits only when the write-ahead log is copied into the database. After a power cut the
	// last transactions may be undone, in order: tasks that were put may be missing, and some that
	// were acked may be there again. The database stays whole.
	Normal
)

// Store keeps tasks in an SQLite database, which other processes on the same machine may use too.
// All methods may be called at any time by any goroutine. Queues are opened with [task.Open].
//
// Its methods Open and Queues are those of [task.Store]. History(ctx, queue, after, n) returns up to
// n tasks of a queue that are gone, in the order of their ids, those with greater ids than after: the
// last one of the page before; none if Options.History is 0. It returns [task.ErrNotFound] if there
// is no such queue.
type Store struct {
	*rules
	db *db
}

type rules = rows.Store // with the methods Open, Queues and History

// Open opens the database in a file, which it makes if there is none, and makes what is missing in
// it. nil options are the defaults. A database that a newer program has changed so that this one
// cannot use it any more is refused.
func Open(ctx context.Context, path string, o *Options) (*Store, error) {
	if o == nil {
		o = &Options{}
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	inner := options{prefix: o.Prefix, busyTimeout: o.BusyTimeout, noMigrate: o.KeepSchema}
	if o.Synchronous == Normal {
		inner.synchronous = "normal"
	}
	d, err := openDB(ctx, path, inner)
	if err != nil {
		return nil, err
	}
	limits := rows.Options{
		MaxPayload: cmp.Or(o.MaxPayload, 16<<20), History: o.History, Poll: cmp.Or(o.Poll, 10*time.Millisecond),
	}
	return &Store{rows.New(d, limits), d}, nil
}

// mostPayload is what SQLite can have in a row by default, less some room for the rest of it.
const mostPayload = 1_000_000_000 - 1<<20

func (o *Options) check() error {
	const of = "sqlite.Options."
	err := cmp.Or(
		rows.CheckRange(of+"BusyTimeout", o.BusyTimeout, driver.MaxDuration),
		rows.CheckRange(of+"Poll", o.Poll, driver.MaxDuration),
		rows.CheckRange(of+"History", o.History, driver.MaxDuration),
		rows.CheckRange(of+"MaxPayload", o.MaxPayload, mostPayload),
	)
	if err == nil && o.Synchronous > Normal {
		err = &driver.FieldError{Field: of + "Synchronous", Value: o.Synchronous, Limit: "Full or Normal"}
	}
	return err
}

// Close closes the database. The queues that are open should be closed before: what is taken is
// handed back then, otherwise only after Options.Grace of the queue.
func (s *Store) Close() error { return s.db.close() }
