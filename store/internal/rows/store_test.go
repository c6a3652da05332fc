package rows_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/internal/storetest"
	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/store/internal/rows/rowstest"
	"github.com/fairq/fairq/task"
)

// store is a rows.Store over a database in memory.
type store struct {
	*rows.Store
	db *rowstest.DB
}

func open(db *rowstest.DB) *store {
	return &store{rows.New(db, rows.Options{MaxPayload: 2 << 20, Poll: 10 * time.Second}), db}
}

// InTx makes it a [storetest.Transactor].
func (s *store) InTx(ctx context.Context, f func(context.Context) error) error {
	return s.db.InTx(ctx, f)
}

func (s *store) Reopen(*testing.T) task.Store { return open(s.db.Reopen()) }
func (s *store) Kill(*testing.T)              { s.db.Kill() }

func TestStore(t *testing.T) {
	if testing.Short() {
		t.Skip("that of store/sqlite shows the same")
	}
	storetest.Run(t, func(*testing.T) task.Store { return open(rowstest.NewDB(time.Now)) })
}

// TestStoreShared is TestStore over a database whose transactions overlap.
func TestStoreShared(t *testing.T) {
	storetest.Run(t, func(*testing.T) task.Store {
		db := rowstest.NewDB(time.Now)
		db.Shared = true
		return open(db)
	})
}

// slow is a database whose Begin blocks while gate is empty.
type slow struct {
	*rowstest.DB
	gate chan struct{}
}

func (s *slow) Begin(ctx context.Context) (rows.Tx, error) {
	token := <-s.gate
	defer func() { s.gate <- token }()
	return s.DB.Begin(ctx)
}

// A living process that was taken for dead goes on taking tasks. If it dies later, these tasks are
// handed back.
func TestTakenForDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, options := t.Context(), &task.Options[string]{Grace: time.Second}
		db := &slow{rowstest.NewDB(time.Now), make(chan struct{}, 1)}
		db.gate <- struct{}{}
		a, err := task.Open(ctx,
			rows.New(db, rows.Options{MaxPayload: 100, Poll: time.Second}), "q", options)
		require.NoError(t, err)
		b, err := task.Open(ctx, open(db.Reopen()), "q", options)
		require.NoError(t, err)
		_, err = a.Put(ctx, "k", "first", task.PutOptions{})
		require.NoError(t, err)
		first, err := a.Take(ctx)
		require.NoError(t, err)

		<-db.gate
		time.Sleep(5 * time.Second)
		again, err := b.Take(ctx)
		require.NoError(t, err)
		require.Equal(t, first.ID, again.ID)
		require.NoError(t, again.Ack(ctx))
		db.gate <- struct{}{}
		require.ErrorIs(t, first.Ack(ctx), task.ErrLeaseLost)

		id, err := a.Put(ctx, "k", "second", task.PutOptions{})
		require.NoError(t, err)
		second, err := a.Take(ctx)
		require.NoError(t, err)
		require.Equal(t, id, second.ID)
		time.Sleep(5 * time.Second) // the process is alive
		_, ok, err := b.TryTake(ctx)
		require.NoError(t, err)
		require.False(t, ok)
		db.Kill()
		_ = a.Close(ctx)
		time.Sleep(5 * time.Second)
		second, ok, err = b.TryTake(ctx)
		require.NoError(t, err)
		require.True(t, ok, "the task of the dead process is handed back")
		require.Equal(t, id, second.ID)
		require.NoError(t, b.Close(ctx))
	})
}

// counting is a database that calls functions when it has counted the keys, and when it has read
// tasks.
type counting struct {
	rows.DB
	counted, read func(n int)
}

type countingTx struct {
	rows.Tx
	counting
}

type countingView struct {
	rows.View
	counting
}

type countingTable struct {
	rows.Table[rows.Row]
	read func(n int)
}

func (c counting) Begin(ctx context.Context) (rows.Tx, error) {
	tx, err := c.DB.Begin(ctx)
	return countingTx{tx, c}, err
}

func (c countingTx) Enter(queue uint64, plan *rows.Plan) (rows.View, error) {
	v, err := c.Tx.Enter(queue, plan)
	return countingView{v, c.counting}, err
}

func (c countingView) Tasks() rows.Table[rows.Row] { return countingTable{c.View.Tasks(), c.read} }

