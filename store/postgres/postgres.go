package postgres

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/task/driver"
)

// Options say how a Store keeps its tasks. The zero value is right for most.
type Options struct {
	// Schema is the name of the Postgres schema that all tables are in; "" means "fairq". It is
	// made if it is missing.
	Schema string

	// MaxConns is how many connections there are at most; 0 means what the connection string says
	// with pool_max_conns, or as many as there are processors, 4 at least. One more listens for
	// what others do.
	MaxConns int

	// Poll is how often somebody who waits looks for what other processes have done, in case a
	// notification was lost; 0 means a second. Notifications arrive within milliseconds.
	Poll time.Duration

	// Timeout is how long a transaction may take; 0 means 30 seconds. If the database does not
	// answer for that long, the calls in it return an error.
	Timeout time.Duration

	// MaxPayload is how many bytes an encoded payload may have; 0 means 16 MiB.
	MaxPayload int

	// History is how long tasks that are gone can be listed by Store.History; 0 means that they are
	// forgotten at once. It makes every task that ends cost one more write.
	History time.Duration

	// KeepSchema makes Open return an error, instead of migrating, if the tables are missing or
	// older than this program needs.
	KeepSchema bool
}

// Store keeps tasks in a Postgres database, which any number of processes on any machines may use.
// All methods may be called at any time by any goroutine. Queues are opened with [task.Open].
//
// Its methods Open and Queues are those of [task.Store]. History(ctx, queue, after, n) returns up to
// n tasks of a queue that are gone, in the order of their ids, those with greater ids than after: the
// last one of the page before; none if Options.History is 0. It returns [task.ErrNotFound] if there
// is no such queue.
type Store struct {
	*rules
	db *database
}

type rules = rows.Store // with the methods Open, Queues and History

// Open opens a database by a connection string, as a URL or of the form name=value, and makes what
// is missing of the tables. nil options are the defaults. A database that a newer program has
// changed so that this one cannot use it any more is refused.
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
		go db.Close() // it waits for those who listen, and these for us
		return nil, err
	}
	limits := rows.Options{
		MaxPayload: cmp.Or(o.MaxPayload, 16<<20), History: o.History, Poll: cmp.Or(o.Poll, time.Second),
		Timeout: cmp.Or(o.Timeout, 30*time.Second),
	}
	s.rules, s.db = rows.New(db, limits), db
	return s, nil
}

// maxPayload is what Postgres can have in a column, less some room for how it is sent.
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

// Close closes all connections. The queues that are open should be closed before: what is taken is
// handed back then, otherwise only after Options.Grace of the queue.
func (s *Store) Close() error {
	s.db.Close()
	return nil
}

// check returns an error unless this program can work with the tables as they are.
func (db *database) check(ctx context.Context) error {
	err := pgx.BeginFunc(ctx, db.pool, func(tx pgx.Tx) error {
		version, err := db.version(ctx, tx, len(migrations))
		if err == nil && version < len(migrations) {
			err = fmt.Errorf("the tables have version %d, this program needs %d: migrate them first", version, len(migrations))
		}
		return err
	})
	if err != nil {
		return db.failed("version", err)
	}
	return nil
}
