package sqlite_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/internal/storetest"
	"github.com/fairq/fairq/store/sqlite"
	"github.com/fairq/fairq/task"
)

// BenchmarkInFlight lets 64 callers put tasks of 100 keys, and then take and ack them, with and
// without MaxInFlightPerKey. The ratio of the two matters.
func BenchmarkInFlight(b *testing.B) {
	for _, limit := range []int{0, 2} {
		b.Run(fmt.Sprint(limit), func(b *testing.B) {
			s, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "tasks.db"), nil)
			require.NoError(b, err)
			q, err := task.Open(b.Context(), s, "q", &task.Options[int]{MaxInFlightPerKey: limit})
			require.NoError(b, err)
			defer func() {
				require.NoError(b, q.Close(context.Background()))
				require.NoError(b, s.Close())
			}()
			each := func(f func(n int)) float64 {
				var next atomic.Int64
				var wg sync.WaitGroup
				begun := time.Now()
				for range 64 {
					wg.Go(func() {
						for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
							f(int(n))
						}
					})
				}
				wg.Wait()
				return float64(b.N) / time.Since(begun).Seconds()
			}
			b.ResetTimer()
			puts := each(func(n int) {
				_, err := q.Put(b.Context(), fmt.Sprint("key ", n%100), n, task.PutOptions{})
				require.NoError(b, err)
			})
			worked := each(func(int) {
				one, err := q.Take(b.Context())
				require.NoError(b, err)
				require.NoError(b, one.Ack(b.Context()))
			})
			b.ReportMetric(puts, "puts/s")
			b.ReportMetric(worked, "worked/s")
		})
	}
}

func BenchmarkWaiting(b *testing.B) { storetest.BenchmarkWaiting(b, openForBenchmark) }

func openForBenchmark(b *testing.B) task.Store {
	s, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "tasks.db"), nil)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, s.Close()) })
	return s
}
