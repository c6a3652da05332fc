package memory_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/memory"
)

// Five tenants put 400 tasks each at the same time. The lengths are unknown. Four tenants have
// tasks of six seconds, 160 minutes of work together. With ten workers and equal shares their
// tasks are done after 20 minutes, or later, because long tasks begin before costs are learned.
func TestLearnedCostOfABacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		length := map[string]time.Duration{
			"a": 6 * time.Second, "b": 6 * time.Second, "c": 6 * time.Second, "d": 6 * time.Second,
			"long": 20 * time.Minute,
		}
		q, err := task.Open[int](t.Context(), new(memory.Store), "q",
			&task.Options[int]{Quantum: 6, PriorCost: 60})
		require.NoError(t, err)
		for range 400 {
			for key := range length {
				_, err := q.Put(t.Context(), key, 0, task.PutOptions{})
				require.NoError(t, err)
			}
		}
		ctx, end := context.WithCancel(t.Context())
		defer end()
		begin, left := time.Now(), 4*400
		var mu sync.Mutex // protects left
		var workers sync.WaitGroup
		for range 10 {
			workers.Go(func() {
				for one, err := q.Take(ctx); err == nil; one, err = q.Take(ctx) {
					time.Sleep(length[one.Key])
					assert.NoError(t, q.ReportCost(one.Key, int64(length[one.Key]/time.Second)))
					assert.NoError(t, one.Ack(t.Context()))
					mu.Lock()
					if one.Key != "long" {
						left--
					}
					if left == 0 {
						end()
					}
					mu.Unlock()
				}
			})
		}
		<-ctx.Done()
		assert.Less(t, time.Since(begin), 90*time.Minute)
		workers.Wait()
	})
}

// Upcoming returns the tasks that are taken next, even if a key gets a turn only after it has used
// the one before.
func TestUpcomingWithOneTurnAhead(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		o := task.Options[int]{Quantum: 1 + random.Int64N(10), MaxInFlightPerKey: 1000}
		o.Weight = func(key string) int { return 1 + len(key)%2 }
		if random.IntN(2) == 0 {
			o.PriorCost, o.MaxInFlightPerKey = 1+random.Int64N(20), 0
		}
		q, err := task.Open(t.Context(), new(memory.Store), "q", &o)
		require.NoError(t, err)
		keys := []string{"a", "bb", "c", "dd"}
		var ids []task.ID
		for range 100 {
			switch key := keys[random.IntN(len(keys))]; random.IntN(8) {
			case 0, 1, 2, 3:
				id, err := q.Put(t.Context(), key, 0,
					task.PutOptions{Cost: random.Int64N(30) * random.Int64N(2)})
				require.NoError(t, err)
				ids = append(ids, id)
			case 4:
				if o.PriorCost > 0 {
					require.NoError(t, q.ReportCost(key, random.Int64N(50)))
				}
			case 5:
				if len(ids) > 0 {
					_ = q.Delete(t.Context(), ids[random.IntN(len(ids))])
				}
			default:
				n := 1 + random.IntN(6)
				upcoming, err := q.Upcoming(t.Context(), n)
				require.NoError(t, err)
				for _, next := range upcoming {
					one, ok, err := q.TryTake(t.Context())
					require.NoError(t, err)
					require.True(t, ok)
					require.Equal(t, next.ID, one.ID, "seed %d", seed)
				}
			}
		}
	}
}
