package benchmarks_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/fairq/fairq/admit"
)

// semaphores are the rivals of an admit.Limiter.
var semaphores = []struct {
	name string
	// start returns a function that takes n permits one after the other, works, and gives each
	// back.
	start func(limit int) func(key, n int, work func())
}{
	{"semaphore", func(limit int) func(int, int, func()) {
		s := semaphore.NewWeighted(int64(limit))
		ctx := context.Background()
		return func(_, n int, work func()) {
			for range n {
				must(s.Acquire(ctx, 1))
				work()
				s.Release(1)
			}
		}
	}},
	{"admit", func(limit int) func(int, int, func()) {
		l := admit.New[int](limit, nil)
		ctx := context.Background()
		return func(key, n int, work func()) {
			for range n {
				p, err := l.Acquire(ctx, key)
				must(err)
				work()
				p.Release()
			}
		}
	}},
	{"channel", func(limit int) func(int, int, func()) {
		c := make(chan struct{}, limit)
		return func(_, n int, work func()) {
			for range n {
				c <- struct{}{}
				work()
				<-c
			}
		}
	}},
	// A semaphore for each key, with an equal part of the limit, as many programs do.
	{"map", func(limit int) func(int, int, func()) {
		var mu sync.Mutex
		byKey := map[int]*semaphore.Weighted{}
		ctx := context.Background()
		return func(key, n int, work func()) {
			for range n {
				mu.Lock()
				s := byKey[key]
				if s == nil {
					s = semaphore.NewWeighted(int64(limit))
					byKey[key] = s
				}
				mu.Unlock()
				must(s.Acquire(ctx, 1))
				work()
				s.Release(1)
			}
		}
	}},
}

// BenchmarkPermits takes and gives back permits: in one goroutine; in one for each of many keys at
// limit 1, so that all others wait; and in 16 at limit 4 that work for 10 us or not at all.
func BenchmarkPermits(b *testing.B) {
	spin := func() {
		for start := time.Now(); time.Since(start) < 10*time.Microsecond; {
		}
	}
	for _, c := range []struct {
		name              string
		limit, goroutines int
		work              func()
	}{
		{"alone", 4, 1, func() {}},
		{"100 keys", 1, 100, runtime.Gosched},
		{"10000 keys", 1, 10_000, runtime.Gosched},
		{"16 at 4, 10us", 4, 16, spin},
		{"16 at 4", 4, 16, func() {}},
	} {
		for _, s := range semaphores {
			b.Run(fmt.Sprintf("%s/%s", c.name, s.name), func(b *testing.B) {
				b.ReportAllocs()
				run := s.start(c.limit)
				var all sync.WaitGroup
				for key := range c.goroutines {
					n := b.N / c.goroutines
					if key < b.N%c.goroutines {
						n++
					}
					all.Go(func() { run(key, n, c.work) })
				}
				all.Wait()
			})
		}
	}
}
