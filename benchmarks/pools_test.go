package benchmarks_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	producers = 4
	workers   = 4
	capacity  = 1024
)

// produce submits the numbers below n, from several producers at the same time, and returns when
// all are submitted.
func produce(n, producers int, keys []string, submit func(item)) {
	var wg sync.WaitGroup
	for p := range producers {
		wg.Go(func() {
			key := p % len(keys)
			for i := p; i < n; i += producers {
				submit(item{keys[key], i})
				if key += producers; key >= len(keys) {
					key %= len(keys)
				}
			}
		})
	}
	wg.Wait()
}

func keys(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("key-%d", i)
	}
	return all
}

// TestExactlyOnce is about the harness as much as about the pools: stop must not return too early.
// The small capacity makes the producers wait, and few items make stop come while workers are
// being started.
func TestExactlyOnce(t *testing.T) {
	for _, c := range contestants {
		t.Run(c.name, func(t *testing.T) {
			for _, capacity := range []int{1, 16, capacity} {
				for _, n := range []int{0, 1, 5, 100, 3000} {
					for range 3 {
						handled := make([]atomic.Int32, n)
						submit, stop := c.start(workers, capacity, func(it item) { handled[it.N].Add(1) })
						produce(n, producers, keys(10), submit)
						stop()
						for i := range handled {
							require.EqualValuesf(t, 1, handled[i].Load(),
								"how often item %d of %d was handled, at capacity %d", i, n, capacity)
						}
					}
				}
			}
		})
	}
}

// TestWorkers checks that all workers are used at the same time, and no more of them.
func TestWorkers(t *testing.T) {
	for _, c := range contestants {
		t.Run(c.name, func(t *testing.T) {
			var running atomic.Int32
			began, release := make(chan int32, 100), make(chan struct{})
			submit, stop := c.start(workers, capacity, func(item) {
				began <- running.Add(1)
				<-release
				running.Add(-1)
			})
			submitted := make(chan struct{})
			go func() {
				defer close(submitted)
				produce(100, producers, keys(10), submit)
			}()
			for range workers {
				<-began
			}
			close(release)
			<-submitted
			stop()
			close(began)
			for n := range began {
				require.LessOrEqual(t, n, int32(workers))
			}
		})
	}
}

// sum adds up the items of the handlers. It has several counters, each on a cache line of its own,
// so that the benchmark does not measure the sum.
type sum [64]struct {
	atomic.Int64
	_ [56]byte
}

func (s *sum) add(it item) { s[it.N%len(s)].Add(int64(it.N)) }

func (s *sum) total() (total int64) {
	for i := range s {
		total += s[i].Load()
	}
	return total
}

// BenchmarkSubmit is about one item, from the first submit until all have been handled: 4
// producers, 4 workers.
func BenchmarkSubmit(b *testing.B) { benchmarkSubmit(b, producers, workers, capacity) }

// BenchmarkOneByOne is the same with one producer and one worker.
func BenchmarkOneByOne(b *testing.B) { benchmarkSubmit(b, 1, 1, capacity) }

// BenchmarkNoLimit is BenchmarkSubmit for pools that can have a queue without limit.
func BenchmarkNoLimit(b *testing.B) { benchmarkSubmit(b, producers, workers, 0) }

func benchmarkSubmit(b *testing.B, producers, workers, capacity int) {
	for _, n := range []int{1, 1000} {
		for _, c := range contestants {
			if capacity == 0 && !c.unlimited {
				continue
			}
			b.Run(fmt.Sprintf("keys=%d/%s", n, c.name), func(b *testing.B) {
				var s sum
				all := keys(n)
				submit, stop := c.start(workers, capacity, s.add)
				b.ReportAllocs()
				b.ResetTimer()
				produce(b.N, producers, all, submit)
				stop()
				b.StopTimer()
				if n := int64(b.N); s.total() != n*(n-1)/2 {
					b.Fatalf("the sum of what was handled is %d; what was submitted sums up to %d", s.total(),
						n*(n-1)/2)
				}
			})
		}
	}
}

// BenchmarkWake submits one item to a pool that has nothing to do, and waits until it has been
// handled.
func BenchmarkWake(b *testing.B) {
	for _, c := range contestants {
		b.Run(c.name, func(b *testing.B) {
			handled := make(chan struct{})
			submit, stop := c.start(workers, capacity, func(item) { handled <- struct{}{} })
			defer stop()
			for range 10 * workers { // all workers have started
				submit(item{"key", 0})
				<-handled
			}
			b.ReportAllocs()
			for b.Loop() {
				submit(item{"key", 0})
				<-handled
			}
		})
	}
}
