package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/store/internal/rows/rowstest"
	"github.com/fairq/fairq/task"
)

// callers is a db with only transactions of the caller's own.
type callers struct {
	handle
	sql *sql.DB
}

func openCallers(t *testing.T, path, begin string) callers {
	h := openHandle(t, path, options{synchronous: "normal", busyTimeout: patient.busyTimeout})
	dsn, err := dataSource(path)
	require.NoError(t, err)
	s, err := sql.Open("sqlite",
		dsn+"&_pragma=busy_timeout(60000)&_pragma=synchronous(normal)&_txlock="+begin)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return callers{h, s}
}

func (c callers) Reopen(t *testing.T) rows.DB { return openCallers(t, c.path, "immediate") }

// Tells is true because Changed reports all such transactions, as if they were others'.
func (c callers) ReportsChanges() bool { return true }

func (c callers) Begin(ctx context.Context) (rows.Tx, error) {
	own, err := c.sql.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	x, err := c.Joined(WithTx(ctx, own))
	if err != nil {
		return nil, errors.Join(err, own.Rollback())
	}
	return callersTx{x, own}, nil
}

type callersTx struct {
	rows.Tx
	own *sql.Tx
}

func (c callersTx) Commit() error {
	if err := c.Tx.Commit(); err != nil {
		return err
	}
	return c.own.Commit()
}

func (c callersTx) Rollback() {
	c.Tx.Rollback()
	_ = c.own.Rollback() // it may have been committed
}

func TestJoinedRows(t *testing.T) {
	rowstest.Run(t, func(t *testing.T) rows.DB { return openCallers(t, file(t), "immediate") })
}

// TestJoined writes to the caller's table and to ours.
func TestJoined(t *testing.T) {
	c := openCallers(t, file(t), "immediate")
	makeQueue(t, c.db)
	_, err := c.sql.Exec("CREATE TABLE orders (name)")
	require.NoError(t, err)
	changed, err := c.Changed(t.Context())
	require.NoError(t, err)
	require.True(t, changed)
	last := uint64(0)
	for _, commit := range []bool{false, true, true} {
		own, err := c.sql.Begin()
		require.NoError(t, err)
		_, err = own.Exec("INSERT INTO orders VALUES ('x')")
		require.NoError(t, err)
		for range 2 { // two calls in one transaction
			x, err := c.Joined(WithTx(t.Context(), own))
			require.NoError(t, err)
			v, err := enter(x, &rows.Plan{})
			require.NoError(t, err)
			id := add(t, v, rows.Row{Key: "k"})
			require.Greater(t, id, last)
			last = id
			v.Head().Rounds[0]++
			require.NoError(t, v.Save())
			require.NoError(t, x.Commit())
		}
		if !commit {
			require.NoError(t, own.Rollback())
		} else {
			require.NoError(t, own.Commit())
		}
		changed, err := c.Changed(t.Context())
		require.NoError(t, err)
		require.Equal(t, commit, changed)
	}
	in(t, c.db, func(v rows.Calls) {
		require.EqualValues(t, 4, v.Head().Rounds[0])
		require.Greater(t, add(t, v, rows.Row{}), last)
	})
	require.Equal(t, 5, total(t, c.db))
	orders := 0
	require.NoError(t, c.sql.QueryRow("SELECT count(*) FROM orders").Scan(&orders))
	require.Equal(t, 2, orders)
}

// TestJoinedRollback shows that the caller ends the transaction.
func TestJoinedRollback(t *testing.T) {
	c := openCallers(t, file(t), "immediate")
	makeQueue(t, c.db)
	own, err := c.sql.Begin()
	require.NoError(t, err)
	_, err = own.Exec("CREATE TABLE orders (name)")
	require.NoError(t, err)
	x, err := c.Joined(WithTx(t.Context(), own))
	require.NoError(t, err)
	x.Rollback()
	require.NoError(t, own.Commit())
	_, err = c.sql.Exec("INSERT INTO orders VALUES ('x')")
	require.NoError(t, err)
}

