package postgres

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/store/internal/rows"
)

// Options say how a Store keeps its tasks. The zero value is right for most.
type Options struct {
	// Schema is the Postgres schema of all tables; "" means "fairq". Open makes it if it is
	// missing.
	Schema string

	// MaxConns limits the connections; 0 means pool_max_conns of the connection string, or the
	// number of processors, at least 4. One more listens to other processes.
	MaxConns int

	// Poll is the interval at which waiting calls look for changes of other processes, in case a
	// notification was lost; 0 means a second. Notifications arrive within milliseconds.
	Poll time.Duration

	// Timeout limits a transaction; 0 means 30 seconds. If the database does not answer for that
	// long, the calls in it return an error.
	Timeout time.Duration

	// MaxPayload limits the bytes of an encoded payload; 0 means 16 MiB.
	MaxPayload int

	// History is how long Store.History lists tasks that have left; 0 means not at all. It costs
	// one more write for every task that ends.
	History time.Duration

	// KeepSchema makes Open return an error, instead of migrating, if the tables are missing or
	// older than this program needs.
	KeepSchema bool
}

// Store keeps tasks in a Postgres database, which any number of processes on any machines may use.
// All methods may be called at any time by any goroutine. Queues are opened with [task.Open].
//
// Its methods Open and Queues implement [task.Store]. History(ctx, queue, after, n) returns up to
// n tasks that have left a queue, in the order of their ids, from the first id greater than after.
// For the next page, after is the last id of this one. Without Options.History there are none. It
// returns [task.ErrNotFound] if there is no such queue.
type Store struct {
	*rules
	db *database
}

type rules = rows.Store // with the methods Open, Queues and History

// Open opens a database by a connection string, as a URL or of the form name=value, and makes
// missing tables. nil options are the defaults. It refuses a database that a newer program has
// made unusable for this one.
func Open(ctx context.Context, connection string, o *Options) (*Store, error) {
	if o == nil {
		o = &Options{}
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	s, opened := &Store{}, make(chan struct{})
	defer close(opened)
	db, err := open(ctx, config{
		url: connection, schema: o.Schema, maxConns: int32(o.MaxConns),
		onChange: func(queue uint64) {
			<-opened
			if s.rules != nil {
				rows.Changed(s.rules, queue)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	if o.KeepSchema {
		err = db.check(ctx)
	} else {
		err = db.Migrate(ctx)
	}
	if err != nil {
		go db.Close() // it waits for the listeners, and these for us
		return nil, err
	}
	limits := rows.Options{
		MaxPayload: cmp.Or(o.MaxPayload, 16<<20), History: o.History, Poll: cmp.Or(o.Poll, time.Second),
		Timeout: cmp.Or(o.Timeout, 30*time.Second),
	}
	s.rules, s.db = rows.New(db, limits), db
	return s, nil
}

// maxPayload is Postgres' limit of a column, less some room for its transport.
const maxPayload = 512 << 20

func (o *Options) check() error {
	const of = "postgres.Options."
	err := cmp.Or(
		rows.CheckRange(of+"Poll", o.Poll, driver.MaxDuration),
		rows.CheckRange(of+"Timeout", o.Timeout, driver.MaxDuration),
		rows.CheckRange(of+"History", o.History, driver.MaxDuration),
		rows.CheckRange(of+"MaxPayload", o.MaxPayload, maxPayload),
		rows.CheckRange(of+"MaxConns", o.MaxConns, 10_000),
	)
	if err == nil && len(o.Schema) > 63 {
		err = &driver.FieldError{Field: of + "Schema", Value: o.Schema, Limit: "63 bytes at most"}
	}
	return err
}

// Close closes all connections. Close its open queues first: that hands their taken tasks back,
// otherwise they return only after Options.Grace of the queue.
func (s *Store) Close() error {
	s.db.Close()
	return nil
}

// check returns an error unless this program can work with the tables as they are.
func (db *database) check(ctx context.Context) error {
	err := pgx.BeginFunc(ctx, db.pool, func(tx pgx.Tx) error {
		version, err := db.version(ctx, tx, len(migrations))
		if err == nil && version < len(migrations) {
			err = fmt.Errorf("the tables have version %d, this program needs %d: migrate them first",
				version, len(migrations))
		}
		return err
	})
	if err != nil {
		return db.failed("version", err)
	}
	return nil
}
