package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/internal/pgtest"
	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/task"
)

var everything = rows.Filter{MaxPriority: task.MaxPriority}

// makeQueue makes the queue q.
func makeQueue(tb testing.TB, db *database) uint64 {
	tb.Helper()
	tx, err := db.Begin(context.Background())
	require.NoError(tb, err)
	q, err := tx.Queue("q", []byte("settings"))
	require.NoError(tb, err)
	require.NoError(tb, tx.Commit())
	return q.ID
}

func enter(tx rows.Tx, queue uint64, plan *rows.Plan) (v rows.Calls, err error) {
	v.View, err = tx.Enter(queue, plan)
	return v, err
}

func again(db rows.DB, err error) bool {
	_, again := db.Again(err)
	return again
}

// in runs f in a transaction.
func in(db *database, queue uint64, plan rows.Plan, f func(v rows.Calls) error) error {
	tx, err := db.Begin(context.Background())
	if err != nil {
		return err
	}
	defer tx.Rollback()
	v, err := enter(tx, queue, &plan)
	if err == nil {
		err = f(v)
	}
	if err == nil {
		err = tx.Commit()
	}
	return err
}

// put puts tasks, in rounds from first on.
func put(tb testing.TB, db *database, queue, first uint64, n int) {
	tb.Helper()
	require.NoError(tb, in(db, queue, rows.Plan{Numbers: n}, func(v rows.Calls) error {
		return insertSome(v, first, n)
	}))
}

func insertSome(v rows.Calls, first uint64, n int) error {
	for i := range n {
		id, err := v.Number()
		if err != nil {
			return err
		}
		r := &rows.Row{
			ID: id, Key: fmt.Sprint("key", i%10), State: task.Ready, Takeable: true,
			Round: first + uint64(i), Place: id,
			Weight: 1, Payload: []byte("payload"),
		}
		if err := v.Put(r); err != nil {
			return err
		}
	}
	return nil
}

// take takes tasks, and returns their rounds, which are being served then.
func take(tb testing.TB, db *database, queue uint64, n int) (rounds []uint64) {
	tb.Helper()
	r := rows.ReadyRange(everything, n)
	repeat(tb, db, queue, r, func(v rows.Calls) error {
		rounds = nil
		list, err := v.Rows(r)
		for _, r := range list {
			rounds = append(rounds, r.Round)
			v.Head().Rounds[r.Priority] = max(r.Round, v.Head().Rounds[r.Priority])
			err = cmp.Or(err, takeRow(v, r))
		}
		return cmp.Or(err, v.Save())
	})
	return rounds
}

// repeat runs f in a transaction that plans to read a range, until it can be committed.
func repeat(
	tb testing.TB, db *database, queue uint64, r rows.Range, f func(v rows.Calls) error,
) {
	tb.Helper()
	plan := rows.Plan{Numbers: r.Limit, Ranges: []rows.Range{r}}
	err := in(db, queue, plan, f)
	for again(db, err) {
		err = in(db, queue, plan, f)
	}
	require.NoError(tb, err)
}

func takeRow(v rows.Calls, r *rows.Row) (err error) {
	r.State, r.Takeable, r.Consumer, r.Attempts, r.Until, r.Wake = task.Taken, false, 1, r.Attempts+1,
		v.Now()+1e9, v.Now()+1e9
	if r.Since, err = v.Number(); err != nil {
		return err
	}
	return v.Put(r)
}

// trips counts how often something is sent to the database.
type trips struct{ n atomic.Int64 }

func (c *trips) TraceBatchStart(ctx context.Context, _ *pgx.Conn,
	_ pgx.TraceBatchStartData,
) context.Context {
	c.n.Add(1)
	return ctx
}
func (*trips) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*trips) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

