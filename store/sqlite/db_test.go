package sqlite

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/store/internal/columns"
	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/task"
)

// in calls f in a transaction, with a view of queue 1.
func in(t testing.TB, d *db, f func(v rows.Calls)) {
	t.Helper()
	x, err := d.Begin(context.Background())
	require.NoError(t, err)
	defer x.Rollback() // or the end of a test that fails would wait
	v, err := enter(x, &rows.Plan{Exclusive: true})
	require.NoError(t, err)
	f(v)
	require.NoError(t, x.Commit())
}

// enter enters queue 1.
func enter(x rows.Tx, plan *rows.Plan) (v rows.Calls, err error) {
	v.View, err = x.Enter(1, plan)
	return v, err
}

func again(d rows.DB, err error) bool {
	_, again := d.Again(err)
	return again
}

// makeQueue makes queue 1.
func makeQueue(t testing.TB, d *db) {
	t.Helper()
	x, err := d.Begin(context.Background())
	require.NoError(t, err)
	q, err := x.Queue("bench", []byte("settings"))
	require.NoError(t, err)
	require.EqualValues(t, 1, q.ID)
	require.NoError(t, x.Commit())
}

// add inserts a row, and returns its id.
func add(t testing.TB, v rows.Calls, r rows.Row) uint64 {
	t.Helper()
	id, err := v.Number()
	require.NoError(t, err)
	r.ID, r.State = id, driver.Ready
	require.NoError(t, v.Put(&r))
	return id
}

func total(t testing.TB, d *db) (n int) {
	t.Helper()
	in(t, d, func(v rows.Calls) {
		counts, err := v.Counts()
		require.NoError(t, err)
		all, err := v.List(driver.ListOptions{Limit: 1 << 20})
		require.NoError(t, err)
		require.Len(t, all, counts[0])
		n = counts[0]
	})
	return n
}

