package pool_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// TestNestedTasks has tasks that wait for others, 5 deep, with one or a few workers, and a queue
// that is always full. There are never more running tasks than workers.
func TestNestedTasks(t *testing.T) {
	for _, workers := range []int{1, 2, 3} {
		inBubble(t, func(t *testing.T, ctx context.Context) {
			var p *pool.Pool[int]
			var running, most, leaves atomic.Int64
			work := func() {
				now := running.Add(1)
				defer running.Add(-1)
				for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
				}
				time.Sleep(time.Second)
			}
			p = openFunc(t, func(ctx context.Context, tk *task.Task[int]) error {
				work()
				defer work() // it has its place again
				if tk.Payload == 0 {
					leaves.Add(1)
					return nil
				}
				for range 2 {
					if err := p.Do(ctx, fmt.Sprint(tk.Payload), tk.Payload-1, pool.PutOptions{}); err != nil {
						return err
					}
				}
				return nil
			}, pool.Options[int]{Workers: workers, Queue: task.Options[int]{Capacity: 20}})
			var all sync.WaitGroup
			for range 3 {
				all.Go(func() { assert.NoError(t, p.Do(ctx, "a", 5, pool.PutOptions{})) })
			}
			all.Wait()
			require.EqualValues(t, 3*32, leaves.Load())
			require.EqualValues(t, workers, most.Load())
			synctest.Wait()
			s := p.Stats()
			require.Equal(t, [3]int{workers, 0, 0}, [3]int{s.Workers, s.Nested, s.Running})
			end(t, ctx, p)
		})
	}
}

// TestContextOutlivesHandler submits with the context of a handler that has returned, and with a
// child of it.
func TestContextOutlivesHandler(t *testing.T) {
	for _, asked := range []bool{false, true} {
		inBubble(t, func(t *testing.T, ctx context.Context) {
			testContextOutlivesHandler(t, ctx, asked)
		})
	}
}

// asked says that the handler has waited for its context.
func testContextOutlivesHandler(t *testing.T, ctx context.Context, asked bool) {
	var old context.Context
	g := newGate()
	p := openFunc(t, func(ctx context.Context, tk *task.Task[int]) error {
		if tk.Payload == 0 {
			if old = ctx; asked {
				_ = ctx.Done()
			}
			return nil
		}
		return g.handle(ctx, tk)
	}, pool.Options[int]{Workers: 1, Queue: task.Options[int]{Capacity: 1}})
	require.NoError(t, p.Submit(ctx, "a", 0))
	wait(t, p)
	ended := old
	old = context.WithoutCancel(ended)
	for n := range 2 {
		require.NoError(t, p.Submit(old, "a", n+1))
		synctest.Wait()
	}
	blocked := later(func() error { return p.Submit(old, "a", 3) }) // it has no place to give
	require.Empty(t, blocked)
	require.Equal(t, 1, p.Stats().Running)
	require.Zero(t, p.Stats().Nested)
	// last, because it makes the real context
	require.Equal(t, context.Canceled, p.Submit(ended, "a", 4))
	g.let(1)
	require.NoError(t, <-blocked)
	g.let(2)
	end(t, ctx, p)
	require.Equal(t, pool.ErrShutdown, p.Submit(old, "a", 4))
}

// A goroutine of a handler waits for the handler's place, and another one is in Yield again. So
// the place goes to the task that this one waits for.
func TestYieldAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		var p *pool.Pool[int]
		p = openFunc(t, func(ctx context.Context, tk *task.Task[int]) error {
			switch tk.Payload {
			case 0:
				var both sync.WaitGroup
				both.Go(func() { pool.Yield(ctx, func() { time.Sleep(time.Second) }) })
				both.Go(func() {
					time.Sleep(2 * time.Second)
					assert.NoError(t, p.Do(ctx, "c", 2, pool.PutOptions{}))
				})
				both.Wait()
			case 1:
				time.Sleep(time.Minute)
			}
			return nil
		}, pool.Options[int]{Workers: 1})
		require.NoError(t, p.Submit(ctx, "a", 0))
		require.NoError(t, p.Submit(ctx, "b", 1))
		limited, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		require.NoError(t, p.Wait(limited))
	})
}
