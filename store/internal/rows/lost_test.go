package rows_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/store/internal/rows/rowstest"
	"github.com/fairq/fairq/task"
)

// The tests of this file are about interleavings in which a task could be lost forever.

// twoProcesses runs a test in a bubble, with two processes that have a queue open over a database
// whose transactions run at the same time.
func twoProcesses(t *testing.T, test func(t *testing.T, db *rowstest.DB, q, other queue)) {
	synctest.Test(t, func(t *testing.T) {
		db := rowstest.NewDB(time.Now)
		db.Shared = true
		o := task.Options[string]{Grace: time.Second}
		in := func(db *rowstest.DB) *rows.Store {
			return rows.New(db, rows.Options{MaxPayload: 100, Poll: 100 * time.Millisecond})
		}
		test(t, db, openQueue(t, in(db), o), openQueue(t, in(db.Reopen()), o))
	})
}

// A consumer ends while a transaction of the caller's settles its task. The transaction is rolled
// back, and the task is handed back.
func TestConsumerEndsBeforeRollback(t *testing.T) {
	for name, end := range map[string]func(context.Context, *task.Consumer[string]) error{
		"Close": func(ctx context.Context, c *task.Consumer[string]) error { return c.Close(ctx) },
		"Disconnect": func(ctx context.Context, c *task.Consumer[string]) error {
			return c.Disconnect(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			twoProcesses(t, func(t *testing.T, db *rowstest.DB, q, other queue) {
				q.put("a1")
				c := q.NewConsumer(task.Filter{})
				got, err := c.Take(t.Context())
				require.NoError(t, err)
				ctx, tx, err := db.Join(t.Context())
				require.NoError(t, err)
				require.NoError(t, got.Ack(ctx))
				require.NoError(t, end(t.Context(), c))
				time.Sleep(time.Minute)
				tx.Rollback()
				begun := time.Now()
				again, err := other.Take(t.Context())
				require.NoError(t, err)
				require.Equal(t, "a1", again.Payload)
				require.Less(t, time.Since(begun), time.Second)
			})
		})
	}
}

// A consumer is resumed while a transaction that began before is still open.
func TestResumedBeforeRollback(t *testing.T) {
	twoProcesses(t, func(t *testing.T, db *rowstest.DB, q, other queue) {
		q.put("a1 a2 a3")
		c := q.NewConsumer(task.Filter{})
		held, err := c.TakeBatch(t.Context(), 3)
		require.NoError(t, err)
		ctx, tx, err := db.Join(t.Context())
		require.NoError(t, err)
		require.NoError(t, held[1].Ack(ctx))
		require.NoError(t, c.Disconnect(t.Context()))
		time.AfterFunc(100*time.Millisecond, tx.Rollback)
		_, resumed, err := other.ResumeConsumer(t.Context(), c.ID(), task.Filter{})
		require.NoError(t, err)
		require.Len(t, resumed, 3)
		for i, r := range resumed {
			require.Equal(t, held[i].Payload, r.Payload)
			require.NoError(t, r.Ack(t.Context()))
		}
	})
}

// A process comes back while another one is taking it for dead. It gets a new identity, so its
// later tasks are not handed back with the earlier ones.
func TestBackWhileTakenForDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := rowstest.NewDB(time.Now), &slow{gate: make(chan struct{}, 1)}
		one.Shared = true
		two.DB = one.Reopen()
		two.gate <- struct{}{}
		o := task.Options[string]{Grace: time.Second}
		a, b := openQueue(t, open(one), o),
			openQueue(t, rows.New(two, rows.Options{MaxPayload: 100, Poll: time.Second}), o)
		c := b.NewConsumer(task.Filter{})
		_, ok, err := c.TryTake(t.Context())
		require.NoError(t, err)
		require.False(t, ok)

		<-two.gate
		var deletes atomic.Bool
		commit := make(chan struct{})
		one.Fail(func(op string) error { // ends its consumers, but does not commit yet
			if deletes.Load() && op == "Commit" {
				<-commit
			}
			if op == "Consumers.Delete" {
				deletes.Store(true)
			}
			return nil
		})
		time.Sleep(1500 * time.Millisecond)
		require.True(t, deletes.Load())
		two.gate <- struct{}{} // the process is back
		time.Sleep(10 * time.Millisecond)
		deletes.Store(false)
		close(commit)
		b.put("b1")
		_, ok, err = c.TryTake(t.Context())
		require.NoError(t, err)
		require.True(t, ok)
		time.Sleep(time.Minute) // alive
		_, ok, err = a.TryTake(t.Context())
		require.NoError(t, err)
		require.False(t, ok)
		two.Kill()
		time.Sleep(2 * time.Second)
		a.take("b1")
	})
}