func (c *trips) TraceQueryStart(ctx context.Context, _ *pgx.Conn,
	_ pgx.TraceQueryStartData,
) context.Context {
	c.n.Add(1)
	return ctx
}
func (*trips) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func TestTransactionsTakeTwoRoundTrips(t *testing.T) {
	t.Parallel()
	c := &trips{}
	db := openTest(t, func(conf *config) { conf.tracer, conf.copyFrom, conf.slow = c, 64, time.Hour })
	q := makeQueue(t, db.database)
	c.n.Store(0)
	put(t, db.database, q, 1, 20)
	require.EqualValues(t, 2, c.n.Load(), "to put")
	c.n.Store(0)
	require.Len(t, take(t, db.database, q, 10), 10)
	require.EqualValues(t, 2, c.n.Load(), "to take")

	// A process settles, takes and puts tasks in one transaction, in a queue that counts.
	list := func(v rows.Calls) (list []*rows.Row, err error) { return v.TakenBy(1, 5, false) }
	var held []uint64
	require.NoError(t, in(db.database, q, rows.Plan{}, func(v rows.Calls) error {
		rows, err := list(v)
		for _, r := range rows {
			held = append(held, r.ID)
		}
		return err
	}))
	c.n.Store(0)
	last := rows.LastRange(0, rows.Line{Key: "key0"}, rows.Line{Key: "key1"})
	plan := rows.Plan{
		Counts: true, Ranges: []rows.Range{
			rows.RowRange(false, rows.ForUpdate, held...),
			rows.ReadyRange(everything, 3),
			last,
		}, Numbers: 5,
	}
	require.NoError(t, in(db.database, q, plan, func(v rows.Calls) error {
		_, err := v.Rows(last)
		require.NoError(t, err)
		settled, err := v.Rows(rows.RowRange(false, rows.ForUpdate, held...))
		require.NoError(t, err)
		ready, err := v.Ready(everything, 3)
		require.NoError(t, err)
		require.Len(t, ready, 3)
		for _, r := range settled {
			require.NoError(t, v.Delete(r))
		}
		for _, r := range ready {
			require.NoError(t, takeRow(v, r))
		}
		v.Head().Rounds[0] = ready[2].Round
		n, err := v.Counts()
		require.NoError(t, err)
		require.Equal(t, byState{15, 7, 0, 8, 0, 0}, n)
		require.NoError(t, insertSome(v, 100, 2))
		return v.Save()
	}))
	require.EqualValues(t, 2, c.n.Load(), "for all")
}

func TestErrorsNameTheOperation(t *testing.T) {
	t.Parallel()
	server := pgtest.Own(t)
	db := openTest(t, func(c *config) { c.url, c.copyFrom = server.URL("postgres"), 64 })
	q := makeQueue(t, db.database)
	for range 3 { // some connections
		put(t, db.database, q, 1, 1)
	}

	// A crash before the commit.
	tx, err := db.Begin(t.Context())
	require.NoError(t, err)
	v, err := enter(tx, q, &rows.Plan{Numbers: 1})
	require.NoError(t, err)
	require.NoError(t, insertSome(v, 9, 1))
	server.Kill()
	err = tx.Commit()
	require.ErrorContains(t, err, "postgres: "+db.name+": commit: ")
	require.False(t, again(db, err))
	tx.Rollback()
	require.ErrorContains(t, db.Migrate(t.Context()), "postgres: "+db.name+": migrate: ")
	err = in(db.database, q, rows.Plan{}, func(rows.Calls) error { return nil })
	require.ErrorContains(t, err, "postgres: "+db.name+": enter: ")

	// A restart in between goes unnoticed.
	require.NoError(t, server.Start())
	require.Len(t, take(t, db.database, q, 10), 3)
	require.NoError(t, server.Restart())
	require.Empty(t, take(t, db.database, q, 10))
}

func TestAgain(t *testing.T) {
	t.Parallel()
	db := openTest(t)
	q := makeQueue(t, db.database)
	add := func(v rows.Calls) error {
		return v.Put(&rows.Row{ID: 1 << 40, UniqueKey: "a", State: task.Ready})
	}
	require.NoError(t, in(db.database, q, rows.Plan{}, add))
	err := in(db.database, q, rows.Plan{}, add)
	require.Error(t, err)
	require.True(t, again(db, err))
	require.False(t, again(db, context.Canceled))

	// A deadlock.
	put(t, db.database, q, 1, 2)
	var ids []uint64
	require.NoError(t, in(db.database, q, rows.Plan{}, func(v rows.Calls) error {
		list, err := v.Ready(everything, 2)
		for _, r := range list {
			ids = append(ids, r.ID)
		}
		return err
	}))
	errs := make(chan error, 2)
	first := make(chan bool, 2)
	both := make(chan bool)
	for i := range 2 {
		go func() {
			errs <- in(db.database, q, rows.Plan{}, func(v rows.Calls) error {
				_, err := v.Get(ids[i], false)
				first <- true
				<-both
				if err == nil {
					_, err = v.Get(ids[1-i], false)
				}
				return err
			})
		}()
	}
	<-first
	<-first
	close(both)
	a, b := <-errs, <-errs
	if a == nil {
		a, b = b, a
	}
	require.NoError(t, b)
	require.True(t, again(db, a), a)
}

