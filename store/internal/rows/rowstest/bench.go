package rowstest

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fairq/fairq/task"
)

// Closer is a store that ends.
type Closer interface {
	task.Store
	Close() error
}

const payload = "a payload of some forty bytes, as for an id"

// BenchmarkQueue measures calls that each return when they are durable, from several goroutines, on
// a store that open opens in a file.
func BenchmarkQueue(b *testing.B, open func(ctx context.Context, path string) (Closer, error)) {
	ctx := context.Background()
	for _, backlog := range []int{0, 10_000, 1_000_000} {
		for _, callers := range []int{1, 8, 64} {
			name := fmt.Sprintf("backlog=%d/callers=%d", backlog, callers)
			b.Run("Put/"+name, func(b *testing.B) {
				q := openQueue(b, open, backlog)
				benchmark(b, callers, func(n int64) {
					_, err := q.Put(ctx, fmt.Sprint("key ", n%1000), payload, task.PutOptions{})
					if err != nil {
						b.Error(err)
					}
				})
			})
			b.Run("TakeAck/"+name, func(b *testing.B) {
				q := openQueue(b, open, backlog+b.N)
				benchmark(b, callers, func(int64) {
					t, err := q.Take(ctx)
					if err != nil {
						b.Error(err)
						return
					}
					if err := t.Ack(ctx); err != nil {
						b.Error(err)
					}
				})
			})
		}
	}
}

// benchmark calls f from so many goroutines at the same time, b.N times in all.
func benchmark(b *testing.B, callers int, f func(n int64)) {
	var next atomic.Int64
	var wait sync.WaitGroup
	b.ResetTimer()
	for range callers {
		wait.Go(func() {
			for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
				f(n)
			}
		})
	}
	wait.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
}

// openQueue opens a queue of a new store that has a backlog.
func openQueue(b *testing.B, open func(ctx context.Context, path string) (Closer, error), backlog int) *task.Queue[string] {
	ctx := context.Background()
	store, err := open(ctx, filepath.Join(b.TempDir(), "tasks.db"))
	if err != nil {
		b.Fatal(err)
	}
	q, err := task.Open[string](ctx, store, "bench", nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := q.Close(ctx); err != nil {
			b.Error(err)
		}
		if err := store.Close(); err != nil {
			b.Error(err)
		}
	})
	const most = 10_000
	for from := 0; from < backlog; from += most {
		batch := make([]task.Batch[string], min(most, backlog-from))
		for i := range batch {
			batch[i] = task.Batch[string]{Key: fmt.Sprint("key ", (from+i)%1000), Payload: payload}
		}
		if _, err := q.PutBatch(ctx, batch); err != nil {
			b.Fatal(err)
		}
	}
	return q
}
