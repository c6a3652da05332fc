package rows_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/store/internal/rows/rowstest"
	"github.com/fairq/fairq/task"
)

// seldom returns a store that practically never polls.
func seldom(db *rowstest.DB) *rows.Store {
	return rows.New(db, rows.Options{MaxPayload: 100, Poll: 100 * time.Hour})
}

// A task that one process has read in an open transaction can be taken by another one.
func TestLookingLocksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := rowstest.NewDB(time.Now)
		db.Shared = true
		q, other := openQueue(t, seldom(db), task.Options[string]{}),
			openQueue(t, seldom(db.Reopen()), task.Options[string]{})
		id, err := q.Put(t.Context(), "a", "a1", task.PutOptions{UniqueKey: "x"})
		require.NoError(t, err)
		join(t, db, func(ctx context.Context) {
			one, err := q.Peek(ctx, id)
			require.NoError(t, err)
			require.Equal(t, "a1", one.Payload)
			_, err = q.Put(ctx, "a", "a2", task.PutOptions{UniqueKey: "x"})
			require.ErrorIs(t, err, task.ErrDuplicate)
			_, err = q.List(ctx, task.ListOptions{})
			require.NoError(t, err)
			require.NoError(t, other.take("a1").Ack(t.Context()))
		})
		require.Empty(t, q.names())
	})
}

// A process passes over a task that another one has locked. It finds the task soon after the lock
// is gone.
func TestPassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := rowstest.NewDB(time.Now)
		db.Shared = true
		q, other := openQueue(t, seldom(db), task.Options[string]{}),
			openQueue(t, seldom(db.Reopen()), task.Options[string]{})
		q.put("a1")
		ctx, tx, err := db.Join(t.Context())
		require.NoError(t, err)
		require.NoError(t, q.Delete(ctx, q.find("a1").ID))
		taken := make(chan string, 1)
		go func() {
			if a1, err := other.Take(t.Context()); err == nil {
				taken <- a1.Payload
			}
		}()
		time.Sleep(10 * time.Second)
		require.Empty(t, taken)
		tx.Rollback()
		begun := time.Now()
		require.Equal(t, "a1", <-taken)
		require.Less(t, time.Since(begun), time.Second)
	})
}

// hanging is a database whose next commit waits for the end of its context.
type hanging struct {
	*rowstest.DB
	hangs atomic.Bool // the next one
	after bool        // it hangs after the change was made
}

type hangingTx struct {
	rows.Tx
	ctx context.Context
	*hanging
}

func (h *hanging) Begin(ctx context.Context) (rows.Tx, error) {
	tx, err := h.DB.Begin(ctx)
	return &hangingTx{tx, ctx, h}, err
}

func (tx *hangingTx) Commit() error {
	if !tx.hangs.Swap(false) {
		return tx.Tx.Commit()
	}
	if tx.after {
		if err := tx.Tx.Commit(); err != nil {
			return err
		}
	}
	<-tx.ctx.Done()
	return errBroken
}

// A caller whose context ends during the commit waits for that for half a second. Nobody keeps a
// task that it may have taken.
func TestCommitHangs(t *testing.T) {
	for i := range 4 {
		shared, after := i&1 != 0, i&2 != 0
		t.Run(fmt.Sprint("shared ", shared, ", after ", after), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := &hanging{DB: rowstest.NewDB(time.Now), after: after}
				db.Shared = shared
				q := openQueue(t, rows.New(db, rows.Options{MaxPayload: 100, Poll: time.Second}),
					task.Options[string]{})
				q.put("a1")
				synctest.Wait()
				begun := time.Now()
				db.hangs.Store(true)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, _, err := q.TryTake(ctx)
				require.ErrorIs(t, err, task.ErrUnknown)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Equal(t, 1500*time.Millisecond, time.Since(begun))
				require.NoError(t, q.take("a1").Ack(t.Context()))
			})
		})
	}
}

// errOops is why tasks fail.
var errOops = errors.New("oops")

// waitModel is a queue in which one process waits for the ends of tasks and another one works on
// them. It checks the error of each Wait.
type waitModel struct {
	*testing.T
	rnd      *rand.Rand
	db       *rowstest.DB // of the waiting process
	q, other queue
	waiting  map[task.ID][]chan error
	names    map[task.ID]string // the unique keys
	n        int
}

