package postgres

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/internal/pgtest"
	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/storetest"
)

// BenchmarkInFlight puts tasks of 100 keys, and then takes and acks them, with and without
// MaxInFlightPerKey: one by one, and by one caller in batches of 100. The ratio of the two
// matters. It needs -benchtime with a number of tasks, as 5000x.
func BenchmarkInFlight(b *testing.B) {
	server := pgtest.Own(b, "max_wal_size=4GB")
	for _, c := range []struct{ callers, batch int }{{1, 1}, {100, 1}, {1, 100}} {
		for _, limit := range []int{0, 2} {
			b.Run(fmt.Sprintf("callers=%d/batch=%d/limit=%d", c.callers, c.batch, limit),
				func(b *testing.B) {
					benchInFlight(b, server.URL("postgres"), c.callers, c.batch, limit)
				})
		}
	}
}

func benchInFlight(b *testing.B, url string, callers, batch, limit int) {
	s, err := Open(b.Context(), url, nil)
	require.NoError(b, err)
	q, err := task.Open(b.Context(), s, b.Name(), &task.Options[int]{MaxInFlightPerKey: limit})
	require.NoError(b, err)
	defer func() {
		require.NoError(b, q.Drop(context.Background()))
		require.NoError(b, s.Close())
	}()
	each := func(what string, f func() int) {
		var wg sync.WaitGroup
		begun := time.Now()
		for i := range callers {
			wg.Go(func() {
				for n := (b.N + i) / callers; n > 0; n -= f() {
				}
			})
		}
		wg.Wait()
		b.ReportMetric(float64(b.N)/time.Since(begun).Seconds(), what)
	}
	key := 0
	var mu sync.Mutex
	b.ResetTimer()
	each("puts/s", func() int {
		tasks := make([]task.Entry[int], batch)
		mu.Lock()
		for i := range tasks {
			key++
			tasks[i].Key = fmt.Sprint("key ", key%100)
		}
		mu.Unlock()
		_, err := q.PutBatch(b.Context(), tasks)
		require.NoError(b, err)
		return batch
	})
	each("worked/s", func() int {
		if batch == 1 { // a TakeBatch does not share its transaction
			t, err := q.Take(b.Context())
			require.NoError(b, err)
			require.NoError(b, t.Ack(b.Context()))
			return 1
		}
		tasks, err := q.TakeBatch(b.Context(), batch)
		require.NoError(b, err)
		var acks sync.WaitGroup
		for _, t := range tasks {
			acks.Go(func() { require.NoError(b, t.Ack(b.Context())) })
		}
		acks.Wait()
		return len(tasks)
	})
}

func BenchmarkWaiting(b *testing.B) {
	server := pgtest.Own(b, "max_wal_size=4GB")
	storetest.BenchmarkWaiting(b, func(b *testing.B) task.Store {
		s, err := Open(b.Context(), server.URL("postgres"), nil)
		require.NoError(b, err)
		b.Cleanup(func() { require.NoError(b, s.Close()) })
		return s
	})
}