// After the database was away for longer than Grace, the first process that is back does not take
// the others for dead.
func TestAllWereAway(t *testing.T) {
	for _, first := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			var dbs []*slow
			var queues []queue
			for db := rowstest.NewDB(time.Now); len(dbs) < 2; db = db.Reopen() {
				s := &slow{db, make(chan struct{}, 1)}
				s.gate <- struct{}{}
				dbs = append(dbs, s)
				queues = append(queues,
					openQueue(t, rows.New(s, rows.Options{MaxPayload: 100, Poll: time.Second}),
						task.Options[string]{Grace: time.Second}))
			}
			queues[0].put("a1 a2")
			a1, a2 := queues[0].take("a1"), queues[1].take("a2")
			<-dbs[0].gate
			<-dbs[1].gate
			time.Sleep(time.Minute)
			dbs[first].gate <- struct{}{}
			time.Sleep(300 * time.Millisecond)
			dbs[1-first].gate <- struct{}{}
			time.Sleep(time.Minute)
			require.NoError(t, a1.Ack(t.Context()))
			require.NoError(t, a2.Ack(t.Context()))
		})
	}
}

// uncertainDB is a database whose Commit may take effect and yet return an error, as when the
// connection breaks.
type uncertainDB struct {
	*rowstest.DB
	breaks bool
}

type uncertainTx struct {
	rows.Tx
	db *uncertainDB
}

func (u *uncertainDB) Begin(ctx context.Context) (rows.Tx, error) {
	tx, err := u.DB.Begin(ctx)
	return uncertainTx{tx, u}, err
}

func (tx uncertainTx) Commit() error {
	err := tx.Tx.Commit()
	if tx.db.breaks {
		tx.db.breaks = false
		return errors.Join(err, errBroken)
	}
	return err
}

// A task that was taken in a transaction with an unknown outcome is handed back, because the
// caller has got an error.
func TestTakenWithUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &uncertainDB{DB: rowstest.NewDB(time.Now)}
		q := openQueue(t, rows.New(db, rows.Options{MaxPayload: 100, Poll: time.Second}),
			task.Options[string]{})
		q.put("a1 a2")
		q.putInto("member", task.Member)
		require.NoError(t, q.StartGroup(t.Context(), "g"))
		db.breaks = true
		_, err := q.TakeBatch(t.Context(), 3)
		require.ErrorIs(t, err, errBroken)
		begun := time.Now()
		for _, want := range []string{"a1", "a2", "member"} {
			got, err := q.Take(t.Context())
			require.NoError(t, err)
			require.Equal(t, want, got.Payload)
			require.Equal(t, 1, got.Attempts)
		}
		require.Zero(t, time.Since(begun))
	})
}

// repeatingDB is a handle that repeats the numbers which another process has lost by a rollback.
type repeatingDB struct {
	*rowstest.DB
	given *[]uint64
	again bool
}

type repeatingTx struct {
	rows.Tx
	db *repeatingDB
}

type repeatingView struct {
	rows.View
	db *repeatingDB
}

func (r *repeatingDB) Begin(ctx context.Context) (rows.Tx, error) {
	tx, err := r.DB.Begin(ctx)
	return repeatingTx{tx, r}, err
}

func (tx repeatingTx) Enter(queue uint64, plan *rows.Plan) (rows.View, error) {
	v, err := tx.Tx.Enter(queue, plan)
	if v == nil {
		return nil, err
	}
	return repeatingView{v, tx.db}, err
}

func (v repeatingView) Number() (n uint64, err error) {
	if given := v.db.given; v.db.again && len(*given) > 0 {
		n, *given = (*given)[0], (*given)[1:]
		return n, nil
	}
	n, err = v.View.Number()
	if !v.db.again {
		*v.db.given = append(*v.db.given, n)
	}
	return n, err
}

// A transaction with an unknown outcome was rolled back, and another process has the same task
// with the same number of the lease, and even of the consumer. It keeps the task.
func TestOtherTakesWithTheSameNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var given []uint64
		db := &repeatingDB{DB: rowstest.NewDB(time.Now), given: &given}
		o := task.Options[string]{Grace: time.Minute}
		in := func(db rows.DB) queue {
			return openQueue(t, rows.New(db, rows.Options{MaxPayload: 100, Poll: time.Second}), o)
		}
		q := in(db)
		other := in(&repeatingDB{DB: db.Reopen(), given: &given, again: true})
		q.put("a1")
		given = nil
		db.Fail(func(op string) error {
			if op == "Commit" || op == "Begin" && len(given) > 0 {
				return errBroken
			}
			return nil
		})
		_, err := q.Take(t.Context())
		require.ErrorIs(t, err, errBroken)
		require.Len(t, given, 2, "the consumer's, and the lease's")
		a1 := other.take("a1")
		require.Empty(t, given)
		db.Fail(nil)
		q.put("a2")
		time.Sleep(time.Second)
		require.NoError(t, a1.Ack(t.Context()))
	})
}

