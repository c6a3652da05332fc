package rowstest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/internal/storetest"
	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/task"
)

// testLimits opens a queue that has tasks again and again, each time with other limits, and checks
// its rows. In the end each task must be taken once.
func testLimits(t *testing.T, db rows.DB) {
	r, ok := db.(reopener)
	if !ok {
		t.Skip("the DB has no method Reopen")
	}
	look, in := r.Reopen(t), rows.New(db, rows.Options{MaxPayload: 1000, Poll: time.Second})
	seed := rand.Uint64()
	t.Logf("the seed is %d", seed)
	random, ctx, left := rand.New(rand.NewPCG(seed, 0)), t.Context(), map[int]bool{}
	fixed := task.Options[int]{KeepPlace: random.IntN(2) == 0, Quantum: random.Int64N(2)}
	keys, kinds := storetest.Keys[:3], []string{"", "x", "y"}
	lines := random.IntN(20) // from then on there are kinds and pauses
	open := func(o task.Options[int]) *task.Queue[int] {
		q, err := task.Open(ctx, in, "q", &o)
		require.NoError(t, err)
		return q
	}
	for n := range 12 {
		o := fixed
		o.MaxInFlightPerKey, o.KeyCapacity = random.IntN(3), random.IntN(2)*1000
		o.Capacity = random.IntN(2) * 1000
		if o.KeyRate.Burst = 2 * random.IntN(2); o.KeyRate.Burst > 0 {
			o.KeyRate.Limit = 1e-3
		}
		q := open(o)
		for i := range 20 {
			key := keys[random.IntN(len(keys))]
			switch do := random.IntN(9); {
			case do == 0 && n >= lines:
				require.NoError(t, q.PauseKey(ctx, key))
			case do == 1:
				require.NoError(t, q.ResumeKey(ctx, key))
			case do < 4:
				one, ok, err := q.TryTake(ctx)
				require.NoError(t, err)
				switch {
				case ok && random.IntN(3) == 0:
					delete(left, one.Payload)
					require.NoError(t, one.Ack(ctx))
				case ok && random.IntN(2) == 0:
					require.NoError(t, one.Return(ctx))
				case ok && random.IntN(2) == 0:
					require.NoError(t, one.Release(ctx, 0))
				}
			default:
				kind := ""
				if n >= lines {
					kind = kinds[random.IntN(len(kinds))]
				}
				left[100*n+i] = true
				_, err := q.Put(ctx, key, 100*n+i,
					task.PutOptions{Kind: kind, Priority: random.IntN(2), Cost: 1 + random.Int64N(2)})
				require.NoError(t, err)
			}
		}
		require.Empty(t, Walk(t, look, "q"), "%d: %+v", n, o)
		require.NoError(t, q.Close(ctx))
	}
	q := open(fixed)
	for _, key := range keys {
		require.NoError(t, q.ResumeKey(ctx, key))
	}
	require.Empty(t, Walk(t, look, "q"))
	for len(left) > 0 {
		one, ok, err := q.TryTake(ctx)
		require.NoError(t, err)
		require.True(t, ok, fmt.Sprint(left))
		require.True(t, left[one.Payload])
		delete(left, one.Payload)
		require.NoError(t, one.Ack(ctx))
	}
	require.NoError(t, q.Close(ctx))
}
