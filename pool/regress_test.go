package pool_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/memory"
)

// Each of these tests failed once.

// mistakenNil returns a nil pointer as an error. Its Error method panics.
func mistakenNil() error {
	var e *brokenError
	return e
}

// brokenError is an error whose nil pointer a handler returns by mistake.
type brokenError struct{ text string }

func (e *brokenError) Error() string { return e.text }

// wrapsNothing is an error with a text whose Unwrap panics.
type wrapsNothing struct{ err *brokenError }

func (wrapsNothing) Error() string   { return "nothing" }
func (e wrapsNothing) Unwrap() error { return errors.New(e.err.text) }

// An error that panics is handled like others, because nothing later could recover from its panic.
func TestErrorsThatPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		var box mailbox[int]
		o := &pool.Options[int]{
			Logger: quiet,
			DeadLetters: func(ctx context.Context, l *pool.DeadLetter[int]) error {
				_ = box.sink(ctx, l)
				return mistakenNil()
			},
		}
		o.Policy.MaxAttempts = 2
		p := pool.Func(func(_ context.Context, tk *task.Task[int]) error {
			if tk.Payload == 2 {
				return wrapsNothing{}
			}
			return mistakenNil()
		}, o)
		_, err := p.Put(ctx, "a", 2, pool.PutOptions{PutOptions: task.PutOptions{
			Delay: time.Hour, MaxAttempts: 1,
		}})
		require.NoError(t, err)
		require.NoError(t, p.Submit(ctx, "a", 1))
		wait(t, p)
		requireLeft(t, p, p.Shutdown(ctx), 2) // it sends the letters again

		q := fairq.New(func(int) int { return 0 }, nil)
		w := pool.NewWorkers(q, func(context.Context, int) error { return mistakenNil() },
			&pool.WorkersOptions[int]{Workers: 1, Logger: quiet, DeadLetters: o.DeadLetters})
		require.NoError(t, q.Push(1))
		require.NoError(t, w.Wait(ctx))
		require.NoError(t, w.Shutdown(ctx))
		letters := box.all()
		require.Len(t, letters, 5)
		for i, recorded := range []bool{false, false, true, true, false} {
			require.Equal(t, pool.ReasonFailed, letters[i].Reason)
			if recorded {
				require.ErrorAs(t, letters[i].Err, new(*task.Error))
			} else {
				require.ErrorAs(t, letters[i].Err, new(*task.PanicError))
			}
		}
	})
}

// A pool adds workers even after a false alarm: a watch was called, but tasks had left again.
func TestWorkersAreAddedAfterFalseAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		p := pool.Func(func(ctx context.Context, t *task.Task[int]) error {
			time.Sleep(time.Second)
			return nil
		}, &pool.Options[int]{
			Logger: quiet, Scale: pool.Scale{Max: 2},
			Queue: task.Options[int]{Capacity: 4},
		})
		require.NoError(t, p.Submit(ctx, "a", 0))
		synctest.Wait()
		for range 3 {
			id, err := p.Put(ctx, "a", 0, pool.PutOptions{})
			require.NoError(t, err)
			require.NoError(t, p.Queue("").Delete(ctx, id))
			synctest.Wait()
		}
		require.Equal(t, 1, p.Stats().Workers)
		for range 3 {
			require.NoError(t, p.Submit(ctx, "a", 0))
		}
		synctest.Wait()
		require.Equal(t, 2, p.Stats().Workers)
		requireLeft(t, p, p.Shutdown(ctx), 2)
	})
}

// When the queue of one class is closed, the other classes go on.
func TestQueueOfOneClassClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		q, err := task.Open[int](ctx, new(memory.Store), "q", nil)
		require.NoError(t, err)
		p := pool.Func(func(context.Context, *task.Task[int]) error { return nil },
			&pool.Options[int]{
				Logger: quiet, Workers: 1,
				Classes: []pool.Class[int]{{Name: "a", Queue: q}, {Name: "b"}},
			})
		require.NoError(t, p.Submit(ctx, "a", 0))
		synctest.Wait()
		require.NoError(t, q.Close(ctx))
		for range 2 {
			synctest.Wait()
			_, err = p.Put(ctx, "b", 0, pool.PutOptions{Class: "b"})
			require.NoError(t, err)
		}
		synctest.Wait()
		require.EqualValues(t, 3, p.Stats().Succeeded)
		require.NoError(t, p.Shutdown(ctx))
	})
}

// After an invalid policy from ForTask no task stays with a worker that has ended its attempt.
func TestPolicyOfForTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		p := pool.Func(func(context.Context, *task.Task[int]) error { return errSink },
			&pool.Options[int]{Logger: quiet, ForTask: func(_ *task.Task[int], p pool.Policy) pool.Policy {
				p.Backoff = pool.Backoff{Base: 2 * task.MaxDuration, Max: 2 * task.MaxDuration}
				return p
			}})
		require.NoError(t, p.Submit(ctx, "a", 0))
		synctest.Wait()
		require.EqualValues(t, 1, p.Stats().Retried)
		requireLeft(t, p, p.Shutdown(ctx), 1)
	})
}

// A task is being taken while the number of workers is lowered. It starts only when the number of
// running workers allows it.
func TestTakenWhileMaxSinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		q, _ := openDatabase[time.Duration](t, time.Second, nil)
		var running, most atomic.Int32
		p := pool.New(q, func(_ context.Context, t *task.Task[time.Duration]) error {
			if n := running.Add(1); n > most.Load() && most.Load() > 0 {
				most.Store(n + 100)
			}
			defer running.Add(-1)
			time.Sleep(t.Payload)
			return nil
		}, &pool.Options[time.Duration]{Logger: quiet, Workers: 4})
		for _, d := range []time.Duration{5 * time.Second, time.Minute, time.Minute, time.Second} {
			require.NoError(t, p.Submit(ctx, "a", d))
		}
		time.Sleep(3500 * time.Millisecond) // three are running, the fourth is being taken
		require.EqualValues(t, 3, running.Load())
		require.NoError(t, p.SetWorkers(1, 1))
		most.Store(1)
		time.Sleep(30 * time.Second)
		require.EqualValues(t, 2, running.Load())
		time.Sleep(time.Hour)
		require.EqualValues(t, 1, most.Load())
		require.EqualValues(t, 4, p.Stats().Succeeded)
		require.NoError(t, p.Shutdown(ctx))
	})
}

// Sinks that wait delay Shutdown only until its context is done, and by one AbandonAfter for all
// letters that are left. A sink that ignores its own context too is abandoned after as long again.
func TestShutdownWithSinkThatWaits(t *testing.T) {
	for _, listens := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			leave := make(chan struct{})
			p := pool.Func(newGate().handle, &pool.Options[int]{
				Logger: quiet, Workers: 1,
				DeadLetters: func(ctx context.Context, _ *pool.DeadLetter[int]) error {
					if listens {
						<-ctx.Done()
						return ctx.Err()
					}
					<-leave
					return nil
				},
			})
			for i := range 3 { // the first one runs
				require.NoError(t, p.Submit(t.Context(), "a", i))
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			begin := time.Now()
			err := p.Shutdown(ctx)
			if listens {
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Equal(t, time.Minute+time.Second, time.Since(begin))
			} else {
				require.ErrorIs(t, err, pool.ErrAbandoned)
				require.ErrorContains(t, err, "abandoned: 1 ")
				require.Equal(t, time.Minute+2*time.Second, time.Since(begin))
			}
			close(leave)
			require.Zero(t, goroutines())
			require.Len(t, p.Leftovers(), 3)
		})
	}
}
