package sqlite

import (
	"cmp"
	"context"
	"time"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/store/internal/rows"
)

// Options say how a Store keeps its tasks. The zero value is right for most.
type Options struct {
	// Synchronous decides whether a power cut, or a crash of the operating system, may lose
	// transactions; a crash of the process loses nothing.
	Synchronous Synchronous

	// Prefix begins the names of tables and indexes; "" means "fairq_". It has at most 40 letters,
	// digits and underscores.
	Prefix string

	// BusyTimeout is how long a transaction waits for its turn, and for the lock of another
	// process; 0 means 10 seconds. A call may wait for the transaction before it and then for its
	// own, so at most twice as long; a context can end that sooner.
	BusyTimeout time.Duration

	// Poll is the interval at which waiting calls look for changes of other processes; 0 means 10
	// milliseconds. A look costs some microseconds. Waiting calls notice changes of this process
	// immediately.
	Poll time.Duration

	// MaxPayload limits the bytes of an encoded payload; 0 means 16 MiB.
	MaxPayload int

	// History is how long Store.History lists tasks that have left; 0 means not at all. It costs
	// one more write for every task that ends.
	History time.Duration

	// KeepSchema makes Open return an error, instead of migrating, if the tables are missing or
	// older than this program needs.
	KeepSchema bool
}

// Synchronous is when SQLite waits for the disk.
type Synchronous uint8

const (
	// Full waits at each commit: the changes of a call survive a power cut when it returns.
	Full Synchronous = iota

	// Normal waits only when the write-ahead log is copied into the database. A power cut may undo
	// the last transactions, in order: put tasks may be missing, and acked ones may be back. The
	// database stays whole.
	Normal
)

// Store keeps tasks in an SQLite database, which other processes on the same machine may use too.
// All methods may be called at any time by any goroutine. Queues are opened with [task.Open].
//
// Its methods Open and Queues implement [task.Store]. History(ctx, queue, after, n) returns up to
// n tasks that have left a queue, in the order of their ids, from the first id greater than after.
// For the next page, after is the last id of this one. Without Options.History there are none. It
// returns [task.ErrNotFound] if there is no such queue.
type Store struct {
	*rules
	db *db
}

type rules = rows.Store // with the methods Open, Queues and History

// Open opens the database in a file, and makes the file and the tables if they are missing. nil
// options are the defaults. It refuses a database that a newer program has made unusable for this
// one.
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
		MaxPayload: cmp.Or(o.MaxPayload, 16<<20), History: o.History,
		Poll: cmp.Or(o.Poll, 10*time.Millisecond),
	}
	return &Store{rows.New(d, limits), d}, nil
}

// mostPayload is SQLite's default limit of a row, less some room for the other columns.
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
		err = &driver.FieldError{
			Field: of + "Synchronous", Value: o.Synchronous,
			Limit: "Full or Normal",
		}
	}
	return err
}

// Close closes the database. Close its open queues first: that hands their taken tasks back,
// otherwise they return only after Options.Grace of the queue.
func (s *Store) Close() error { return s.db.close() }
