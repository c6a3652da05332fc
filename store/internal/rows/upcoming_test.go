package rows_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/store/internal/rows/rowstest"
	"github.com/fairq/fairq/task"
)

// TestUpcoming shows that the tasks that Upcoming returns are taken next, after random calls. The
// lines are longer than those of storetest.Compare, and some queues have neither kinds nor pauses.
func TestUpcoming(t *testing.T) {
	weight := func(key string) int { return map[string]int{"a": 1, "b": 2, "c": 9}[key] }
	for name, o := range map[string]task.Options[string]{
		"Plain":     {Weight: weight},
		"KeepPlace": {KeepPlace: true, Weight: weight},
		"InFlight":  {MaxInFlightPerKey: 3, Weight: weight},
		"Rates":     {KeyRate: task.Rate{Limit: 1, Burst: 4}, Rate: task.Rate{Limit: 3, Burst: 9}},
	} {
		t.Run(name, func(t *testing.T) {
			seeds := uint64(16)
			if testing.Short() {
				seeds = 4
			}
			for seed := range seeds {
				everywhere(t, o, func(q queue) {
					u := &upcoming{queue: q, Rand: rand.New(rand.NewPCG(seed, 3)), kinds: []string{""}}
					if u.pauses = seed%4 >= 2; seed%2 == 1 {
						u.kinds = []string{"", "x", "y"}
					}
					for range 60 {
						u.step()
					}
				})
			}
		})
	}
}

type upcoming struct {
	queue
	*rand.Rand
	kinds  []string
	pauses bool
	ids    []task.ID
	taken  []*task.Task[string]
}

func (u *upcoming) step() {
	ctx, key := u.Context(), string(rune('a'+u.IntN(3)))
	switch op := u.IntN(10); {
	case op < 4:
		for range 1 + u.IntN(4) {
			o := task.PutOptions{Priority: u.IntN(2), Kind: u.kinds[u.IntN(len(u.kinds))]}
			id, err := u.Put(ctx, key, "", o)
			require.NoError(u, err)
			u.ids = append(u.ids, id)
		}
	case op == 4 && len(u.ids) > 0:
		_ = u.Delete(ctx, u.ids[u.IntN(len(u.ids))])
	case op == 5 && len(u.taken) > 0:
		how := (*task.Task[string]).Return
		if u.IntN(2) == 0 {
			how = (*task.Task[string]).Ack
		}
		some := u.taken[:min(len(u.taken), 1+u.IntN(4))]
		for _, t := range some {
			if err := how(t, ctx); err != nil {
				require.ErrorIs(u, err, task.ErrLeaseLost)
			}
		}
		u.taken = u.taken[len(some):]
	case op == 6:
		time.Sleep(time.Second)
	case op == 7 && u.pauses:
		require.NoError(u, u.PauseKey(ctx, key))
		if u.IntN(4) > 0 {
			require.NoError(u, u.ResumeKey(ctx, key))
		}
	case op > 7:
		n := 1 + u.IntN(1+u.IntN(15))
		next, err := u.Upcoming(ctx, n)
		require.NoError(u, err)
		for i := range n {
			one, ok, err := u.TryTake(ctx)
			require.NoError(u, err)
			require.Equal(u, i < len(next), ok)
			if !ok {
				break
			}
			require.Equal(u, next[i].ID, one.ID)
			u.taken = append(u.taken, one)
		}
	}
}

// Beside many expired tasks, which a queue open AsIs does not remove, Upcoming reads few tasks.
func TestUpcomingBesideExpired(t *testing.T) {
	for name, c := range map[string]struct {
		options             task.Options[string]
		expired, reads, all int
	}{
		"Few":       {task.Options[string]{}, 900, 10, 4000},
		"Many":      {task.Options[string]{}, 4500, 10, 4000},
		"KeepPlace": {task.Options[string]{KeepPlace: true}, 4500, 12, 4000},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reads, all, db := 0, 0, rowstest.NewDB(time.Now)
				in := open(db)
				q := openQueue(t, in, c.options)
				for range c.expired / 900 {
					batch := make([]task.Entry[string], 900)
					for i := range batch {
						batch[i] = task.Entry[string]{Key: "a", Options: task.PutOptions{TTL: time.Minute}}
					}
					_, err := q.PutBatch(t.Context(), batch)
					require.NoError(t, err)
				}
				q.put("a1 a2")
				require.NoError(t, q.Close(t.Context()))
				time.Sleep(time.Hour)
				looker := openQueue(t, rows.New(counting{
					DB: db.Reopen(), read: func(n int) { reads, all = reads+1, all+n },
				}, rows.Options{}), task.Options[string]{AsIs: true})
				next, err := looker.Upcoming(t.Context(), 10)
				require.NoError(t, err)
				require.LessOrEqual(t, len(next), 2)
				require.True(t, c.expired > 1000 || len(next) == 2)
				require.Less(t, reads, c.reads)
				require.Less(t, all, c.all)
			})
		})
	}
}
