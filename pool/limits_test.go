package pool_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// TestUrgentWorkHasHeadRoom is the example in the documentation of Options.Filter.
func TestUrgentWorkHasHeadRoom(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		g := newGate()
		p := openFunc(t, g.handle,
			pool.Options[int]{Workers: 10, Filter: below(8)})
		put := func(n, priority int) {
			for range n {
				_, err := p.Put(ctx, "a", priority, pool.PutOptions{PutOptions: task.PutOptions{
					Priority: priority,
				}})
				require.NoError(t, err)
			}
			synctest.Wait()
		}
		put(20, 5)
		require.Equal(t, 8, p.Stats().Running)
		put(20, 0)
		require.Equal(t, 10, p.Stats().Running)
		g.let(18)
		require.Equal(t, 10, p.Stats().Running)
		_, started := g.now()
		require.Equal(t, make([]int, 20), started[8:28])
		g.let(22)
		end(t, ctx, p)
	})
}

// TestFilterWithYield has a handler that gives its place back: it does not count then.
func TestFilterWithYield(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		var q *pool.Pool[int]
		options := pool.PutOptions{PutOptions: task.PutOptions{Priority: 1}}
		q = openFunc(t, func(ctx context.Context, tk *task.Task[int]) error {
			if tk.Payload > 0 {
				return q.Do(ctx, "a", tk.Payload-1, options)
			}
			time.Sleep(time.Second)
			return nil
		}, pool.Options[int]{Workers: 3, Filter: below(1)})
		require.NoError(t, q.Do(ctx, "a", 5, options))
		end(t, ctx, q)
	})
}

// below lets tasks that are not urgent start only while fewer than n handlers run.
func below(n int) func(int) task.Filter {
	return func(running int) (f task.Filter) {
		if running >= n {
			f.MaxPriority = new(0)
		}
		return f
	}
}