// A Truncate that fails half-way leaves no group in part.
func TestTruncateBrokenOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := rowstest.NewDB(time.Now)
		q := openQueue(t, open(db), task.Options[string]{})
		const n = 12_000
		for i := 0; i < n; i += 1000 {
			var batch []task.Entry[string]
			for j := range 1000 {
				b := task.Entry[string]{Key: "a", Payload: strconv.Itoa(i + j)}
				if (i+j)%(n/2) == 7 { // one of both is deleted first
					b.Options.Group = fmt.Sprint("group", (i+j)/(n/2))
				}
				batch = append(batch, b)
			}
			_, err := q.PutBatch(t.Context(), batch)
			require.NoError(t, err)
		}
		for i := range 2 {
			_, err := q.Put(t.Context(), "a", fmt.Sprint("end", i),
				task.PutOptions{Group: fmt.Sprint("group", i), Role: task.AtEnd})
			require.NoError(t, err)
		}
		commits := 0
		db.Fail(func(op string) error {
			if op == "Commit" {
				if commits++; commits == 2 {
					return errBroken
				}
			}
			return nil
		})
		deleted, err := q.Truncate(t.Context())
		require.ErrorIs(t, err, errBroken)
		db.Fail(nil)
		stats, err := q.Stats(t.Context())
		require.NoError(t, err)
		require.Equal(t, n+2-deleted, stats.Ready+stats.Held)
		require.Zero(t, stats.Held, "both groups are gone")
		_, err = q.Truncate(t.Context())
		require.NoError(t, err)
		require.Empty(t, q.names())
	})
}

// A process looks again and again at a due task that another one has locked, but not all the time.
func TestDueButLocked(t *testing.T) {
	twoProcesses(t, func(t *testing.T, db *rowstest.DB, q, _ queue) {
		_, err := q.Put(t.Context(), "a", "a1", task.PutOptions{TTR: time.Second})
		require.NoError(t, err)
		a1 := q.take("a1")
		ctx, tx, err := db.Join(t.Context())
		require.NoError(t, err)
		require.NoError(t, a1.Ack(ctx))
		time.Sleep(time.Second)
		var begun atomic.Int32
		db.Fail(func(op string) error {
			if op == "Begin" {
				begun.Add(1)
			}
			return nil
		})
		time.Sleep(10 * time.Second)
		require.Less(t, begun.Load(), int32(200))
		tx.Rollback()
		at := time.Now()
		_, err = q.Take(t.Context())
		require.NoError(t, err)
		require.Less(t, time.Since(at), time.Second)
	})
}

// astray is a database whose Joined returns transactions of another database.
type astray struct {
	*rowstest.DB
	to *rowstest.DB
}

func (a *astray) Joined(ctx context.Context) (rows.Tx, error) { return a.to.Joined(ctx) }

// A call in a transaction of the caller's finds no such queue, because it was dropped, or because
// the transaction is one of another database. Waiting calls still learn of changes.
func TestJoinedDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &astray{DB: rowstest.NewDB(time.Now), to: rowstest.NewDB(time.Now)}
		q := openQueue(t, rows.New(db, rows.Options{MaxPayload: 100, Poll: time.Second}),
			task.Options[string]{Grace: time.Minute})
		other := openQueue(t, open(db.Reopen()), task.Options[string]{Grace: time.Minute})
		put := func() {
			ctx, tx, err := db.to.Join(t.Context())
			require.NoError(t, err)
			defer tx.Rollback()
			_, err = q.Put(ctx, "a", "a1", task.PutOptions{})
			require.ErrorIs(t, err, task.ErrDropped)
		}
		took := make(chan error)
		take := func() {
			_, err := q.Take(t.Context())
			took <- err
		}
		go take()
		synctest.Wait()
		put()
		other.put("a2")
		begun := time.Now()
		require.NoError(t, <-took)
		go take()
		synctest.Wait()
		require.NoError(t, other.Drop(t.Context()))
		db.to = db.DB
		put()
		require.ErrorIs(t, <-took, task.ErrDropped)
		require.LessOrEqual(t, time.Since(begun), 2*time.Second)
	})
}

// Leases that transactions of callers end are forgotten in time, even if no call waits.
func TestHeldIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := rowstest.NewDB(time.Now)
		s := open(db)
		q := openQueue(t, s, task.Options[string]{})
		for range 30 {
			q.put(strings.Repeat("a ", 100))
			all, err := q.TakeBatch(t.Context(), 100)
			require.NoError(t, err)
			join(t, db, func(ctx context.Context) {
				for _, one := range all {
					require.NoError(t, one.Ack(ctx))
				}
			})
			time.Sleep(time.Second)
		}
		require.Less(t, s.Leases(), 2000)
	})
}

