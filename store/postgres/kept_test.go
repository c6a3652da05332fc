package postgres

import (
	"context"
	"io"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/internal/storetest"
	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/store/internal/rows/rowstest"
	"github.com/fairq/fairq/task"
)

// keeper is a process that keeps the state of a queue.
type keeper struct {
	testDB
	*task.Queue[string]
	trips *trips
	fails atomic.Bool // the next commit does
	held  []*task.Task[string]
}

// Begin makes it a [rows.DB].
func (k *keeper) Begin(ctx context.Context) (rows.Tx, error) {
	tx, err := k.testDB.Begin(ctx)
	return &failingTx{tx, k}, err
}

type failingTx struct {
	rows.Tx
	k *keeper
}

func (tx *failingTx) Commit() error {
	if tx.k.fails.Swap(false) {
		return io.ErrUnexpectedEOF
	}
	return tx.Tx.Commit()
}

func newKeeper(t *testing.T, db testDB) *keeper {
	k := &keeper{trips: &trips{}}
	db.config.tracer = k.trips
	k.testDB = db.again(t)
	s := rows.New(k, rows.Options{MaxPayload: 5000, Poll: time.Hour, Beside: 4})
	q, err := task.Open(t.Context(), s, "q",
		&task.Options[string]{MaxInFlightPerKey: 3, Grace: time.Hour})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, q.Close(context.Background())) })
	k.Queue = q
	return k
}

// learn makes calls until the process keeps the state.
func (k *keeper) learn(t *testing.T) {
	for trips := int64(0); trips != 6; {
		before := k.trips.n.Load()
		_, err := k.Put(t.Context(), "learn", "", task.PutOptions{})
		require.NoError(t, err)
		one, ok, err := k.TryTake(t.Context())
		require.NoError(t, err)
		require.True(t, ok)
		require.NoError(t, one.Ack(t.Context()))
		trips = k.trips.n.Load() - before
	}
}

// No process uses a kept state from before a write of another process, a transaction of the
// caller's, or a failed transaction of its own.
func TestKeptHeadIsNeverOld(t *testing.T) {
	t.Parallel()
	db := openTest(t)
	keepers := []*keeper{newKeeper(t, db), newKeeper(t, db)}
	rnd := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	k := keepers[0]
	for step := range 500 {
		if rnd.IntN(12) == 0 {
			k = keepers[rnd.IntN(2)]
		}
		ctx, joins, fails := t.Context(), rnd.IntN(12) == 0, rnd.IntN(12) == 0
		if joins {
			tx, err := db.pool.Begin(ctx)
			require.NoError(t, err)
			k.call(t, WithTx(ctx, tx), rnd, true)
			if fails {
				require.NoError(t, tx.Rollback(ctx))
			} else {
				require.NoError(t, tx.Commit(ctx))
			}
		} else {
			k.fails.Store(fails)
			k.call(t, ctx, rnd, false)
		}
		require.Empty(t, rowstest.Walk(t, db, "q"), "step %d", step)
	}
}

// call makes a call, which may fail.
func (k *keeper) call(t *testing.T, ctx context.Context, rnd *rand.Rand, joins bool) {
	key := storetest.Keys[rnd.IntN(len(storetest.Keys))]
	switch n := rnd.IntN(20); {
	case n < 8:
		o := task.PutOptions{Priority: rnd.IntN(2), Kind: []string{"", "kind"}[rnd.IntN(2)]}
		_, err := k.Put(ctx, key, strings.Repeat("x", rnd.IntN(2)*2*rows.MaxKept), o)
		if joins {
			require.NoError(t, err)
		}
	case n < 12 && !joins:
		held, ok, err := k.TryTake(ctx)
		if err == nil && ok {
			k.held = append(k.held, held)
		}
	case n < 18 && len(k.held) > 0:
		i := rnd.IntN(len(k.held))
		held := k.held[i]
		if !joins {
			k.held = append(k.held[:i], k.held[i+1:]...)
		}
		_ = []func() error{
			func() error { return held.Ack(ctx) },
			func() error { return held.Release(ctx, 0) },
			func() error { return held.Bury(ctx, nil) },
		}[rnd.IntN(3)]()
	case n == 18:
		_, _ = k.Kick(ctx, task.ListOptions{})
	case n == 19 && rnd.IntN(2) == 0:
		_ = k.PauseKey(ctx, key)
	default:
		_ = k.ResumeKey(ctx, key)
	}
}

// A server may lose commits when it crashes, or when another one takes its place. So a new
// connection may see less.
func TestKeptHeadIsOfItsConnections(t *testing.T) {
	t.Parallel()
	db := openTest(t)
	k := newKeeper(t, db)
	take := func() (ok bool, err error) {
		_, ok, err = k.TryTake(t.Context())
		return ok, err
	}
	for range 10 {
		_, err := k.Put(t.Context(), "key", "", task.PutOptions{Priority: 1})
		require.NoError(t, err)
	}
	k.learn(t)
	_, err := db.pool.Exec(t.Context(), db.text("UPDATE fairq.queues SET paused = true"))
	require.NoError(t, err)
	ok, err := take()
	require.NoError(t, err)
	require.True(t, ok, "nothing is kept")
	k.pool.Reset()
	ok, err = take()
	require.NoError(t, err)
	require.False(t, ok)
}
