package pool_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
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

// TestYieldPanics leaves the pool in order when the called function panics, or ends the goroutine.
func TestYieldPanics(t *testing.T) {
	for name, f := range map[string]func(){
		"panic":  func() { panic("boo") },
		"goexit": runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, ctx context.Context) {
				p := openFunc(t, func(ctx context.Context, tk *task.Task[int]) error {
					if tk.Payload > 0 {
						pool.Yield(ctx, func() { time.Sleep(time.Second); f() })
					}
					return nil
				}, pool.Options[int]{Workers: 2, Policy: pool.Policy{MaxAttempts: 2}})
				require.Error(t, p.Do(ctx, "a", 1, pool.PutOptions{}))
				require.NoError(t, p.Do(ctx, "a", 0, pool.PutOptions{}))
				synctest.Wait()
				require.Zero(t, p.Stats().Nested)
				require.Zero(t, p.Stats().Running)
				end(t, ctx, p)
			})
		})
	}
}

// TestYieldOutside just calls.
func TestYieldOutside(t *testing.T) {
	called := 0
	pool.Yield(t.Context(), func() { pool.Yield(t.Context(), func() { called++ }) })
	require.Equal(t, 1, called)
}

// TestYieldGivesPlaceBack watches the places of one worker.
func TestYieldGivesPlaceBack(t *testing.T) {
	for _, drain := range []bool{false, true} {
		inBubble(t, func(t *testing.T, ctx context.Context) { testYieldGivesPlaceBack(t, ctx, drain) })
	}
}

func testYieldGivesPlaceBack(t *testing.T, ctx context.Context, drain bool) {
	back := make(chan struct{})
	leave := make(chan error)
	handler := func(ctx context.Context, n int) error {
		if n == 0 {
			pool.Yield(ctx, func() {
				pool.Yield(ctx, func() { <-back }) // it has no more to give
			})
		}
		return <-leave
	}
	var submit func(int) error
	var p interface {
		Stats() pool.Stats
		Shutdown(context.Context) error
	}
	if drain {
		q := fairq.New(func(int) string { return "a" }, nil)
		submit = q.Push
		p = pool.NewWorkers(q, handler, &pool.WorkersOptions[int]{Workers: 1, Logger: quiet})
	} else {
		f := openFunc(t, func(ctx context.Context, tk *task.Task[int]) error {
			return handler(ctx, tk.Payload)
		}, pool.Options[int]{Workers: 1})
		p, submit = f, func(n int) error { return f.Submit(ctx, "a", n) }
	}
	expect := func(workers, running, nested, succeeded int) {
		t.Helper()
		synctest.Wait()
		s := p.Stats()
		require.Equal(t, [4]int{workers, running, nested, succeeded},
			[4]int{s.Workers, s.Running, s.Nested, int(s.Succeeded)})
	}
	require.NoError(t, submit(0))
	expect(0, 0, 1, 0)
	require.NoError(t, submit(1))
	require.NoError(t, submit(2))
	expect(1, 1, 1, 0)
	back <- struct{}{}
	expect(1, 1, 1, 0) // there is no place
	leave <- nil
	expect(1, 1, 0, 1) // it comes before the other one
	leave <- nil
	expect(1, 1, 0, 2)
	leave <- nil
	expect(1, 0, 0, 3)
	require.NoError(t, submit(0))
	expect(0, 0, 1, 3)
	require.NoError(t, submit(1))
	expect(1, 1, 1, 3)
	leave <- nil
	expect(1, 0, 1, 4) // an idle one
	back <- struct{}{}
	expect(1, 1, 0, 4) // makes room at once
	leave <- nil
	expect(1, 0, 0, 5)
	require.NoError(t, p.Shutdown(ctx))
}

// TestContextOfItem uses the context of a handler of items after the handler has returned: its
// AfterFuncs are called, and Yield with it does nothing.
func TestContextOfItem(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		var old context.Context
		ended := 0
		q := fairq.New(func(int) string { return "a" }, nil)
		w := pool.NewWorkers(q, func(ctx context.Context, n int) error {
			if n == 0 {
				old = ctx
				context.AfterFunc(ctx, func() { ended++ })
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}, &pool.WorkersOptions[int]{Workers: 1, Logger: quiet})
		for n := range 3 {
			require.NoError(t, q.Push(n))
			synctest.Wait() // the same worker runs the next item
		}
		require.Equal(t, 1, ended)
		require.Equal(t, context.Canceled, context.Cause(old))
		pool.Yield(old, func() {
			synctest.Wait()
			require.Zero(t, w.Stats().Nested)
			require.Equal(t, 1, q.Len())
		})
		now, cancel := context.WithCancel(ctx)
		cancel()
		require.ErrorIs(t, w.Shutdown(now), context.Canceled)
	})
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
