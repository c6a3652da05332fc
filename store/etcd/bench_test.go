package etcd

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/task"
)

// The benchmark has the figures of benchmarks/stores/README.md. Each client is a Store with a
// connection of its own. All clients are in this process; the server is in another.

// client is a queue that is open over a connection of its own.
type client struct {
	*task.Queue[int]
	store *Store
}

// openClients opens the same queue in n clients.
func openClients(b *testing.B, where string, n int) (all []client) {
	_, prefix, _ := strings.Cut(where, "#")
	for range n {
		connection, err := dial(b.Context(), where)
		require.NoError(b, err)
		s, err := Open(b.Context(), connection, &Options{Prefix: prefix, MaxOps: maxOps})
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
		n += c.store.db.Conflicts()
	}
	return n
}

// fill puts n tasks of 100 keys, which are numbered.
func fill(b *testing.B, c client, n int) {
	for i := 0; i < n; {
		var batch []task.Entry[int]
		for range min(500, n-i) {
			batch = append(batch, task.Entry[int]{Key: fmt.Sprint("key ", i%100), Payload: i})
			i++
		}
		_, err := c.PutBatch(b.Context(), batch)
		require.NoError(b, err)
	}
}

// BenchmarkTake lets clients take tasks and ack them, until none are left.
func BenchmarkTake(b *testing.B) {
	for _, n := range []int{1, 4, 16} {
		for _, batch := range []int{1, 10} {
			b.Run(fmt.Sprintf("%d/%d", n, batch), func(b *testing.B) {
				benchmarkTake(b, openClients(b, newDatabase(b, 1), n), batch)
			})
		}
	}
}

func benchmarkTake(b *testing.B, all []client, batch int) {
	fill(b, all[0], b.N)
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
