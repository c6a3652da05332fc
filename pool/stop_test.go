package pool_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// TestCalledByHandler has handlers, observers and a sink that wait for themselves, whatever context
// they use.
func TestCalledByHandler(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		var p *pool.Pool[int]
		var w *pool.Workers
		var places sync.Map
		check := func(place string) {
			places.Store(place, nil)
			for _, call := range []func(context.Context) error{p.Wait, p.Shutdown, p.StopAndWait} {
				assert.ErrorIs(t, call(context.Background()), pool.ErrInvalid)
			}
		}
		p = openFunc(t, func(ctx context.Context, tk *task.Task[int]) error {
			pool.Yield(ctx, func() { check("Yield") })
			if assert.NoError(t, w.Wait(ctx)) { // that is another one
				check("handler")
			}
			return pool.Permanent(errNo)
		}, pool.Options[int]{
			Observer: pool.Observer[int]{
				Scaled:     func(int, int) { check("Scaled") },
				DeadLetter: func(context.Context, *pool.DeadLetter[int], error) { check("DeadLetter") },
			},
			DeadLetters: func(context.Context, *pool.DeadLetter[int]) error { check("sink"); return nil },
			Logger:      quiet,
		})
		q := fairq.New(func(int) string { return "a" }, nil)
		w = pool.NewWorkers(q, func(ctx context.Context, n int) error {
			for _, call := range []func(context.Context) error{w.Wait, w.Shutdown} {
				assert.ErrorIs(t, call(ctx), pool.ErrInvalid)
			}
			return nil
		}, &pool.Options[int]{Logger: quiet})
		require.ErrorIs(t, p.SubmitWait(ctx, "a", 1, pool.PutOptions{}), errNo)
		require.NoError(t, p.Wait(ctx))
		for _, place := range []string{"Yield", "handler", "Scaled", "DeadLetter", "sink"} {
			_, called := places.Load(place)
			require.True(t, called, place)
		}
		require.NoError(t, q.Push(1))
		require.NoError(t, w.Wait(ctx))
		require.NoError(t, w.Shutdown(ctx))
		end(t, ctx, p)
	})
}

// TestWaitAfterShutdown does not wait for what nobody will do: it says that there is something.
func TestWaitAfterShutdown(t *testing.T) {
	for _, left := range []int{0, 3} {
		inBubble(t, func(t *testing.T, ctx context.Context) {
			want := error(nil)
			if left > 0 {
				want = pool.ErrShutdown
			}
			items := fairq.New(func(int) string { return "a" }, nil)
			w := pool.NewWorkers(items, newGate().do, &pool.Options[int]{Workers: 1, Logger: quiet})
			q := openQueue[int](t, nil)
			others := openNew(t, q, newGate().handle, pool.Options[int]{Workers: 1})
			own := openFunc(t, newGate().handle, pool.Options[int]{Workers: 1})
			w.Pause()
			others.Pause()
			own.Pause()
			var waits []<-chan error
			for i := range left {
				require.NoError(t, items.Push(i))
				require.NoError(t, others.Submit(ctx, "a", i))
				require.NoError(t, own.Submit(ctx, "a", i))
			}
			for _, wait := range []func(context.Context) error{w.Wait, others.Wait, own.Wait} {
				waits = append(waits, later(func() error { return wait(ctx) }))
			}
			for _, shutdown := range []func(context.Context) error{w.Shutdown, others.Shutdown, own.Shutdown} {
				require.NoError(t, shutdown(ctx))
			}
			for i, wait := range []func(context.Context) error{w.Wait, others.Wait, own.Wait} {
				require.Equal(t, want, <-waits[i])
				require.Equal(t, want, wait(ctx))
			}
		})
	}
}

