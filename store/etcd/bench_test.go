package etcd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/task"
)

// The benchmarks are what the figures of docs/etcd.md come from. Each client is a Store with a
// connection of its own; all are in this process, and so is not the server.

// client is a queue that is open over a connection of its own.
type client struct {
	*task.Queue[int]
	store *Store
}

// openClients opens the same queue in so many clients.
func openClients(b *testing.B, where string, n int, taking Taking) (all []client) {
	_, prefix, _ := strings.Cut(where, "#")
	for range n {
		connection, err := dial(b.Context(), where)
		require.NoError(b, err)
		s, err := Open(b.Context(), connection, &Options{Prefix: prefix, MaxOps: maxOps, Taking: taking})
		require.NoError(b, err)
		q, err := task.Open(b.Context(), s, "q", &task.Options[int]{Grace: time.Minute})
		require.NoError(b, err)
		b.Cleanup(func() {
			require.NoError(b, q.Close(context.Background()))
			require.NoError(b, s.Close())
			require.NoError(b, connection.Close())
		})
		all = append(all, client{q, s})
	}
	return all
}

func conflicts(all []client) (n int64) {
	for _, c := range all {
		n += c.store.Conflicts()
	}
	return n
}

// fill puts n tasks, which are numbered, and whose keys key tells.
func fill(b *testing.B, c client, n int, key func(i int) string) {
	for i := 0; i < n; {
		var batch []task.Entry[int]
		for range min(500, n-i) {
			batch = append(batch, task.Entry[int]{Key: key(i), Payload: i})
			i++
		}
		_, err := c.PutBatch(b.Context(), batch)
		require.NoError(b, err)
	}
}

func oneOf100(i int) string { return fmt.Sprint("key ", i%100) }

func BenchmarkPut(b *testing.B) {
	for _, n := range []int{1, 4, 16} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			all := openClients(b, newDatabase(b, 1), n, Apart)
			before := conflicts(all)
			var next atomic.Int64
			var wg sync.WaitGroup
			b.ResetTimer()
			for i, c := range all {
				wg.Go(func() {
					for next.Add(1) <= int64(b.N) {
						_, err := c.Put(b.Context(), fmt.Sprint("key ", i), i, task.PutOptions{})
						require.NoError(b, err)
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
			b.ReportMetric(float64(conflicts(all)-before), "conflicts")
		})
	}
}

// BenchmarkTake has clients take tasks and ack them, until there are no more.
func BenchmarkTake(b *testing.B) {
	for taking, name := range []string{"apart", "staged", "strict"} {
		for _, n := range []int{1, 4, 16} {
			for _, batch := range []int{1, 10} {
				b.Run(fmt.Sprintf("%s/%d/%d", name, n, batch), func(b *testing.B) {
					benchmarkTake(b, openClients(b, newDatabase(b, 1), n, Taking(taking)), batch)
				})
			}
		}
	}
}

func benchmarkTake(b *testing.B, all []client, batch int) {
	fill(b, all[0], b.N, oneOf100)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	before := conflicts(all)
	var wg sync.WaitGroup
	var mu sync.Mutex // protects what follows
	seen, late := make([]bool, b.N), 0
	taken := 0
	b.ResetTimer()
	for _, c := range all {
		wg.Go(func() {
			for {
				some, err := c.TakeBatch(ctx, batch)
				if err != nil && ctx.Err() != nil {
					return
				}
				mu.Lock()
				for _, one := range some {
					require.False(b, seen[one.Payload])
					seen[one.Payload] = true
					late = max(late, taken-one.Payload)
					taken++
				}
				if taken == b.N {
					cancel()
				}
				mu.Unlock()
				var acks sync.WaitGroup
				for _, one := range some {
					acks.Go(func() { require.NoError(b, one.Ack(b.Context())) })
				}
				acks.Wait()
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
	b.ReportMetric(float64(conflicts(all)-before)/float64(b.N), "conflicts/task")
	b.ReportMetric(float64(late), "passed-over-by")
}

// BenchmarkBacklog takes tasks one at a time, beside many that are queued.
func BenchmarkBacklog(b *testing.B) {
	for _, backlog := range []int{1_000, 100_000} {
		where := newDatabase(b, 1)
		b.Run(fmt.Sprint(backlog), func(b *testing.B) {
			c := openClients(b, where, 1, Apart)[0]
			stats, err := c.Stats(b.Context())
			require.NoError(b, err)
			fill(b, c, max(0, backlog+b.N-stats.Ready), oneOf100)
			benchmarkLatency(b, c)
		})
		if backlog < 100_000 {
			continue
		}
		b.Run("after 50000 deletions", func(b *testing.B) {
			c := openClients(b, where, 1, Apart)[0]
			stats, err := c.Stats(b.Context())
			require.NoError(b, err)
			for left := stats.Ready - backlog/2; left > 0; {
				some, err := c.TakeBatch(b.Context(), 500)
				require.NoError(b, err)
				var acks sync.WaitGroup
				for _, one := range some {
					acks.Go(func() { require.NoError(b, one.Ack(b.Context())) })
				}
				acks.Wait()
				left -= len(some)
			}
			benchmarkLatency(b, c)
		})
	}
}

func benchmarkLatency(b *testing.B, c client) {
	var took []time.Duration
	b.ResetTimer()
	for range b.N {
		begun := time.Now()
		one, err := c.Take(b.Context())
		took = append(took, time.Since(begun))
		require.NoError(b, err)
		require.NoError(b, one.Ack(b.Context()))
	}
	b.StopTimer()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "median-ms")
	b.ReportMetric(float64(took[len(took)*95/100].Microseconds())/1000, "p95-ms")
}

// BenchmarkLight puts tasks of a light key, one at a time, beside 100,000 of a heavy one and a
// thousand of each of 20 others, and tells how many others are taken before each.
func BenchmarkLight(b *testing.B) {
	where := newDatabase(b, 1)
	for taking, name := range []string{"apart", "staged"} {
		for _, n := range []int{1, 16} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				all := openClients(b, where, n+1, Taking(taking))
				if stats, err := all[0].Stats(b.Context()); err != nil || stats.Ready == 0 {
					fill(b, all[0], 100_000, func(int) string { return "heavy" })
					fill(b, all[0], 20_000, func(i int) string { return fmt.Sprint("other ", i%20) })
				}
				benchmarkLight(b, all[0], all[1:])
			})
		}
	}
}

func benchmarkLight(b *testing.B, putter client, takers []client) {
	ctx, cancel := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	var taken atomic.Int64
	arrived := make(chan int64)
	time.Sleep(3 * time.Second) // until who has taken something does not count any more
	for _, c := range takers {
		wg.Go(func() {
			for {
				one, err := c.Take(ctx)
				if err != nil {
					require.Error(b, ctx.Err())
					return
				}
				n := taken.Add(1)
				if one.Key == "light" {
					arrived <- n
				}
				require.NoError(b, one.Ack(b.Context()))
			}
		})
	}
	for taken.Load() < int64(10*len(takers)) { // each has its part by then
		time.Sleep(time.Millisecond)
	}
	most, sum := int64(0), int64(0)
	for range b.N {
		_, err := putter.Put(b.Context(), "light", 0, task.PutOptions{})
		before := taken.Load()
		require.NoError(b, err)
		passed := <-arrived - before
		most, sum = max(most, passed), sum+passed
	}
	cancel()
	wg.Wait()
	b.ReportMetric(float64(most), "most-others")
	b.ReportMetric(float64(sum)/float64(b.N), "mean-others")
}