func TestClosed(t *testing.T) {
	d, err := openDB(context.Background(), file(t), options{})
	require.NoError(t, err)
	x, err := d.Begin(context.Background())
	require.NoError(t, err)
	closed := make(chan error)
	go func() { closed <- d.close() }()
	_, err = x.Queue("q", []byte("{}"))
	require.NoError(t, err)
	require.NoError(t, x.Commit())
	require.NoError(t, <-closed)

	require.ErrorContains(t, x.Commit(), "is over")
	x.Rollback()
	_, err = d.Begin(context.Background())
	require.ErrorIs(t, err, errClosed)
	_, err = d.Changed(context.Background())
	require.ErrorIs(t, err, errClosed)
	require.ErrorIs(t, d.close(), errClosed)
	_, err = os.Stat(d.path + "-wal") // the last connection removes it
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestLocked waits for a lock that another handle has.
func TestLocked(t *testing.T) {
	other := openHandle(t, file(t), options{})
	d := openHandle(t, other.path, options{busyTimeout: 5 * time.Millisecond})
	x, err := other.Begin(context.Background())
	require.NoError(t, err)

	_, err = d.Begin(context.Background())
	require.ErrorContains(t, err, "sqlite: "+d.path+": begin: database is locked")
	require.False(t, again(d, err))

	d.options.busyTimeout = time.Hour
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	_, err = d.Begin(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	begun := make(chan error)
	go func() {
		y, err := d.Begin(context.Background())
		if err == nil {
			y.Rollback()
		}
		begun <- err
	}()
	require.NoError(t, x.Commit())
	require.NoError(t, <-begun)
}

// TestOwnCommits shows that Changed ignores our own commits.
func TestOwnCommits(t *testing.T) {
	d := openHandle(t, file(t), options{})
	makeQueue(t, d.db)
	for i := range 100 {
		in(t, d.db, func(v rows.Calls) { add(t, v, rows.Row{}) })
		if i%10 == 0 {
			_, err := d.conn.pragma("wal_checkpoint(truncate)")
			require.NoError(t, err)
		}
		changed, err := d.Changed(context.Background())
		require.NoError(t, err)
		require.False(t, changed)
	}
	x, err := d.Begin(context.Background())
	require.NoError(t, err)
	changed, err := d.Changed(context.Background()) // it does not wait
	require.NoError(t, err)
	require.False(t, changed)
	x.Rollback()
}

// faulty is a connection on which some statements fail.
type faulty struct {
	*conn
	err map[*statement]error
}

func (f *faulty) run(s *statement, args []sqldriver.NamedValue) (int64, error) {
	if err := f.err[s]; err != nil {
		return 0, err
	}
	return f.conn.run(s, args)
}

// coded is an error of SQLite.
type coded int

func (c coded) Error() string { return fmt.Sprintf("error %d", int(c)) }
func (c coded) Code() int     { return int(c) }

func TestFaults(t *testing.T) {
	const ioError = 10
	for _, c := range []struct {
		name string
		err  map[*statement]error
		lost bool // the connection
	}{
		{"statement", map[*statement]error{insertPlain: coded(ioError)}, false},
		{"commit", map[*statement]error{commitStatement: coded(ioError)}, false},
		{"rollback", map[*statement]error{
			commitStatement:   coded(ioError),
			rollbackStatement: coded(ioError),
		}, true},
		{
			"rolled back already",
			map[*statement]error{insertPlain: coded(ioError), rollbackStatement: coded(resultError)},
			false,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := openHandle(t, file(t), options{}).db
			makeQueue(t, d)
			in(t, d, func(v rows.Calls) { add(t, v, rows.Row{}) })
			sound := d.conn
			d.session.backend = &faulty{d.conn, c.err}
			x, err := d.Begin(context.Background())
			require.NoError(t, err)
			v, err := enter(x, &rows.Plan{})
			require.NoError(t, err)
			id, err := v.Number()
			require.NoError(t, err)
			if err = v.Put(&rows.Row{ID: id, State: driver.Ready}); err == nil {
				err = x.Commit()
			}
			require.Equal(t, ioError, code(err))
			require.ErrorContains(t, err, "sqlite: ")
			require.False(t, again(d, err))
			x.Rollback()
			if c.err[rollbackStatement] != nil && !c.lost {
				require.NoError(t, sound.script("ROLLBACK"))
			}
			require.Equal(t, c.lost, d.conn == nil)
			if !c.lost {
				d.session.backend = sound
			} else {
				changed, err := d.Changed(context.Background())
				require.NoError(t, err)
				require.True(t, changed)
			}
			require.Equal(t, 1, total(t, d))
			in(t, d, func(v rows.Calls) { require.Greater(t, add(t, v, rows.Row{}), id) })
			require.Equal(t, 2, total(t, d))
		})
	}
}

func TestLostForGood(t *testing.T) {
	d, err := openDB(context.Background(), file(t), options{})
	require.NoError(t, err)
	d.session.backend = &faulty{d.conn, map[*statement]error{rollbackStatement: coded(10)}}
	x, err := d.Begin(context.Background())
	require.NoError(t, err)
	x.Rollback()
	path := d.path
	d.path = filepath.Join(path, "gone")
	_, err = d.Begin(context.Background())
	require.ErrorContains(t, err, ": begin: the file of the database was removed")
	d.path = path
	x, err = d.Begin(context.Background())
	require.NoError(t, err)
	x.Rollback()
	d.session.backend = &faulty{d.conn, map[*statement]error{rollbackStatement: coded(10)}}
	x, err = d.Begin(context.Background())
	require.NoError(t, err)
	x.Rollback()
	require.NoError(t, d.close()) // without a connection
}

func TestAgain(t *testing.T) {
	d := openHandle(t, file(t), options{})
	require.True(t, again(d, fmt.Errorf("sqlite: insert: %w", coded(resultSnapshot))))
	require.False(t, again(d, coded(resultBusy)))
	require.False(t, again(d, errors.New("no")))
}

// TestNumbersEnd uses up the numbers of a queue, and the queues.
func TestNumbersEnd(t *testing.T) {
	d := openHandle(t, file(t), options{})
	makeQueue(t, d.db)
	require.NoError(t, d.conn.script(fmt.Sprintf("UPDATE fairq_queues SET number = %d", maxID-1)))
	in(t, d.db, func(v rows.Calls) {
		id := add(t, v, rows.Row{Key: "last"})
		require.Equal(t, maxID, id)
		all, err := v.List(driver.ListOptions{})
		require.NoError(t, err)
		require.Equal(t, "last", all[0].Key)
		_, err = v.Number()
		require.ErrorContains(t, err, "has used all")
	})
	require.NoError(t,
		d.conn.script(fmt.Sprintf("UPDATE sqlite_sequence SET seq = %d WHERE name = 'fairq_queues'",
			maxQueue-1)))
	x, err := d.Begin(context.Background())
	require.NoError(t, err)
	defer x.Rollback()
	q, err := x.Queue("last", []byte("{}"))
	require.NoError(t, err)
	w, err := x.Enter(q.ID, &rows.Plan{})
	require.NoError(t, err)
	v := rows.Calls{View: w}
	id := add(t, v, rows.Row{})
	r, err := v.Get(id, false)
	require.NoError(t, err)
	require.Equal(t, id, r.ID)
	_, err = x.Queue("one more", []byte("{}"))
	require.ErrorContains(t, err, "that was ever made")
}

// TestForeignValues reads values that the store never writes.
func TestForeignValues(t *testing.T) {
	d := openHandle(t, file(t), options{})
	makeQueue(t, d.db)
	require.NoError(t, d.conn.script("UPDATE fairq_queues SET number = 'x'"))
	x, err := d.Begin(context.Background())
	require.NoError(t, err)
	defer x.Rollback()
	_, err = enter(x, &rows.Plan{})
	require.ErrorContains(t, err, ": enter: column 2 has a value of type string, not int64")
}

// While one process deletes or kicks many tasks, another one gets the lock between two pages.
func TestManyLetOthersIn(t *testing.T) {
	path := file(t)
	open := func() *task.Queue[int] {
		s, err := Open(t.Context(), path, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		q, err := task.Open[int](t.Context(), s, "q", nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, q.Close(context.Background())) })
		return q
	}
	one, other := open(), open()
	for range 10 {
		_, err := one.PutBatch(t.Context(), slices.Repeat([]task.Entry[int]{{Key: "a"}}, 1000))
		require.NoError(t, err)
	}
	var all sync.WaitGroup
	var deleted int
	var err error
	began, ended := make(chan bool), atomic.Bool{}
	all.Go(func() {
		close(began)
		deleted, err = one.DeleteSome(t.Context(), task.ListOptions{State: task.Ready})
		ended.Store(true)
	})
	<-began
	puts := 0
	for ; !ended.Load(); puts++ {
		_, err := other.Put(t.Context(), "b", 0, task.PutOptions{Delay: time.Hour})
		require.NoError(t, err)
	}
	all.Wait()
	require.Greater(t, puts, 2, "one before the deletion, one that waits for its end")
	require.NoError(t, err)
	require.Equal(t, 10_000, deleted)
}

// TestRareValues puts new tasks with one rare value each, an error without code and message too.
func TestRareValues(t *testing.T) {
	d := openHandle(t, file(t), options{}).db
	makeQueue(t, d)
	in(t, d, func(v rows.Calls) {
		for _, i := range columns.Rare {
			put, name, text := columns.Tasks.Cells(), columns.Tasks.Columns[i].Name, "x"
			if name == "err_message" {
				text = ""
			}
			if !columns.SetInt(put.Fields[i], 1) {
				_, err := columns.SetBytes(put.Fields[i], text, false)
				require.NoError(t, err)
			}
			found, err := v.Get(add(t, v, put.Row), true)
			require.NoError(t, err)
			is := columns.Tasks.CellsOf(found)
			require.Equal(t, columns.Value(put.Fields[i]), columns.Value(is.Fields[i]), name)
			require.Equal(t, put.Row.Err, found.Err, name)
		}
	})
}
