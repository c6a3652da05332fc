package rows_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/store/internal/rows/rowstest"
	"github.com/fairq/fairq/task"
)

// eachDB runs a test in a bubble: over a database whose transactions run one after the other, and
// over a database whose transactions overlap.
func eachDB(t *testing.T, test func(t *testing.T, db *rowstest.DB, q queue)) {
	inDB(t, "Exclusive", rowstest.DB{}, test)
	inDB(t, "Shared", rowstest.DB{Shared: true}, test)
}

// inDB runs a test over a database with the fields of like.
func inDB(
	t *testing.T, name string, like rowstest.DB, test func(t *testing.T, db *rowstest.DB, q queue),
) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			db := rowstest.NewDB(time.Now)
			db.Shared, db.KeepsParts = like.Shared, like.KeepsParts
			test(t, db, openQueue(t, open(db), task.Options[string]{}))
		})
	})
}

// names returns the payloads of all tasks, with their states.
func (q queue) names() (all []string) {
	list, err := q.List(q.Context(), task.ListOptions{Limit: 1000})
	require.NoError(q, err)
	for _, t := range list {
		all = append(all, t.Payload+" "+t.Info().State.String())
	}
	return all
}

// join runs calls in a transaction of the caller's own, and commits it.
func join(t *testing.T, db *rowstest.DB, calls func(ctx context.Context)) {
	ctx, tx, err := db.Join(t.Context())
	require.NoError(t, err)
	calls(ctx)
	require.NoError(t, tx.Commit())
}

// A call that finds after a write that it needs the queue for itself begins again. It has its
// effect once.
func TestJoinedOnce(t *testing.T) {
	eachDB(t, func(t *testing.T, db *rowstest.DB, q queue) {
		join(t, db, func(ctx context.Context) {
			_, err := q.PutBatch(ctx, []task.Entry[string]{
				{Key: "a", Payload: "plain"}, {Key: "a", Payload: "kind", Options: task.PutOptions{Kind: "x"}},
			})
			require.NoError(t, err)
			_, _, err = q.TryTake(ctx)
			require.EqualError(t, err, "task: the context of Take is one with a transaction; it must be "+
				"one without, because only calls that put, settle, change or show tasks can be part of one")
		})
		require.Equal(t, []string{"plain ready", "kind ready"}, q.names())
	})
	kick := func(t *testing.T, db *rowstest.DB, q queue) {
		q.put("a1 a2 a3")
		_, err := q.Put(t.Context(), "a", "a4", task.PutOptions{Group: "g"})
		require.NoError(t, err)
		for _, i := range []int{0, 3, 1, 2} {
			list, err := q.List(t.Context(), task.ListOptions{})
			require.NoError(t, err)
			require.NoError(t, q.Bury(t.Context(), list[i].ID, nil))
		}
		join(t, db, func(ctx context.Context) {
			n, err := q.Kick(ctx, task.ListOptions{Limit: 2})
			require.NoError(t, err)
			require.Equal(t, 2, n)
		})
		require.Equal(t, []string{"a1 ready", "a2 buried", "a3 buried", "a4 held"}, q.names())
	}
	eachDB(t, kick)
	inDB(t, "SharedWithoutUndo", rowstest.DB{Shared: true, KeepsParts: true}, kick)
}

// A delayed task that was put in a transaction of the caller's becomes ready on time.
func TestJoinedDue(t *testing.T) {
	eachDB(t, func(t *testing.T, db *rowstest.DB, q queue) {
		time.Sleep(time.Hour + 7*time.Second + 123)
		join(t, db, func(ctx context.Context) {
			_, err := q.Put(ctx, "a", "late", task.PutOptions{Delay: 1500 * time.Millisecond})
			require.NoError(t, err)
		})
		begun := time.Now()
		taken, err := q.Take(t.Context())
		require.NoError(t, err)
		require.Equal(t, "late", taken.Payload)
		require.Equal(t, 1500*time.Millisecond, time.Since(begun))
	})
}

// So does a delayed task of another process that was closed before the delay was over.
func TestOthersDue(t *testing.T) {
	eachDB(t, func(t *testing.T, db *rowstest.DB, q queue) {
		time.Sleep(time.Hour + 10*time.Second)
		other := openQueue(t, open(db.Reopen()), task.Options[string]{})
		begun := time.Now()
		_, err := other.Put(t.Context(), "a", "late", task.PutOptions{Delay: 11 * time.Second})
		require.NoError(t, err)
		require.NoError(t, other.Close(t.Context()))
		taken, err := q.Take(t.Context())
		require.NoError(t, err)
		require.Equal(t, "late", taken.Payload)
		require.Equal(t, 11*time.Second, time.Since(begun))
	})
}

