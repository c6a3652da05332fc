package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/task/driver"
)

// config says how a database is opened.
type config struct {
	url      string // or a connection string of the form name=value
	schema   string // "" means fairq
	maxConns int32  // 0 means what the url says, or as many as there are processors but at least 4

	// onChange is called when another process has changed a queue. 0 stands for all queues:
	// something may have been missed. nil means that there are no notifications, in either
	// direction; that is for tests in bubbles.
	onChange func(queue uint64)

	now  func() time.Time // instead of the database's clock, if not nil
	slow time.Duration    // after which a search is slow, see marks; 0 means 5 ms

	// copyFrom is from how many rows on they are inserted with COPY; 0 means 64. That needs an
	// exchange of its own, and saves much of what an INSERT costs the server for each row.
	copyFrom int

	tracer pgx.QueryTracer // nil for none
}

// database implements rows.DB.
type database struct {
	pool     *pgxpool.Pool
	schema   string // quoted
	name     string // of the database and the schema, for errors
	config   config
	texts    sync.Map // of statements, by what they are in the source
	marks    marks
	saves    atomic.Uint64 // of rounds
	counts   atomic.Uint64
	writer   atomic.Int64             // see kept
	heads    sync.Map                 // by queue, kept
	identity atomic.Pointer[identity] // where it is
	notify   *notifier                // nil if there are no notifications
}

// settings are of every connection of the pool. The statements are written so that each of them
// works through an index with a nested loop; what the planner would choose instead, knowing that a
// queue was empty when it looked, would be slow once it is full. They are planned once.
const settings = `
SET plan_cache_mode = force_generic_plan;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET jit = off`

// open opens a database. Its tables must be made by Migrate before it is used.
func open(ctx context.Context, c config) (*database, error) {
	conf, err := pgxpool.ParseConfig(c.url)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	if c.maxConns > 0 {
		conf.MaxConns = c.maxConns
	}
	if c.now != nil {
		// In a bubble, time passes at once when nothing runs.
		conf.HealthCheckPeriod, conf.MaxConnLifetime, conf.MaxConnIdleTime = 1e6*time.Hour, 1e6*time.Hour, 1e6*time.Hour
		conf.ConnConfig.ConnectTimeout = 0
		conf.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	}
	conf.ConnConfig.Tracer = c.tracer
	db := &database{schema: pgx.Identifier{cmp.Or(c.schema, "fairq")}.Sanitize(), config: c}
	conf.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		db.writer.Store(rand.Int64() | 1)
		_, err := conn.PgConn().Exec(ctx, settings).ReadAll()
		return err
	}
	if db.pool, err = pgxpool.NewWithConfig(ctx, conf); err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	db.name = conf.ConnConfig.Database + "." + db.schema
	db.marks.slow = cmp.Or(c.slow, 5*time.Millisecond)
	db.config.copyFrom = cmp.Or(c.copyFrom, 64)
	if c.onChange != nil {
		db.notify = newNotifier(db, c.onChange)
	}
	return db, nil
}

// forget forgets a queue that was dropped.
func (db *database) forget(queue uint64) {
	db.marks.forget(queue)
}

// failed returns an error with the database and with what was being done.
func (db *database) failed(what string, err error) error {
	return fmt.Errorf("postgres: %s: %s: %w", db.name, what, err)
}

// Close ends all connections; it waits for transactions.
func (db *database) Close() {
	if db.notify != nil {
		db.notify.close()
	}
	db.pool.Close()
}

// text returns a statement with the schema's name in it.
func (db *database) text(sql string) string {
	if t, ok := db.texts.Load(sql); ok {
		return t.(string)
	}
	t := strings.ReplaceAll(sql, "fairq.", db.schema+".")
	db.texts.Store(sql, t)
	return t
}

// lock returns the number of the advisory lock of a queue; 0 stands for the schema as a whole. Such
// locks are per database.
func (db *database) lock(queue uint64) int64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "fairq %s %d", db.schema, queue)
	return int64(h.Sum64())
}

// now returns the time to be used instead of the database's, nil if there is none.
func (db *database) now() *int64 {
	if db.config.now == nil {
		return nil
	}
	return new(db.config.now().UnixNano())
}