func TestWithTx(t *testing.T) {
	t.Parallel()
	db := openTest(t)
	q := makeQueue(t, db.database)
	ctx := context.Background()
	require.Nil(t, db.Own(ctx))
	for _, commit := range []bool{false, true} {
		user, err := db.pool.Begin(ctx)
		require.NoError(t, err)
		joined := func() rows.Calls {
			tx, err := db.Joined(WithTx(ctx, user))
			require.NoError(t, err)
			v, err := enter(tx, q, &rows.Plan{Numbers: 1})
			require.NoError(t, err)
			require.NoError(t, insertSome(v, 1, 1))
			return v
		}
		require.NoError(t, joined().View.(*view).tx.Commit())

		// A failed call is undone, and the rest stays.
		tx := joined().View.(*view).tx
		_, _, err = tx.views[0].CountKeys("", 1) // sends it
		require.NoError(t, err)
		tx.Rollback()
		tx = joined().View.(*view).tx
		require.Error(t,
			tx.query("nonsense", "SELECT nonsense", nil, func(r pgx.Rows) error {
				r.Close()
				return r.Err()
			}))
		tx.Rollback()
		require.Empty(t, take(t, db.database, q, 10), "before it is committed")
		if commit {
			require.NoError(t, user.Commit(ctx))
			require.Len(t, take(t, db.database, q, 10), 1)
		} else {
			require.NoError(t, user.Rollback(ctx))
			require.Empty(t, take(t, db.database, q, 10))
		}
	}
}

func TestWithTxOfAnotherLevel(t *testing.T) {
	t.Parallel()
	db := openTest(t)
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		user, err := db.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
		require.NoError(t, err)
		_, err = db.Joined(WithTx(t.Context(), user))
		require.ErrorIs(t, err, task.ErrInvalid)
		require.ErrorContains(t, err, string(level))
		_, err = user.Exec(t.Context(), "SELECT 1")
		require.NoError(t, err)
		require.NoError(t, user.Rollback(t.Context()))
	}
}

// A transaction of another database is refused, even if that has queues of the same numbers. The
// database is recognized after a restart of the server.
func TestWithTxOfAnotherDatabase(t *testing.T) {
	t.Parallel()
	ctx, server := t.Context(), pgtest.Own(t, pgtest.Fast...)
	begin := func(url string) pgx.Tx {
		conn, err := pgx.Connect(ctx, url)
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close(context.Background()) })
		tx, err := conn.Begin(ctx)
		require.NoError(t, err)
		return tx
	}
	ours, theirs, empty := server.Database(t), server.Database(t), server.Database(t)
	queueIn := func(url string) *task.Queue[string] {
		s, err := Open(ctx, url, nil)
		require.NoError(t, err)
		t.Cleanup(func() { s.Close() })
		q, err := task.Open[string](ctx, s, "q", nil)
		require.NoError(t, err)
		return q
	}
	q, other := queueIn(ours), queueIn(theirs)
	for _, url := range []string{theirs, empty, pgtest.Shared(t).Database(t)} {
		tx := begin(url)
		_, err := q.Put(WithTx(ctx, tx), "a", "a1", task.PutOptions{})
		require.ErrorIs(t, err, task.ErrInvalid)
		for _, name := range []string{ours, url} {
			require.ErrorContains(t, err,
				fmt.Sprintf("%q of the server", name[strings.LastIndex(name, "=")+1:]))
		}
		_, err = tx.Exec(ctx, "CREATE TABLE orders ()") // it can go on
		require.NoError(t, err)
		require.NoError(t, tx.Commit(ctx))
	}
	stats, err := other.Stats(ctx)
	require.NoError(t, err)
	require.Zero(t, stats.Len())
	require.NoError(t, server.Restart())
	tx := begin(ours)
	_, err = q.Put(WithTx(ctx, tx), "a", "a1", task.PutOptions{})
	require.NoError(t, err)
	require.NoError(t, tx.Commit(ctx))
}

// A program with connections of database/sql uses the pgx connection underneath.
func TestDatabaseSQL(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	url := pgtest.Shared(t).Database(t)
	s, err := Open(ctx, url, nil)
	require.NoError(t, err)
	defer s.Close()
	q, err := task.Open[string](ctx, s, "q", nil)
	require.NoError(t, err)
	db, err := sql.Open("pgx", url)
	require.NoError(t, err)
	defer db.Close()
	_, err = db.ExecContext(ctx, "CREATE TABLE orders (id bigint)")
	require.NoError(t, err)
	boom := errors.New("boom")
	for _, fails := range []error{boom, nil} {
		conn, err := db.Conn(ctx)
		require.NoError(t, err)
		err = conn.Raw(func(c any) error {
			return pgx.BeginFunc(ctx, c.(*stdlib.Conn).Conn(), func(tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, "INSERT INTO orders VALUES (1)"); err != nil {
					return err
				}
				_, err := q.Put(WithTx(ctx, tx), "alice", "job", task.PutOptions{})
				return cmp.Or(err, fails)
			})
		})
		require.Equal(t, fails, err)
		require.NoError(t, conn.Close())
	}
	var orders int
	require.NoError(t, db.QueryRowContext(ctx, "SELECT count(*) FROM orders").Scan(&orders))
	stats, err := q.Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, [2]int{1, 1}, [2]int{orders, stats.Ready})
	require.NoError(t, q.Close(ctx))
}