// One process waits for the ends of tasks, and another one works on them.
func TestOneWaitsAnotherWorks(t *testing.T) {
	for _, shared := range []bool{false, true} {
		for seed := range uint64(20) {
			t.Run(fmt.Sprint("shared ", shared, ", seed ", seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					db := rowstest.NewDB(time.Now)
					db.Shared = shared
					o := task.Options[string]{Retention: time.Second, Grace: time.Hour}
					m := &waitModel{
						T: t, rnd: rand.New(rand.NewPCG(seed, 0)), db: db, q: openQueue(t, open(db), o),
						other:   openQueue(t, open(db.Reopen()), o),
						waiting: map[task.ID][]chan error{}, names: map[task.ID]string{},
					}
					for range 60 {
						m.step()
					}
				})
			})
		}
	}
}

// step puts tasks, begins some Waits, and works on one task.
func (m *waitModel) step() {
	ctx := m.Context()
	for range m.rnd.IntN(3) {
		m.n++
		id, err := m.other.Put(ctx, "a", "", task.PutOptions{UniqueKey: fmt.Sprint("x", m.n%5)})
		if !errors.Is(err, task.ErrDuplicate) {
			require.NoError(m, err)
			m.names[id] = fmt.Sprint("x", m.n%5)
		}
	}
	for id, name := range m.names {
		if one, err := m.other.Peek(ctx, id); err == nil && one.Info().State != task.Buried &&
			m.rnd.IntN(3) == 0 {
			c := make(chan error, 1)
			m.waiting[id] = append(m.waiting[id], c)
			go func() { c <- m.q.Wait(ctx, name) }()
		}
	}
	synctest.Wait()
	away := m.rnd.IntN(10) == 0
	if away {
		m.db.Fail(func(string) error { return errBroken })
	}
	id, end := m.work()
	time.Sleep(time.Minute)
	if away {
		time.Sleep(time.Duration(m.rnd.IntN(10)) * time.Minute)
		m.db.Fail(nil)
		time.Sleep(time.Minute)
	}
	for of, waiting := range m.waiting {
		for _, c := range waiting {
			if of != id {
				require.Empty(m, c)
				continue
			}
			require.Len(m, c, 1, "a Wait has not ended with task %d: %v", id, end)
			if err := <-c; !away || !errors.Is(err, task.ErrDeleted) { // the outcome may be forgotten
				require.Equal(m, fmt.Sprint(end), fmt.Sprint(err))
			}
		}
	}
	delete(m.waiting, id)
}

// work takes and settles a task. If the task has ended, work returns its id and its error.
func (m *waitModel) work() (id task.ID, end error) {
	ctx := m.Context()
	if m.rnd.IntN(2) == 0 {
		_, err := m.other.Kick(ctx, task.ListOptions{Limit: 1})
		require.NoError(m, err)
	}
	t, ok, err := m.other.TryTake(ctx)
	require.NoError(m, err)
	if !ok {
		return 0, nil
	}
	switch m.rnd.IntN(5) {
	case 0:
		require.NoError(m, t.Return(ctx))
		return 0, nil
	case 1:
		err, end = t.Bury(ctx, errOops), errOops
	case 2:
		err, end = t.Discard(ctx, errOops), errOops
	case 3:
		err, end = m.other.Delete(ctx, t.ID), task.ErrDeleted
	default:
		err = t.Ack(ctx)
	}
	require.NoError(m, err)
	if _, err := m.other.Peek(ctx, t.ID); err != nil {
		delete(m.names, t.ID)
	}
	return t.ID, end
}

// The number of database calls of a waiting process, after a change of another, does not depend on
// the number of tasks that it waits for.
func TestManyWaitTogether(t *testing.T) {
	asked := map[int]int64{}
	for _, waiting := range []int{1, 300} {
		synctest.Test(t, func(t *testing.T) {
			db := rowstest.NewDB(time.Now)
			q := openQueue(t, open(db), task.Options[string]{Grace: time.Hour})
			other := openQueue(t, open(db.Reopen()), task.Options[string]{Grace: time.Hour})
			ended := make(chan error, waiting)
			for i := range waiting {
				key := fmt.Sprint(i)
				require.NoError(t, second(other.Put(t.Context(), "a", "", task.PutOptions{UniqueKey: key})))
				go func() { ended <- q.Wait(t.Context(), key) }()
			}
			time.Sleep(10 * time.Second)
			synctest.Wait()
			var n atomic.Int64
			db.Fail(func(string) error {
				n.Add(1)
				return nil
			})
			require.NoError(t, other.take("").Ack(t.Context()))
			require.NoError(t, <-ended)
			asked[waiting] = n.Load()
			db.Fail(nil)
			require.NoError(t, second(other.Truncate(t.Context())))
			for range waiting - 1 {
				require.ErrorIs(t, <-ended, task.ErrDeleted)
			}
		})
	}
	require.NotZero(t, asked[1])
	require.Equal(t, asked[1], asked[300])
}