// A lease that an open transaction ends is not reported as lost, because the transaction may be
// rolled back.
func TestLeaseIsHeldUntilCommit(t *testing.T) {
	eachDB(t, func(t *testing.T, db *rowstest.DB, q queue) {
		if !db.Shared {
			return // no process can look while the transaction is open
		}
		other := openQueue(t, open(db.Reopen()), task.Options[string]{})
		q.put("a1")
		a := q.take("a1")
		held, cancel := a.Context(t.Context())
		defer cancel()
		ctx, tx, err := db.Join(t.Context())
		require.NoError(t, err)
		require.NoError(t, a.Ack(ctx))
		other.put("b1")
		time.Sleep(time.Minute) // the process looks often
		require.NoError(t, held.Err())
		tx.Rollback()
	})
}

// Calls in transactions of callers share no memory with calls that run at the same time; the race
// detector would find it.
func TestJoinedBesideOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := rowstest.NewDB(time.Now)
		db.Shared = true
		q := openQueue(t, open(db), task.Options[string]{})
		var all sync.WaitGroup
		all.Go(func() {
			for i := range 200 {
				var o task.PutOptions
				if i == 100 {
					o.Kind = "x" // which changes the settings
				}
				_, _ = q.Put(t.Context(), "a", "others", o) // the callers' transactions may block it
			}
		})
		for range 50 {
			ctx, tx, err := db.Join(t.Context())
			require.NoError(t, err)
			put := func() error { return second(q.Put(ctx, "a", "own", task.PutOptions{})) }
			first := func() error {
				a, err := q.List(ctx, task.ListOptions{})
				if err != nil || len(a) == 0 {
					return err
				}
				return q.Delete(ctx, a[0].ID)
			}
			if put() != nil || first() != nil || tx.Commit() != nil {
				tx.Rollback()
			}
		}
		all.Wait()
	})
}

// Two transactions put a task with the same unique key at the same time: in the second one Put
// returns ErrDuplicate, and the transaction can go on.
func TestJoinedUniqueKey(t *testing.T) {
	twoProcesses(t, func(t *testing.T, db *rowstest.DB, q, _ queue) {
		put := func(ctx context.Context, payload, uniqueKey string) error {
			return second(q.Put(ctx, "a", payload, task.PutOptions{UniqueKey: uniqueKey}))
		}
		one, first, err := db.Join(t.Context())
		require.NoError(t, err)
		require.NoError(t, put(one, "a1", "x"))
		two, rest, err := db.Join(t.Context())
		require.NoError(t, err)
		errs := make(chan error, 2)
		go func() {
			errs <- put(two, "a2", "x")
			errs <- put(two, "a3", "y")
		}()
		synctest.Wait()
		require.NoError(t, first.Commit())
		require.ErrorIs(t, <-errs, task.ErrDuplicate)
		require.NoError(t, <-errs)
		require.NoError(t, rest.Commit())
		require.Equal(t, []string{"a1 ready", "a3 ready"}, q.names())
	})
}

// A transaction of the caller's that has a queue for itself does not block the other queues of the
// process.
func TestOtherQueuesGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := rowstest.NewDB(time.Now)
		db.Shared = true
		s := open(db)
		q := openQueue(t, s, task.Options[string]{MaxInFlightPerKey: 1})
		other, err := task.Open[string](t.Context(), s, "other", nil)
		require.NoError(t, err)
		defer other.Close(t.Context())
		join(t, db, func(ctx context.Context) {
			require.NoError(t, second(q.Put(ctx, "a", "a1", task.PutOptions{})))
			go func() { _, _ = q.Put(t.Context(), "a", "a2", task.PutOptions{}) }()
			synctest.Wait()
			begun := time.Now()
			require.NoError(t, second(other.Put(t.Context(), "a", "a1", task.PutOptions{})))
			require.Zero(t, time.Since(begun))
		})
		synctest.Wait()
		require.Equal(t, []string{"a1 ready", "a2 ready"}, q.names())
	})
}

// A process does not count the changes of a transaction that its caller commits, and sends no
// events for them. But waiting calls find its tasks.
func TestCommittedByCaller(t *testing.T) {
	eachDB(t, func(t *testing.T, db *rowstest.DB, q queue) {
		q.put("a1")
		a := q.take("a1")
		was, events := a.Info(), map[task.EventType]bool{}
		go func() {
			for e := range q.Events(t.Context()) {
				events[e.Type] = true
			}
		}()
		synctest.Wait()
		join(t, db, func(ctx context.Context) {
			require.NoError(t, a.Ack(ctx))
			require.NoError(t, second(q.Put(ctx, "b", "b1", task.PutOptions{})))
		})
		require.Equal(t, was, a.Info())
		b, err := q.Take(t.Context())
		require.NoError(t, err)
		require.Equal(t, "b1", b.Payload)
		synctest.Wait()
		require.False(t, events[task.EventPut] || events[task.EventAck])
		s, err := q.Stats(t.Context())
		require.NoError(t, err)
		require.Equal(t, [3]uint64{1, 2, 0}, [3]uint64{s.Puts, s.Takes, s.Acks})
	})
}