// TestStopAndWait works off what is ready, delayed, tried again, and what handlers submit
// meanwhile.
func TestStopAndWait(t *testing.T) {
	for _, own := range []bool{false, true} {
		inBubble(t, func(t *testing.T, ctx context.Context) {
			var p *pool.Pool[int]
			done := 0
			handle := func(ctx context.Context, tk *task.Task[int]) error {
				time.Sleep(time.Second)
				if tk.Attempts == 1 && tk.Payload == 0 {
					return errNo
				}
				done++
				if tk.Payload == 1 {
					return p.Submit(ctx, "b", 100)
				}
				return nil
			}
			if own {
				p = openFunc(t, handle, pool.Options[int]{Workers: 1, Capacity: 3})
			} else {
				p = openNew(t, openQueue(t, &task.Options[int]{Capacity: 4}), handle, pool.Options[int]{Workers: 1})
			}
			for i := range 4 {
				delay := time.Duration(i%2) * time.Hour
				_, err := p.Put(ctx, "a", i, pool.PutOptions{Delay: delay})
				require.NoError(t, err)
			}
			blocked := later(func() error { return p.Submit(ctx, "a", 9) })
			result := later(func() error { return p.StopAndWait(ctx) })
			require.Equal(t, pool.ErrShutdown, <-blocked)
			require.Equal(t, pool.ErrShutdown, p.Submit(ctx, "a", 9))
			require.NoError(t, <-result)
			require.Equal(t, 5, done)
			require.True(t, p.Stats().Closed)
			require.Empty(t, p.Leftovers())
			require.Zero(t, goroutines())
		})
	}
}

// TestStopAndWaitInTime is bounded by its context, whether something runs or not, and by a
// Shutdown that others call.
func TestStopAndWaitInTime(t *testing.T) {
	tired := errors.New("tired of waiting")
	for _, how := range []string{"running", "delayed", "shutdown"} {
		inBubble(t, func(t *testing.T, ctx context.Context) {
			p := openFunc(t, newGate().handle, pool.Options[int]{Workers: 1})
			options := pool.PutOptions{}
			if how != "running" {
				options.Delay = time.Hour
			}
			for i := range 2 {
				_, err := p.Put(ctx, "a", i, options)
				require.NoError(t, err)
			}
			soon, cancel := context.WithTimeoutCause(ctx, time.Minute, tired)
			defer cancel()
			begin := time.Now()
			result := later(func() error { return p.StopAndWait(soon) })
			if how == "shutdown" {
				require.NoError(t, p.Shutdown(ctx))
				require.Equal(t, pool.ErrShutdown, <-result)
			} else {
				require.Equal(t, tired, <-result)
				require.Equal(t, time.Minute, time.Since(begin))
			}
			require.Len(t, p.Leftovers(), 2)
			require.Zero(t, goroutines())
		})
	}
}

// TestWaitForLetters has a sink that takes its time, for tasks that were dropped, evicted or have
// expired. Wait waits for it.
func TestWaitForLetters(t *testing.T) {
	for _, whenFull := range []pool.WhenFull{pool.DropNew, pool.EvictOldest, pool.EvictHeaviest} {
		inBubble(t, func(t *testing.T, ctx context.Context) {
			var box mailbox[int]
			p := openFunc(t, newGate().handle, pool.Options[int]{
				Workers: 1, Capacity: 2, WhenFull: whenFull, Deadline: time.Minute,
				DeadLetters: func(ctx context.Context, l *pool.DeadLetter[int]) error {
					time.Sleep(time.Hour)
					return box.sink(ctx, l)
				},
			})
			p.Pause()
			for i := range 4 {
				go func() { _ = p.Submit(ctx, []string{"a", "a", "b", "c"}[i], i) }()
				synctest.Wait()
			}
			require.NoError(t, p.Wait(ctx))
			require.Len(t, box.all(), 4)
			require.Equal(t, uint64(4), p.Stats().DeadLetters)
			end(t, ctx, p)
		})
	}
}

// A pool that was paused when a task had succeeded does not start another one.
func TestPauseWhenSucceeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		var p *pool.Pool[int]
		done := 0
		p = pool.Func(func(context.Context, *task.Task[int]) error { done++; return nil }, &pool.Options[int]{
			Workers: 1, Observer: pool.Observer[int]{Succeeded: func(context.Context, string, *task.Task[int], time.Duration) { p.Pause() }},
		})
		p.Pause()
		for i := range 3 {
			require.NoError(t, p.Submit(ctx, "a", i))
		}
		for want := 1; want <= 3; want++ {
			p.Resume()
			synctest.Wait()
			require.Equal(t, want, done)
			s, err := p.Queue("").Stats(ctx)
			require.NoError(t, err)
			require.Equal(t, [2]int{3 - want, 0}, [2]int{s.Ready, s.Taken})
		}
		require.NoError(t, p.Shutdown(ctx))
	})
}
