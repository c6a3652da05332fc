package rows_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/store/internal/rows/rowstest"
	"github.com/fairq/fairq/task"
)

// poolOf runs a test of a pool with one worker. Another process has its queue open too.
func poolOf(
	t *testing.T, handler pool.Handler[*task.Task[string]],
	test func(db *rowstest.DB, q, other queue, begin func() *pool.Pool[string]),
) {
	synctest.Test(t, func(t *testing.T) {
		db := rowstest.NewDB(time.Now)
		q, other := openQueue(t, open(db), task.Options[string]{}),
			openQueue(t, open(db.Reopen()), task.Options[string]{})
		test(db, q, other, func() *pool.Pool[string] {
			return pool.New(q.Queue, handler, &pool.Options[string]{Workers: 1})
		})
	})
}

// A pool that is shut down while the database is away hands back its tasks at the next Shutdown.
func TestPoolIsShutDownAgain(t *testing.T) {
	var away atomic.Bool
	done := 0
	handler := func(context.Context, *task.Task[string]) error {
		away.Store(true)
		done++
		return nil
	}
	poolOf(t, handler, func(db *rowstest.DB, q, other queue, begin func() *pool.Pool[string]) {
		q.put("a1 a2")
		db.Fail(func(string) error {
			if away.Load() {
				return errBroken
			}
			return nil
		})
		p := begin()
		time.Sleep(time.Second)
		soon, cancel := context.WithTimeout(q.Context(), 3*time.Second)
		defer cancel()
		require.ErrorIs(q, p.Shutdown(soon), errBroken)
		away.Store(false)
		require.NoError(q, p.Shutdown(q.Context()))
		require.Len(q, other.names(), 2-done) // a2 may have been taken ahead
	})
}

// Wait returns even if another process did the last task.
func TestPoolWaitsForOthers(t *testing.T) {
	handler := func(context.Context, *task.Task[string]) error { return nil }
	poolOf(t, handler, func(_ *rowstest.DB, q, other queue, begin func() *pool.Pool[string]) {
		q.put("a1")
		a1 := other.take("a1")
		p := begin()
		time.AfterFunc(5*time.Second, func() { _ = a1.Ack(context.Background()) })
		require.NoError(q, p.Wait(q.Context()))
		require.NoError(q, p.Shutdown(q.Context()))
	})
}

// A pool works even if the clock of its process is ahead of the database's by more than a lease.
func TestPoolWithAnotherClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := rowstest.NewDB(func() time.Time { return time.Now().Add(-2 * time.Minute) })
		q := openQueue(t, open(db), task.Options[string]{})
		_, err := q.Put(t.Context(), "a", "a1", task.PutOptions{TTR: time.Minute})
		require.NoError(t, err)
		var done atomic.Int32
		p := pool.New(q.Queue,
			func(context.Context, *task.Task[string]) error { done.Add(1); return nil }, nil)
		time.Sleep(10 * time.Second)
		require.EqualValues(t, 1, done.Load())
		require.NoError(t, p.Shutdown(t.Context()))
	})
}
