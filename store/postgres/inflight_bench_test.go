package postgres

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/internal/pgtest"
	"github.com/fairq/fairq/internal/storetest"
	"github.com/fairq/fairq/task"
)

// BenchmarkInFlight puts tasks of 100 keys, and then takes and acks them, with and without
// MaxInFlightPerKey: one by one, by one caller in batches of 100, and by four Stores. The ratio of
// the two matters. It needs -benchtime with a number of tasks, as 5000x.
func BenchmarkInFlight(b *testing.B) {
	server := pgtest.Own(b, "max_wal_size=4GB")
	for _, c := range []struct{ stores, callers, batch int }{
		{1, 1, 1}, {1, 100, 1}, {1, 1, 100}, {4, 32, 1},
	} {
		for _, limit := range []int{0, 1, 2} {
			name := fmt.Sprintf("stores=%d/callers=%d/batch=%d/limit=%d", c.stores, c.callers, c.batch,
				limit)
			b.Run(name, func(b *testing.B) {
				benchInFlight(b, server.URL("postgres"), c.stores, c.callers, c.batch, limit)
			})
		}
	}
}

func benchInFlight(b *testing.B, url string, stores, callers, batch, limit int) {
	var queues []*task.Queue[int]
	for range stores {
		s, err := Open(b.Context(), url, nil)
		require.NoError(b, err)
		defer s.Close()
		q, err := task.Open(b.Context(), s, b.Name(), &task.Options[int]{MaxInFlightPerKey: limit})
		require.NoError(b, err)
		queues = append(queues, q)
	}
	defer func() { require.NoError(b, queues[0].Drop(context.Background())) }()
	each := func(what string, f func(q *task.Queue[int]) int) {
		var wg sync.WaitGroup
		begun := time.Now()
		for i := range callers {
			wg.Go(func() {
				for n := (b.N + i) / callers; n > 0; n -= f(queues[i%stores]) {
				}
			})
		}
		wg.Wait()
		b.ReportMetric(float64(b.N)/time.Since(begun).Seconds(), what)
	}
	key := 0
	var mu sync.Mutex
	b.ResetTimer()
	each("puts/s", func(q *task.Queue[int]) int {
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
	each("worked/s", func(q *task.Queue[int]) int {
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
