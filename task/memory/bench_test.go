package memory_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/exp/stats"

	"github.com/fairq/fairq/internal/storetest"
	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/memory"
)

// BenchmarkUpcoming measures how long Upcoming holds the lock of a queue of 1,000,000 tasks.
func BenchmarkUpcoming(b *testing.B) {
	for _, keys := range []int{1, 100, 1_000_000} {
		var s memory.Store
		q, err := task.Open[int](b.Context(), &s, "jobs", nil)
		require.NoError(b, err)
		for i := range 1_000_000 {
			_, err := q.Put(b.Context(), fmt.Sprint("user ", i%keys), i, task.PutOptions{})
			require.NoError(b, err)
		}
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			var held []float64
			for b.Loop() {
				held = append(held, s.TimeUpcoming("jobs", 1000).Seconds()*1e6)
			}
			most := stats.Quantiles(held, 0.5, 0.99)
			b.ReportMetric(most[0], "µs/median")
			b.ReportMetric(most[1], "µs/p99")
		})
	}
}

func BenchmarkWaiting(b *testing.B) {
	storetest.BenchmarkWaiting(b, func(*testing.B) task.Store { return new(memory.Store) })
}
