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

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/store/internal/rows"
)

// config has the options of a database.
type config struct {
	url      string // or a connection string of the form name=value
	schema   string // "" means fairq
	maxConns int32  // 0 means the url's limit, or the number of processors but at least 4

	// onChange is called when another process has changed a queue. 0 stands for all queues,
	// because notifications may have been missed. nil turns notifications off, in both directions,
	// for tests in bubbles.
	onChange func(queue uint64)

	now func() time.Time // instead of the database's clock, if not nil

	// The time after which a search is slow, and the number of tasks after which the marks move; 0
	// means 5 ms and 4,000.
	slow     time.Duration
	markStep int

	// copyFrom is the number of rows from which on they are inserted with COPY; 0 means 64. COPY
	// needs an exchange of its own, and saves the server much of the cost of an INSERT for each
	// row.
	copyFrom int

	tracer pgx.QueryTracer // nil for none
}

// database implements rows.DB.
type database struct {
	pool     *pgxpool.Pool
	schema   string // quoted
	name     string // of the database and the schema, for errors
	config   config
	texts    sync.Map // of statements, by their source text
	marks    marks
	saves    atomic.Uint64 // of rounds
	counts   atomic.Uint64
	writer   atomic.Int64             // see kept
	heads    sync.Map                 // by queue, kept
	resets   sync.Map                 // by queue, true if the next transaction ends what others keep
	identity atomic.Pointer[identity] // where it is
	notify   *notifier                // nil if there are no notifications
}

// settings are the settings of every connection of the pool. Statements are planned once. For an
// empty queue the planner would choose a plan that is slow once the queue is full, so these
// settings leave it only nested loops over indexes.
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
		// In a bubble, time passes immediately when nothing runs.
		const never = 1e6 * time.Hour
		conf.HealthCheckPeriod, conf.MaxConnLifetime, conf.MaxConnIdleTime = never, never, never
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
	db.marks.slow, db.marks.step = cmp.Or(c.slow, 5*time.Millisecond), cmp.Or(c.markStep, 4000)
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

// failed returns an error with the database and the operation.
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

// lock returns the number of the advisory lock of a queue; 0 stands for the schema as a whole.
// Such locks are per database.
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

// Begin returns a transaction. It needs no connection before its first statement.
func (db *database) Begin(ctx context.Context) (rows.Tx, error) {
	return &tx{db: db, ctx: ctx, batch: &pgx.Batch{}}, nil
}

type txKey struct{}

// txValue is the value in a context.
type txValue struct {
	pgx.Tx // nil if there is none at all, which is noticed too
	own    *driver.Tx
	joins  atomic.Bool // it was checked
}

// WithTx returns a context that makes calls of a queue part of the caller's own transaction: they
// happen if it is committed, and others see nothing of them before. If such a call fails, its
// changes are undone, and the transaction can go on. The transaction must have the isolation level
// Read Committed, and be in the queue's database; others are refused. Other calls wait for its
// locks, in particular on the tasks that it settles, so it should be short.
//
// The store never learns how the transaction ends. So Stats and KeyStats of this process do not
// count such a call, events and OnExpire do not report it, and Task.Info stays as it was. Waiting
// calls learn of the changes by a notification, like changes of other processes. See [Store.InTx].
func WithTx(ctx context.Context, tx pgx.Tx) context.Context {
	return context.WithValue(ctx, txKey{}, &txValue{Tx: tx, own: new(driver.Tx)})
}

// InTx calls f with a transaction of db, a pool or connection to the queue's database, and with a
// context that carries it as WithTx does. It commits, or if f returns an error or panics rolls
// back. After the commit, calls with that context are counted, reported and written into the Task
// as without a transaction. f must not undo such calls with a savepoint of its own; use WithTx for
// that.
func (*Store) InTx(
	ctx context.Context, db interface {
		Begin(ctx context.Context) (pgx.Tx, error)
	}, f func(ctx context.Context, tx pgx.Tx) error,
) error {
	if _, nested := db.(pgx.Tx); nested {
		return &driver.FieldError{
			Field: "InTx: the database", Value: "a transaction",
			Limit: "a pool or a connection",
		}
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
		return nil, &driver.FieldError{
			Field: "the transaction given to WithTx", Value: nil,
			Limit: "one that is open",
		}
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

// Again reports whether another transaction caused the error: by inserting a row first, by a
// deadlock, or by its isolation level. Transactions that were in a deadlock must run one after the
// other.
func (*database) Again(err error) (time.Duration, bool) {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return 0, errors.Is(err, errKept)
	}
	switch e.Code {
	case "23505":
		return 0, true
	case "55P03": // see sqlLimitWait
		return 0, errors.Is(err, errMoving)
	case "40001", "40P01":
		return time.Millisecond, true
	}
	return 0, false
}

// inDoubt reports whether a failed commit may have been done. That is so if the connection broke,
// or the server has ended it (pg_terminate_backend, a shutdown), because this may happen between a
// commit and its answer.
func inDoubt(commit error) bool {
	var e *pgconn.PgError
	return !errors.As(commit, &e) || e.SeverityUnlocalized != "ERROR"
}

// Changed returns true, because looking is as cheap as asking.
func (*database) Changed(context.Context) (bool, error) { return true, nil }

// Traits says that transactions run at the same time, and that a part of a caller's transaction
// can be undone.
func (*database) Traits() rows.Traits { return rows.Traits{Undo: true} }