// A delay ends on time, even if the process woke up shortly before and found nothing due.
func TestDueSoon(t *testing.T) {
	everywhere(t, task.Options[string]{}, func(q queue) {
		_, err := q.Put(q.Context(), "a", "a1", task.PutOptions{Delay: 1050 * time.Millisecond})
		require.NoError(q, err)
		id, err := q.Put(q.Context(), "a", "a2", task.PutOptions{Delay: 990 * time.Millisecond})
		require.NoError(q, err)
		require.NoError(q, q.Delete(q.Context(), id)) // so nothing is due when the process wakes up
		begun := time.Now()
		_, err = q.Take(q.Context())
		require.NoError(q, err)
		require.Equal(q, 1050*time.Millisecond, time.Since(begun))
	})
}

// A consumer is closed while its Take waits for the same transaction.
func TestClosedWhileTaking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &slow{rowstest.NewDB(time.Now), make(chan struct{}, 1)}
		db.gate <- struct{}{}
		q := openQueue(t, rows.New(db, rows.Options{MaxPayload: 100, Poll: time.Second}),
			task.Options[string]{})
		other := openQueue(t, open(db.Reopen()), task.Options[string]{})
		c := q.NewConsumer(task.Filter{})
		require.NoError(t, third(c.TryTake(t.Context()))) // the store knows the consumer now
		q.put("a1")
		<-db.gate
		go func() { _, _ = q.Stats(t.Context()) }() // it leads
		synctest.Wait()
		took, closed := make(chan error, 1), make(chan error, 1)
		go func() {
			_, _, err := c.TryTake(t.Context())
			took <- err
		}()
		synctest.Wait()
		go func() { closed <- c.Close(t.Context()) }()
		synctest.Wait()
		db.gate <- struct{}{}
		require.ErrorIs(t, <-took, task.ErrClosed)
		require.NoError(t, <-closed)
		require.Equal(t, []string{"a1 ready"}, other.names())
	})
}

// A process is slow to commit a take. It is not taken for dead, because the others do not see its
// lease yet.
func TestSlowToCommit(t *testing.T) {
	for name, end := range map[string]func(context.Context, *task.Consumer[string], *rowstest.DB){
		"Close": func(ctx context.Context, c *task.Consumer[string], _ *rowstest.DB) {
			_ = c.Close(ctx)
		},
		"Kill": func(_ context.Context, _ *task.Consumer[string], db *rowstest.DB) { db.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				one := rowstest.NewDB(time.Now)
				one.Shared = true
				two := one.Reopen()
				o := task.Options[string]{Grace: time.Second}
				a, b := openQueue(t, open(one), o), openQueue(t, open(two), o)
				c := b.NewConsumer(task.Filter{})
				require.NoError(t, third(c.TryTake(t.Context()))) // the store knows the consumer now
				a.put("a1")
				var taken atomic.Bool
				two.Fail(func(op string) error {
					if op == "Tasks.Put" {
						taken.Store(true)
					}
					if op == "Commit" && taken.Swap(false) {
						time.Sleep(3 * time.Second)
					}
					return nil
				})
				_, ok, err := c.TryTake(t.Context())
				require.NoError(t, err)
				require.True(t, ok)
				time.Sleep(5 * time.Second)
				end(t.Context(), c, two)
				time.Sleep(10 * time.Second)
				require.Equal(t, []string{"a1 ready"}, a.names())
			})
		})
	}
}

// While a transaction of the caller's locks a due row, the other processes look for it now and
// then, not all the time.
func TestLockedWhileDue(t *testing.T) {
	unique := task.PutOptions{UniqueKey: "x"}
	synctest.Test(t, func(t *testing.T) {
		db := rowstest.NewDB(time.Now)
		db.Shared = true
		q := openQueue(t, rows.New(db, rows.Options{MaxPayload: 100, Poll: time.Second}),
			task.Options[string]{})
		put := func() *task.Task[string] {
			_, err := q.Put(t.Context(), "a", "a1", unique)
			require.NoError(t, err)
			got, err := q.Take(t.Context())
			require.NoError(t, err)
			return got
		}
		require.NoError(t, put().Ack(t.Context()))
		got := put()
		ctx, tx, err := db.Join(t.Context())
		require.NoError(t, err)
		require.NoError(t, got.Ack(ctx)) // which locks the outcome of the first one
		defer tx.Rollback()
		var begun atomic.Int32
		db.Fail(func(op string) error {
			if op == "Begin" && begun.Add(1) > 5000 {
				return errors.New("too many") // so that time can pass
			}
			return nil
		})
		time.Sleep(6 * time.Minute)
		db.Fail(nil)
		require.Less(t, begun.Load(), int32(4000), "transactions in these minutes")
	})
}