// TestJoinedDeferred joins a transaction without the lock, before others write and too late.
func TestJoinedDeferred(t *testing.T) {
	c := openCallers(t, file(t), "deferred")
	makeQueue(t, c.db)
	own, err := c.sql.Begin()
	require.NoError(t, err)
	x, err := c.Joined(WithTx(t.Context(), own))
	require.NoError(t, err)
	c.options.busyTimeout = 1
	_, err = c.db.Begin(t.Context())
	require.ErrorContains(t, err, "locked") // so it has the lock now
	require.NoError(t, x.Commit())
	require.NoError(t, own.Commit())

	own, err = c.sql.Begin()
	require.NoError(t, err)
	n := 0
	require.NoError(t, own.QueryRow("SELECT count(*) FROM fairq_tasks").Scan(&n))
	in(t, c.db, func(v rows.Calls) { add(t, v, rows.Row{}) })
	_, err = c.Joined(WithTx(t.Context(), own))
	require.ErrorContains(t, err, "sqlite: "+c.path+": lock for writing: ")
	require.True(t, again(c, err))
	require.NoError(t, own.Rollback())
}

func TestJoinedErrors(t *testing.T) {
	c := openCallers(t, file(t), "immediate")
	require.Nil(t, c.Own(t.Context()))
	own, err := c.sql.Begin()
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.Joined(WithTx(ctx, own))
	require.ErrorIs(t, err, context.Canceled)
	x, err := c.Joined(WithTx(t.Context(), own))
	require.NoError(t, err)
	require.NoError(t, own.Rollback())
	_, err = x.Queue("q", nil)
	require.ErrorIs(t, err, sql.ErrTxDone)
	require.ErrorContains(t, err, "sqlite: "+c.path+": find a queue: ")
	_, err = c.Joined(WithTx(t.Context(), own))
	require.ErrorIs(t, err, sql.ErrTxDone)

	own, err = c.sql.Begin()
	require.NoError(t, err)
	closed, err := openDB(context.Background(), file(t), options{})
	require.NoError(t, err)
	require.NoError(t, closed.close())
	_, err = closed.Joined(WithTx(t.Context(), own))
	require.ErrorIs(t, err, errClosed)
	require.NoError(t, own.Rollback())
}

// A transaction of another file is refused, even if that has queues of the same numbers; but not
// if the file is attached.
func TestJoinedElsewhere(t *testing.T) {
	ctx, path := t.Context(), file(t)
	s, err := Open(ctx, path, nil)
	require.NoError(t, err)
	defer s.Close()
	q, err := task.Open[int](ctx, s, "q", nil)
	require.NoError(t, err)
	put := func(ctx context.Context, _ *sql.Tx) error {
		_, err := q.Put(ctx, "a", 1, task.PutOptions{})
		return err
	}
	elsewhere := openCallers(t, file(t), "deferred")
	makeQueue(t, elsewhere.db)
	refuses := func() {
		t.Helper()
		own, err := elsewhere.sql.Begin()
		require.NoError(t, err)
		err = put(WithTx(ctx, own), nil)
		require.NoError(t, own.Rollback())
		for _, err := range []error{err, s.InTx(ctx, elsewhere.sql, put)} {
			require.ErrorIs(t, err, task.ErrInvalid)
			require.ErrorContains(t, err, path)
			require.ErrorContains(t, err, elsewhere.path)
		}
	}
	refuses()
	require.Zero(t, total(t, elsewhere.db))
	_, err = elsewhere.sql.Exec("DROP TABLE fairq_meta")
	require.NoError(t, err)
	refuses()
	dsn, err := dataSource(file(t))
	require.NoError(t, err)
	attaches, err := sql.Open("sqlite", dsn)
	require.NoError(t, err)
	defer attaches.Close()
	attaches.SetMaxOpenConns(1)
	_, err = attaches.Exec("ATTACH ? AS tasks", path)
	require.NoError(t, err)
	require.NoError(t, s.InTx(ctx, attaches, put))
	prefixed, err := openDB(ctx, path, options{prefix: "other_"})
	require.NoError(t, err)
	require.NoError(t, prefixed.conn.script("DROP TABLE other_meta"))
	require.ErrorContains(t, prefixed.inTx(ctx, openCallers(t, path, "deferred").sql, nil),
		"is Options.Prefix right?")
	require.NoError(t, prefixed.close())
	stats, err := q.Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, stats.Ready)
	require.NoError(t, q.Close(ctx))
}

// Transactions of the caller's own and of the store run at the same time, under the race detector.
func TestJoinedMeanwhile(t *testing.T) {
	path := file(t)
	s, err := Open(t.Context(), path, nil)
	require.NoError(t, err)
	defer s.Close()
	q, err := task.Open[int](t.Context(), s, "q", nil)
	require.NoError(t, err)
	c := openCallers(t, path, "immediate")
	const n = 50
	var group sync.WaitGroup
	group.Go(func() {
		for i := range n {
			own, err := c.sql.BeginTx(t.Context(), nil)
			if err == nil {
				_, err = q.Put(WithTx(t.Context(), own), "a", i, task.PutOptions{})
			}
			if err == nil {
				err = own.Commit()
			}
			assert.NoError(t, err)
		}
	})
	for range n {
		taken, err := q.Take(t.Context())
		require.NoError(t, err)
		require.NoError(t, taken.Ack(t.Context()))
	}
	group.Wait()
	require.NoError(t, q.Close(t.Context()))
}