func TestNotify(t *testing.T) {
	t.Parallel()
	const long = 30 * time.Second
	server := pgtest.Own(t, pgtest.Fast...)
	heard := make(chan uint64, 1000)
	db := openTest(t, func(c *config) {
		c.url, c.onChange = server.URL("postgres"), func(q uint64) {
			heard <- q
		}
	})
	next := func() uint64 {
		select {
		case q := <-heard:
			return q
		case <-time.After(long):
			require.Fail(t, "nothing was heard")
			return 0
		}
	}
	require.EqualValues(t, 0, next(), "once it listens")
	other, err := open(context.Background(), func() config {
		c := db.config
		c.onChange = func(uint64) {}
		return c
	}())
	require.NoError(t, err)
	t.Cleanup(other.Close)
	tell := func(db *database, queue uint64) {
		tx, err := db.Begin(context.Background())
		require.NoError(t, err)
		defer tx.Rollback()
		_, err = tx.Queue("q", []byte("settings"))
		require.NoError(t, err)
		tx.Notify(queue)
		require.NoError(t, tx.Commit())
	}
	tell(db.database, 1) // does not hear its own notifications
	tell(other, 2)
	require.EqualValues(t, 2, next())
	for range 100 {
		tell(other, 3)
	}
	tell(other, 4)
	got := map[uint64]int{}
	for got[3] == 0 || got[4] == 0 { // in this order, or both together in any
		got[next()]++
	}
	require.Len(t, got, 2)
	require.Less(t, got[3], 100)

	// In a user's transaction the notification comes with the commit.
	user, err := other.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = user.Rollback(context.Background()) }() // otherwise other.Close waits forever
	tx, err := other.Joined(WithTx(t.Context(), user))
	require.NoError(t, err)
	_, err = tx.Enter(99, &rows.Plan{})
	require.NoError(t, err)
	tx.Notify(5)
	require.NoError(t, tx.Commit())
	tell(other, 6)
	for q := next(); q != 6; q = next() {
		require.NotEqualValues(t, 5, q, "before the commit")
	}
	require.NoError(t, user.Commit(t.Context()))
	require.EqualValues(t, 5, next())

	// After a break of the connection any notification may have been missed.
	require.NoError(t, server.Restart())
	require.EqualValues(t, 0, next())
	tell(other, 7)
	for q := next(); q != 7; q = next() {
		require.Zero(t, q)
	}
}

// In a queue with a limit for each key, a transaction does not read the kept state again.
func TestRoundTripsWithLimit(t *testing.T) {
	sharedDatabase(t)
	synctest.Test(t, func(t *testing.T) {
		q := newKeeper(t, openTest(t, inBubble))
		ctx := t.Context()
		q.learn(t)
		var batch []task.Entry[string]
		for i := range 200 {
			batch = append(batch, task.Entry[string]{Key: strconv.Itoa(i % 20), Payload: strconv.Itoa(i)})
		}
		_, err := q.PutBatch(ctx, batch)
		require.NoError(t, err)
		first, err := q.Take(ctx) // stores the consumer
		require.NoError(t, err)
		c1 := q.NewConsumer(task.Filter{})
		mine, err := c1.Take(ctx)
		require.NoError(t, err)
		var tasks []*task.Task[string]
		put := func() error { _, err := q.Put(ctx, "0", "", task.PutOptions{}); return err }
		for i, call := range []func() error{
			func() error { _, err := q.PutBatch(ctx, batch); return err },
			func() (err error) { tasks, err = q.TakeBatch(ctx, 50); return err },
			func() error { return first.Ack(ctx) },
			// four trips by two calls
			func() error { _, err := c1.AckAndTake(ctx, mine, new(task.Task[string])); return err },
			func() error { return tasks[0].Release(ctx, 0) },
			put, put, put, put,
		} {
			synctest.Wait() // for the work of Open
			before := q.trips.n.Load()
			require.NoError(t, call())
			require.EqualValues(t, 2, q.trips.n.Load()-before, "round trips of call %d", i)
		}
		require.Len(t, tasks, 50)
	})
}

// A server that shuts down, or ends a connection, may report that instead of the answer to a
// finished commit.
func TestInDoubt(t *testing.T) {
	require.True(t, inDoubt(io.ErrUnexpectedEOF))
	require.True(t, inDoubt(&pgconn.PgError{SeverityUnlocalized: "FATAL", Code: "57P01"}))
	require.False(t, inDoubt(&pgconn.PgError{SeverityUnlocalized: "ERROR", Code: "40001"}))
	db := openTest(t)
	_, err := db.pool.Exec(t.Context(), "SELECT 1/0")
	require.False(t, inDoubt(err))
	_, err = db.pool.Exec(t.Context(), "SELECT pg_terminate_backend(pg_backend_pid())")
	require.True(t, inDoubt(err))
}
