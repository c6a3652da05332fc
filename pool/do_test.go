package pool_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// TestDoAfterShutdown waits for a task of a queue that goes on without the pool.
func TestDoAfterShutdown(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		q := openQueue[int](t, nil)
		p := openNew(t, q, nothing, pool.Options[int]{Workers: 1})
		p.Pause()
		result := later(func() error { return p.Do(ctx, "a", 1, pool.PutOptions{}) })
		synctest.Wait()
		end(t, ctx, p)
		tk, err := q.Take(ctx)
		require.NoError(t, err)
		require.NoError(t, q.Delete(ctx, tk.ID))
		require.Equal(t, task.ErrDeleted, <-result)
	})
}