// Begin returns a transaction. It needs no connection before something is asked of it.
func (db *database) Begin(ctx context.Context) (rows.Tx, error) {
	return &tx{db: db, ctx: ctx, batch: &pgx.Batch{}}, nil
}

type txKey struct{}

// txValue is what a context carries.
type txValue struct {
	pgx.Tx // nil if there is none at all, which is noticed too
	own    *driver.Tx
	joins  atomic.Bool // it was found out that it can be used
}

// WithTx returns a context with which calls of a queue become part of the caller's own transaction:
// they happen if it is committed, and others see nothing of them before. If such a call fails, what
// it did is undone, and the transaction can go on. It must have the isolation level Read Committed,
// and be in the queue's database; others are refused. What it locks, in particular tasks that it
// settles, others wait for, so it should be short.
//
// The store never learns how the transaction ends. So what such a call has done is not counted by
// Stats and KeyStats in this process, events and OnExpire do not tell it, Task.Info stays as it
// was, and those who wait learn of it by a notification, as of what others do. See [Store.InTx].
func WithTx(ctx context.Context, tx pgx.Tx) context.Context {
	return context.WithValue(ctx, txKey{}, &txValue{Tx: tx, own: new(driver.Tx)})
}

// InTx calls f with a transaction of db, a pool or connection to the queue's database, and with a
// context that carries it as WithTx does. It commits, or if f returns an error or panics rolls back. After the
// commit, what calls with that context have done is counted, told and written into the Task as
// without a transaction. f must not undo a part of that with a savepoint of its own: for what it may
// undo it uses WithTx.
func (*Store) InTx(
	ctx context.Context, db interface {
		Begin(ctx context.Context) (pgx.Tx, error)
	}, f func(ctx context.Context, tx pgx.Tx) error,
) error {
	if _, nested := db.(pgx.Tx); nested {
		return &driver.FieldError{Field: "InTx: the database", Value: "a transaction", Limit: "a pool or a connection"}
	}
	return driver.InTx(func(own *driver.Tx) error {
		return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
			return f(context.WithValue(ctx, txKey{}, &txValue{Tx: tx, own: own}), tx)
		})
	})
}

// Own implements rows.DB.
func (*database) Own(ctx context.Context) *driver.Tx {
	if user, ok := ctx.Value(txKey{}).(*txValue); ok {
		return user.own
	}
	return nil
}

// Joined implements rows.DB.
func (db *database) Joined(ctx context.Context) (rows.Tx, error) {
	user := ctx.Value(txKey{}).(*txValue)
	switch {
	case user.Tx == nil:
		return nil, &driver.FieldError{Field: "the transaction given to WithTx", Value: nil, Limit: "one that is open"}
	case ctx.Err() != nil: // if it ends later, that ends the transaction
		return nil, db.failed("join", ctx.Err())
	}
	if !user.joins.Load() {
		if err := db.joins(ctx, user.Tx); err != nil {
			return nil, err
		}
		user.joins.Store(true)
	}
	return &tx{db: db, ctx: ctx, user: user.Tx, batch: &pgx.Batch{}}, nil
}

// Again tells whether the error is one of those that others cause: a row that they inserted first,
// a deadlock, or another isolation level. Those who were in a deadlock are to come one after the
// other.
func (*database) Again(err error) (time.Duration, bool) {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return 0, false
	}
	switch e.Code {
	case "23505":
		return 0, true
	case "40001", "40P01":
		return time.Millisecond, true
	}
	return 0, false
}

// inDoubt tells whether a commit that failed may have been done: the connection broke, or the server
// has ended it, which it may do between a commit and its answer (pg_terminate_backend, a shutdown).
func inDoubt(commit error) bool {
	var e *pgconn.PgError
	return !errors.As(commit, &e) || e.SeverityUnlocalized != "ERROR"
}

// Changed returns true: to look is as cheap as to ask.
func (*database) Changed(context.Context) (bool, error) { return true, nil }

// Traits tells that transactions run at the same time, and that a part of a caller's can be undone.
func (*database) Traits() rows.Traits { return rows.Traits{Undo: true} }
