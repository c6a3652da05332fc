package pool_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// TestHoldKey has a provider that lets a tenant call it three times in ten seconds, and says so to who
// calls it more often. It is asked too often once in ten seconds, not for each task, and the tasks of
// the tenant are done in order. Other tenants do not wait. In a database, where tasks are prefetched, as
// in memory.
func TestHoldKey(t *testing.T) {
	for name, inMemory := range map[string]bool{"memory": true, "database": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, ctx context.Context) {
				q := openQueue[int](t, nil)
				if !inMemory {
					q, _ = openDatabase[int](t, time.Millisecond, &task.Options[int]{KeepPlace: true})
				}
				var mu sync.Mutex
				var limited []int
				refused, attempts, left, others := 0, 0, 3, time.Time{}
				next := time.Now().Add(10 * time.Second)
				handle := func(_ context.Context, tk *task.Task[int]) error {
					mu.Lock()
					defer mu.Unlock()
					now := time.Now()
					if tk.Key != "limited" {
						others = now
						return nil
					}
					if !now.Before(next) {
						left, next = 3, now.Add(10*time.Second)
					}
					if left == 0 {
						refused++
						return errors.Join(errNo, pool.HoldKey(next.Sub(now)))
					}
					left--
					limited, attempts = append(limited, tk.Payload), max(attempts, tk.Attempts)
					return nil
				}
				begin := time.Now()
				for i := range 30 {
					_, err := q.Put(ctx, "limited", i, task.PutOptions{})
					require.NoError(t, err)
				}
				for range 300 {
					_, err := q.Put(ctx, "other", 0, task.PutOptions{})
					require.NoError(t, err)
				}
				p := openNew(t, q, handle, pool.Options[int]{Workers: 1})
				require.NoError(t, p.Wait(ctx))
				for i, n := range limited {
					require.Equal(t, i, n)
				}
				require.Len(t, limited, 30)
				require.Equal(t, 1, attempts)
				require.Less(t, others.Sub(begin), 5*time.Second)
				require.Less(t, time.Since(begin), 91*time.Second)
				if inMemory {
					require.Equal(t, 9, refused)
				} else { // a batch may be taken just then
					require.LessOrEqual(t, refused, 18)
				}
				s := p.Stats()
				require.EqualValues(t, refused, s.Snoozed)
				require.Zero(t, s.Retried+s.Failed+s.Lost)
				require.NoError(t, p.Shutdown(ctx))
			})
		})
	}
}
