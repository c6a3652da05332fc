package pool_test

import (
	"context"
	"errors"
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

// later calls f in a goroutine, and returns where its result will be.
func later(f func() error) <-chan error {
	result := make(chan error, 1)
	go func() { result <- f() }()
	synctest.Wait()
	return result
}

// TestEscalation cancels the handlers when the time of Shutdown is over. Their tasks are handed
// back without counting the attempt, except tasks that were done or failed for good.
func TestEscalation(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		q := openQueue(t, &task.Options[int]{MaxAttempts: 1})
		p := openNew(t, q, func(ctx context.Context, tk *task.Task[int]) error {
			<-ctx.Done()
			assert.Equal(t, pool.ErrShutdown, context.Cause(ctx))
			assert.Equal(t, context.Canceled, ctx.Err())
			switch tk.Payload {
			case 0:
				return nil
			case 1:
				return pool.Permanent(errNo)
			case 2:
				return errNo
			case 3:
				panic(errNo)
			case 4:
				return pool.RetryAfter(time.Hour)
			}
			return ctx.Err()
		}, pool.Options[int]{Workers: 6})
		for i := range 7 {
			require.NoError(t, p.Submit(ctx, "a", i))
		}
		synctest.Wait()
		tired := errors.New("tired of waiting")
		soon, cancel := context.WithTimeoutCause(ctx, time.Minute, tired)
		defer cancel()
		begin := time.Now()
		require.Equal(t, tired, p.Shutdown(soon))
		require.Equal(t, time.Minute, time.Since(begin))
		tasks, err := q.List(ctx, task.ListOptions{})
		require.NoError(t, err)
		require.Len(t, tasks, 6)
		for i, tk := range tasks {
			require.Equal(t, i+1, tk.Payload)
			if i == 0 {
				require.Equal(t, task.Buried, tk.Info().State)
				continue
			}
			require.Equal(t, task.Ready, tk.Info().State)
			require.Zero(t, tk.Attempts)
		}
		s := p.Stats()
		require.Equal(t, [4]uint64{6, 1, 1, 4}, [4]uint64{s.Started, s.Succeeded, s.Failed, s.Returned})
	})
}

// An interrupted attempt does not count, even if the store takes its task back only later.
func TestInterruptedWhileTheStoreIsAway(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		q, db := openDatabase[int](t, time.Millisecond, nil)
		var away atomic.Bool
		db.fails = func(string) bool { return away.Load() }
		p := openNew(t, q, func(ctx context.Context, _ *task.Task[int]) error {
			<-ctx.Done()
			return ctx.Err()
		}, pool.Options[int]{Workers: 1})
		require.NoError(t, p.Submit(ctx, "a", 0))
		time.Sleep(time.Second)
		away.Store(true)
		over, cancel := context.WithCancel(ctx)
		cancel()
		shutdown := later(func() error { return p.Shutdown(over) })
		time.Sleep(time.Minute)
		away.Store(false)
		require.Error(t, <-shutdown)
		require.NoError(t, p.Shutdown(ctx))
		tasks, err := q.List(ctx, task.ListOptions{})
		require.NoError(t, err)
		require.Len(t, tasks, 1)
		require.Equal(t, [2]any{task.Ready, 0}, [2]any{tasks[0].Info().State, tasks[0].Attempts})
	})
}

// TestAbandoned has handlers that ignore their context. Their tasks are handed back, and their
// later results are ignored.
func TestAbandoned(t *testing.T) {
	for _, after := range []time.Duration{0, time.Minute} {
		inBubble(t, func(t *testing.T, ctx context.Context) {
			q := openQueue[int](t, nil)
			leave := make(chan struct{})
			p := openNew(t, q, func(ctx context.Context, tk *task.Task[int]) error {
				if tk.Payload == 0 {
					pool.Yield(ctx, func() { <-leave })
				}
				<-leave
				return nil
			}, pool.Options[int]{Workers: 2, AbandonAfter: after})
			for i := range 4 {
				require.NoError(t, p.Submit(ctx, "a", i))
			}
			synctest.Wait()
			begin := time.Now()
			soon, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			err := p.Shutdown(soon)
			require.Equal(t, time.Hour+max(after, time.Second), time.Since(begin))
			require.ErrorIs(t, err, pool.ErrAbandoned)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.EqualError(t, err,
				"pool: abandoned: 3 handlers, sinks or letters\ncontext deadline exceeded")
			s, err := q.Stats(ctx)
			require.NoError(t, err)
			require.Equal(t, 4, s.Ready)
			close(leave)
			synctest.Wait()
			require.Equal(t, uint64(3), p.Stats().Lost)
			require.NoError(t, p.Shutdown(ctx))
			require.Zero(t, goroutines())
		})
	}
}

// TestShutdownOfItems leaves them in their queue.
func TestShutdownOfItems(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		var box mailbox[int]
		g := newGate()
		q := fairq.New(func(int) string { return "a" }, nil)
		w := pool.NewWorkers(q, g.do,
			&pool.WorkersOptions[int]{Workers: 2, DeadLetters: box.sink, Logger: quiet})
		for i := range 5 {
			require.NoError(t, q.Push(i))
		}
		synctest.Wait()
		soon, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		result := later(func() error { return w.Shutdown(soon) })
		g.let(1)
		require.Equal(t, context.DeadlineExceeded, <-result)
		require.Equal(t, 3, q.Len())
		// the other one was interrupted, and is not in the queue any more
		require.Len(t, box.all(), 1)
		require.Equal(t, pool.ReasonShutdown, box.all()[0].Reason)
		require.Equal(t, [2]uint64{1, 1}, [2]uint64{w.Stats().Succeeded, w.Stats().Failed})
		require.Zero(t, goroutines())
	})
}

// TestWait is about its context, and about what it waits for.
func TestWait(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		g := newGate()
		q := fairq.New(func(int) string { return "a" }, nil)
		w := pool.NewWorkers(q, g.do, &pool.WorkersOptions[int]{Workers: 1, Logger: quiet})
		cleanUp(t, w.Shutdown)
		p := openFunc(t, g.handle,
			pool.Options[int]{Workers: 1, Classes: []pool.Class[int]{{Name: "0"}, {Name: "1"}}})
		for _, wait := range []func(context.Context) error{w.Wait, p.Wait} {
			soon, cancel := context.WithTimeout(ctx, time.Minute)
			require.NoError(t, wait(soon))
			require.NoError(t, q.Push(1))
			_, err := p.Put(ctx, "a", 1, pool.PutOptions{PutOptions: task.PutOptions{
				Delay: time.Hour,
			}, Class: "1"})
			require.NoError(t, err)
			require.Equal(t, context.DeadlineExceeded, wait(soon))
			cancel()
			result := later(func() error { return wait(ctx) })
			g.let(1)
			time.Sleep(2 * time.Hour)
			g.let(1)
			require.NoError(t, <-result)
		}
	})
}
