package rows_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

// Upcoming returns the tasks that are taken next, after any history and with any options. (In
// memory it may return others, see Queue.Upcoming; storetest tests that.)
func TestUpcoming(t *testing.T) {
	weight := func(key string) int { return map[string]int{"a": 1, "b": 2, "c": 3}[key] }
	for name, o := range map[string]task.Options[string]{
		"Plain":     {Weight: weight},
		"ThisRound": {Newcomers: fairq.ThisRound},
		"KeepPlace": {KeepPlace: true},
		"InFlight":  {MaxInFlightPerKey: 3, Weight: weight},
		"Newcomers": {MaxInFlightPerKey: 3, Newcomers: fairq.ThisRound, Weight: weight},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(few(12)) {
				everywhere(t, o, func(q queue) {
					if !q.InMemory() {
						upcoming(q, rand.New(rand.NewPCG(seed, 3)), seed%2 == 0)
					}
				})
			}
		})
	}
}

func few(n int) int {
	if testing.Short() {
		return n / 4
	}
	return n
}

func upcoming(q queue, r *rand.Rand, kinds bool) {
	ctx := q.Context()
	var ids []task.ID
	var taken []*task.Task[string]
	for range 60 {
		switch op := r.IntN(10); {
		case op < 5:
			o := task.PutOptions{Priority: r.IntN(2)}
			if kinds {
				o.Kind = []string{"", "x", "y"}[r.IntN(3)]
			}
			id, err := q.Put(ctx, string(rune('a'+r.IntN(3))), "", o)
			require.NoError(q, err)
			ids = append(ids, id)
		case op == 5 && len(ids) > 0:
			_ = q.Delete(ctx, ids[r.IntN(len(ids))])
		case op == 6 && len(taken) > 0:
			if err := taken[0].Release(ctx, time.Duration(r.IntN(2))*time.Second); err != nil {
				require.ErrorIs(q, err, task.ErrLeaseLost)
			}
			taken = taken[1:]
		case op == 7:
			time.Sleep(time.Second)
		case op == 8:
			key := string(rune('a' + r.IntN(3)))
			require.NoError(q, q.PauseKey(ctx, key))
			if r.IntN(4) > 0 {
				require.NoError(q, q.ResumeKey(ctx, key))
			}
		case op == 9:
			n := 1 + r.IntN(12)
			next, err := q.Upcoming(ctx, n)
			require.NoError(q, err)
			for _, i := range next {
				one, ok, err := q.TryTake(ctx)
				require.NoError(q, err)
				require.True(q, ok)
				require.Equal(q, i.ID, one.ID)
				taken = append(taken, one)
			}
			if len(next) < n {
				_, ok, err := q.TryTake(ctx)
				require.NoError(q, err)
				require.False(q, ok)
			}
		}
	}
}
