package pool_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// codeError is an error that only [errors.As] finds.
// TestDoFollows waits for a task that follows another one.
func TestDoFollows(t *testing.T) {
	for _, first := range []error{nil, errNo} {
		inBubble(t, func(t *testing.T, ctx context.Context) {
			var ran []int
			result := make(chan error)
			p := openFunc(t, func(_ context.Context, tk *task.Task[int]) error {
				ran = append(ran, tk.Payload)
				return <-result
			}, pool.Options[int]{Workers: 1})
			o := pool.PutOptions{PutOptions: task.PutOptions{UniqueKey: "x", Replace: true}}
			over, mu := map[int]error{}, sync.Mutex{}
			do := func(payload int) {
				go func() {
					err := p.Do(ctx, "a", payload, o)
					mu.Lock()
					defer mu.Unlock()
					over[payload] = err
				}()
				synctest.Wait()
			}
			do(1)
			do(2)
			result <- first
			time.Sleep(time.Minute) // the backoff
			synctest.Wait()
			if first == nil {
				require.Equal(t, map[int]error{1: nil}, over)
			} else {
				require.Empty(t, over)
			}
			result <- nil
			synctest.Wait()
			require.Equal(t, map[int]error{1: nil, 2: nil}, over)
			require.Equal(t, []int{1, 2}, ran)

			require.NoError(t, p.Shutdown(ctx))
		})
	}
}

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