// A transaction that waits for its turn gets it, however many others want to write.
func TestInTx(t *testing.T) {
	path := file(t)
	s, err := Open(t.Context(), path, &Options{BusyTimeout: 20 * time.Second})
	require.NoError(t, err)
	defer s.Close()
	q, err := task.Open[int](t.Context(), s, "q", nil)
	require.NoError(t, err)
	db := openCallers(t, path, "deferred").sql
	_, err = db.Exec("CREATE TABLE orders (name)")
	require.NoError(t, err)
	full, err := task.Open(t.Context(), s, "full", &task.Options[int]{Capacity: 1})
	require.NoError(t, err)
	_, err = full.Put(t.Context(), "a", 0, task.PutOptions{})
	require.NoError(t, err)

	stop, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	var puts atomic.Int64
	for range 8 {
		group.Go(func() {
			for stop.Err() == nil {
				if _, err := q.Put(t.Context(), "b", 0, task.PutOptions{}); assert.NoError(t, err) {
					puts.Add(1)
				}
			}
		})
	}
	const n = 60
	boom := errors.New("boom")
	begun := time.Now()
	for i := range n {
		f := func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES (?)", i)
			require.NoError(t, err)
			_, err = q.Put(ctx, "a", i, task.PutOptions{})
			require.NoError(t, err)
			_, err = full.PutWait(ctx, "a", i, task.PutOptions{})
			require.ErrorIs(t, err, task.ErrFull)
			switch i % 3 {
			case 1:
				return boom
			case 2:
				panic(boom)
			}
			return nil
		}
		switch i % 3 {
		case 0:
			require.NoError(t, s.InTx(t.Context(), db, f))
		case 1:
			require.Equal(t, boom, s.InTx(t.Context(), db, f))
		case 2:
			require.PanicsWithValue(t, boom, func() { _ = s.InTx(t.Context(), db, f) })
		}
	}
	t.Logf("%d transactions in %v, and %d others", n, time.Since(begun), puts.Load())
	require.Positive(t, puts.Load())
	cancel()
	group.Wait()
	var orders int
	require.NoError(t, db.QueryRow("SELECT count(*) FROM orders").Scan(&orders))
	stats, err := q.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, [2]int{n / 3, int(puts.Load()) + n/3}, [2]int{orders, stats.Ready})

	// A call that is not part of it, and waits for it, gets an error, and so does a transaction
	// that cannot be joined.
	require.NoError(t, errors.Join(full.Close(t.Context()), q.Close(t.Context()), s.Close()))
	s, err = Open(t.Context(), path, &Options{BusyTimeout: 10 * time.Millisecond})
	require.NoError(t, err)
	defer s.Close()
	q, err = task.Open[int](t.Context(), s, "q", nil)
	require.NoError(t, err)
	require.NoError(t, s.InTx(t.Context(), db, func(ctx context.Context, _ *sql.Tx) error {
		_, err := q.Stats(t.Context())
		require.ErrorContains(t, err,
			`task: Stats, queue "q": sqlite: `+s.db.path+
				": begin: another transaction of this process has not ended for 10ms")
		_, err = s.History(ctx, "q", 0, 1)
		require.ErrorIs(t, err, task.ErrInvalid)
		return nil
	}))
	_, err = q.Put(WithTx(t.Context(), nil), "a", 1, task.PutOptions{})
	require.ErrorIs(t, err, task.ErrInvalid)
	own, err := db.Begin() // which has no lock yet
	require.NoError(t, err)
	_, err = own.Exec("DELETE FROM orders")
	require.NoError(t, err)
	other := openCallers(t, path, "deferred").sql
	other.SetMaxOpenConns(1)
	_, err = other.Exec("PRAGMA busy_timeout = 0")
	require.NoError(t, err)
	// The second, if a transaction in the background is waiting for the lock just then.
	require.Regexp(t,
		"another process has the lock|another transaction of this process has not ended",
		fmt.Sprint(s.InTx(t.Context(), other, nil)))
	ended, stopped := context.WithCancel(t.Context())
	stopped()
	require.ErrorIs(t, s.InTx(ended, db, nil), context.Canceled)
	require.NoError(t, own.Rollback())
	require.NoError(t, q.Close(t.Context()))
}
