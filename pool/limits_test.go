package pool_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// TestUrgentWorkHasHeadRoom has a second pool for the queue of the first, with two workers that do
// only urgent tasks.
func TestUrgentWorkHasHeadRoom(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		g := newGate()
		p := openFunc(t, g.handle, pool.Options[int]{Workers: 8})
		urgent := openNew(t, p.Queue(""), g.handle,
			pool.Options[int]{Workers: 2, Filter: task.Filter{MaxPriority: new(0)}})
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
		require.Equal(t, 2, urgent.Stats().Running)
		g.let(18)
		_, started := g.now()
		require.Equal(t, make([]int, 20), started[8:28])
		g.let(22)
		wait(t, p)
		require.NoError(t, urgent.Shutdown(ctx))
		end(t, ctx, p)
	})
}
