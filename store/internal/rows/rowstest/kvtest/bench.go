package kvtest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/task"
)

// Client is a queue of a process, with the conflicts of that process.
type Client struct {
	*task.Queue[int]
	Conflicts func() int64
}

func conflicts(all []Client) (n int64) {
	for _, c := range all {
		n += c.Conflicts()
	}
	return n
}

// Fill puts n tasks, numbered from 0. key returns the key of each.
func Fill(t testing.TB, q *task.Queue[int], n int, key func(i int) string) {
	for i := 0; i < n; {
		var batch []task.Entry[int]
		for range min(500, n-i) {
			batch = append(batch, task.Entry[int]{Key: key(i), Payload: i})
			i++
		}
		_, err := q.PutBatch(t.Context(), batch)
		require.NoError(t, err)
	}
}

// Take measures how fast 1, 4 and 16 clients take and ack tasks until none are left. All clients
// are in this process; the server is in another one. open opens a store over its own connection.
func Take(
	b *testing.B, database func() string, open func(where string) (task.Store, func() int64),
) {
	for _, n := range []int{1, 4, 16} {
		for _, limit := range []int{0, 2} {
			for _, batch := range []int{1, 10} {
				b.Run(fmt.Sprintf("%d/limit=%d/%d", n, limit, batch), func(b *testing.B) {
					where := database()
					var all []Client
					for range n {
						s, conflicts := open(where)
						q, err := task.Open(b.Context(), s, "q",
							&task.Options[int]{Grace: time.Minute, MaxInFlightPerKey: limit})
						require.NoError(b, err)
						b.Cleanup(func() { require.NoError(b, q.Close(context.Background())) })
						all = append(all, Client{q, conflicts})
					}
					take(b, all, batch)
				})
			}
		}
	}
}

func take(b *testing.B, all []Client, batch int) {
	Fill(b, all[0].Queue, b.N, func(i int) string { return fmt.Sprint("key ", i%100) })
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
