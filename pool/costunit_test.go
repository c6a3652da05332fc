package pool_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// With a CostUnit two keys get as much of the workers' time each, although the jobs of one take
// ten times as long, a quarter of them fail, and some panic.
func TestCostUnit(t *testing.T) {
	const unit = 5 * time.Millisecond
	takes := map[string]time.Duration{"quick": 10 * time.Millisecond, "slow": 100 * time.Millisecond}
	type handler = func(key string) error
	kinds := map[string]func(t *testing.T, h handler, unit time.Duration) (submit func(key string)){
		"Func": func(t *testing.T, h handler, unit time.Duration) func(string) {
			p := openFunc(t, func(_ context.Context, tk *task.Task[string]) error { return h(tk.Key) },
				pool.Options[string]{Workers: 2, CostUnit: unit})
			return func(key string) { require.NoError(t, p.Submit(t.Context(), key, key)) }
		},
		"New": func(t *testing.T, h handler, unit time.Duration) func(string) {
			q := openQueue(t, &task.Options[string]{Quantum: 1, PriorCost: 10, MaxInFlightPerKey: 2})
			openNew(t, q, func(_ context.Context, tk *task.Task[string]) error { return h(tk.Key) },
				pool.Options[string]{Workers: 2, CostUnit: unit})
			return func(key string) {
				_, err := q.Put(t.Context(), key, key, task.PutOptions{})
				require.NoError(t, err)
			}
		},
		"NewWorkers": func(t *testing.T, h handler, unit time.Duration) func(string) {
			q := fairq.New(func(key string) string { return key }, &fairq.Options[string, string]{
				Cost: func(string) int64 { return 10 }, Quantum: 1, SettleCosts: true,
			})
			w := pool.NewWorkers(q, func(_ context.Context, key string) error { return h(key) },
				&pool.WorkersOptions[string]{Workers: 2, CostUnit: unit, Logger: quiet})
			cleanUp(t, w.Shutdown)
			return func(key string) { require.NoError(t, q.Push(key)) }
		},
	}
	for name, open := range kinds {
		t.Run(name, func(t *testing.T) {
			ratio := func(unit time.Duration) float64 {
				var spent map[string]time.Duration
				synctest.Test(t, func(t *testing.T) {
					var submit func(key string)
					runs := make(chan string, 1)
					var n atomic.Int64
					submit = open(t, func(key string) error {
						time.Sleep(takes[key])
						select {
						case runs <- key:
						case <-t.Context().Done():
						}
						switch n := n.Add(1); {
						case n%16 == 0:
							panic("as it must")
						case n%4 == 0:
							return pool.Permanent(context.DeadlineExceeded)
						}
						return nil
					}, unit)
					for range 5 {
						submit("quick")
						submit("slow")
					}
					spent = map[string]time.Duration{}
					for began := time.Now(); time.Since(began) < 20*time.Second; {
						key := <-runs
						submit(key)
						if time.Since(began) > 5*time.Second { // costs are known by then
							spent[key] += takes[key]
						}
					}
				})
				return float64(spent["slow"]) / float64(spent["quick"])
			}
			require.InDelta(t, 1, ratio(unit), 0.1)
			if name != "NewWorkers" { // there a learning queue needs the cost
				require.InDelta(t, 10, ratio(0), 1)
			}
		})
	}
}