func (c countingTable) Scan(r rows.Range) ([]*rows.Row, error) {
	found, err := c.Table.Scan(r)
	if c.read != nil {
		c.read(len(found))
	}
	return found, err
}

func (c countingView) CountKeys(from string, most int) (n int, next string, err error) {
	n, next, err = c.View.CountKeys(from, most)
	c.counted(n)
	return n, next, err
}

// A queue without tasks can be opened with payloads of another type.
func TestOtherPayloads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(rowstest.NewDB(time.Now))
		q := openQueue(t, s, task.Options[string]{})
		q.put("a1")
		require.NoError(t, q.Close(t.Context()))
		_, err := task.Open[int](t.Context(), s, "q", nil)
		require.EqualError(t, err,
			`task: Options.Format is "task.jsonCodec[int]"; it must be "task.jsonCodec[string]", as in `+
				`queue "q", which has tasks: 1`)
		q = openQueue(t, s, task.Options[string]{})
		require.NoError(t, q.take("a1").Ack(t.Context()))
		require.NoError(t, q.Close(t.Context()))
		numbers, err := task.Open[int](t.Context(), s, "q", nil)
		require.NoError(t, err)
		_, err = numbers.Put(t.Context(), "a", 1, task.PutOptions{})
		require.NoError(t, err)
		require.NoError(t, numbers.Close(t.Context()))
	})
}

// Stats counts many keys again only when 20 times as long has passed as the last count took.
func TestStatsOfManyKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		db := counting{
			DB:      rowstest.NewDB(time.Now),
			counted: func(n int) { time.Sleep(time.Duration(n) * time.Millisecond) },
		}
		q, err := task.Open[string](ctx, rows.New(db, rows.Options{MaxPayload: 1000}), "q", nil)
		require.NoError(t, err)
		keys := func() int {
			s, err := q.Stats(ctx)
			require.NoError(t, err)
			return s.Keys
		}
		for n := 1; n <= 1000; n++ {
			_, err := q.Put(ctx, fmt.Sprint(n), "", task.PutOptions{})
			require.NoError(t, err)
			if n > 990 {
				require.Equal(t, n, keys())
			}
		}
		_, err = q.Put(ctx, "one more", "", task.PutOptions{})
		require.NoError(t, err)
		begin := time.Now()
		for time.Since(begin) < 20*time.Second {
			require.Equal(t, 1000, keys())
			time.Sleep(time.Second)
		}
		require.InDelta(t, 20*time.Second, time.Since(begin), 1e9)
		time.Sleep(time.Second)
		require.Equal(t, 1001, keys())
		require.NoError(t, q.Close(ctx))
	})
}

// If a call panics, all callers of its transaction get an error. Later calls work.
func TestPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, boom := t.Context(), false
		gate := &slow{rowstest.NewDB(time.Now), make(chan struct{}, 1)}
		gate.gate <- struct{}{}
		db := counting{DB: gate, counted: func(int) {
			if boom {
				panic("boom")
			}
		}}
		q, err := task.Open[string](ctx, rows.New(db, rows.Options{MaxPayload: 1000}), "q", nil)
		require.NoError(t, err)
		for first := range 4 {
			synctest.Wait() // otherwise the work that opening began might panic
			token := <-gate.gate
			var errs, fine atomic.Int32
			call := func(f func() error) {
				go func() {
					if err := f(); err != nil {
						assert.ErrorContains(t, err, "boom")
						errs.Add(1)
					} else {
						fine.Add(1)
					}
				}()
				synctest.Wait()
			}
			put := func() error {
				_, err := q.Put(ctx, "key", "", task.PutOptions{})
				return err
			}
			stats := func() error {
				_, err := q.Stats(ctx)
				return err
			}
			boom = true
			call(put) // alone
			for i := range 4 {
				if i == first {
					call(stats)
				} else {
					call(put)
				}
			}
			gate.gate <- token
			synctest.Wait()
			require.Equal(t, [2]int32{4, 1}, [2]int32{errs.Load(), fine.Load()})
			boom = false
			s, err := q.Stats(ctx)
			require.NoError(t, err)
			require.Equal(t, first+1, s.Ready)
		}
		require.NoError(t, q.Close(ctx))
	})
}
