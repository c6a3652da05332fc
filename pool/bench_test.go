package pool_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

type job struct {
	key string
	n   int
}

func submitAll(b *testing.B, keys int, submit func(job)) {
	names := make([]string, keys)
	for i := range names {
		names[i] = fmt.Sprint(i)
	}
	var all sync.WaitGroup
	for p := range 4 {
		all.Go(func() {
			for i := p; i < b.N; i += 4 {
				submit(job{names[i%keys], i})
			}
		})
	}
	all.Wait()
}

// BenchmarkSubmit runs the tasks of four producers in a pool. The module benchmarks compares it
// with other pools.
func BenchmarkSubmit(b *testing.B) {
	ctx := context.Background()
	for _, keys := range []int{1, 1000} {
		for _, capacity := range []int{0, 1024, 100000} {
			b.Run(fmt.Sprintf("Func/capacity=%d/keys=%d", capacity, keys), func(b *testing.B) {
				b.ReportAllocs()
				var n atomic.Int64
				var done sync.WaitGroup
				done.Add(b.N)
				p := pool.Func(func(_ context.Context, t *task.Task[job]) error {
					n.Add(int64(t.Payload.n))
					done.Done()
					return nil
				}, &pool.Options[job]{Workers: 4, Queue: task.Options[job]{Capacity: capacity}})
				before := goroutineSwitches()
				submitAll(b, keys, func(j job) { _ = p.Submit(ctx, j.key, j) })
				done.Wait()
				b.StopTimer()
				b.ReportMetric(float64(goroutineSwitches()-before)/float64(b.N), "switches/op")
				_ = p.Wait(ctx)
			})
		}
	}
}

// BenchmarkWaiting reports the bytes of a task that waits for its delay or its next attempt, and
// the goroutines of 100,000 such tasks.
func BenchmarkWaiting(b *testing.B) {
	const tasks = 100_000
	for _, what := range []string{"delay", "retry"} {
		b.Run(what, func(b *testing.B) {
			var goroutines, bytes float64
			for b.Loop() {
				var tried sync.WaitGroup
				p := pool.Func(func(context.Context, *task.Task[int]) error {
					tried.Done()
					return pool.RetryAfter(time.Hour)
				}, &pool.Options[int]{Workers: 1, Logger: slog.New(slog.DiscardHandler)})
				put := func(n int, delay time.Duration) {
					tried.Add(n)
					for range n {
						_, err := p.Put(context.Background(), "key", 0, pool.PutOptions{PutOptions: task.PutOptions{
							Delay: delay,
						}})
						require.NoError(b, err)
					}
				}
				put(1, 0)
				tried.Wait() // the timer and a worker have been started
				before, heap := runtime.NumGoroutine(), heapBytes()
				if what == "delay" {
					put(tasks, time.Hour)
				} else {
					put(tasks, 0)
					tried.Wait()
				}
				goroutines += float64(runtime.NumGoroutine() - before)
				bytes += (heapBytes() - heap) / tasks
				require.ErrorIs(b, p.Shutdown(context.Background()), pool.ErrShutdown)
				runtime.KeepAlive(p)
			}
			b.ReportMetric(goroutines/float64(b.N), "goroutines")
			b.ReportMetric(bytes/float64(b.N), "B/task")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// goroutineSwitches returns how often goroutines have begun to run. The runtime counts one begin
// in eight.
func goroutineSwitches() (n uint64) {
	sample := []metrics.Sample{{Name: "/sched/latencies:seconds"}}
	metrics.Read(sample)
	for _, count := range sample[0].Value.Float64Histogram().Counts {
		n += 8 * count
	}
	return n
}

func heapBytes() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
