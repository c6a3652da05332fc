package pool_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// TestLettersTakeTurns has a tenant whose tasks all fail, and a slow sink: the workers go on, and
// the letter of another tenant does not wait for all of the first one's.
func TestLettersTakeTurns(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		var box mailbox[int]
		p := openFunc(t, func(context.Context, *task.Task[int]) error { return pool.Permanent(errNo) },
			pool.Options[int]{
				Workers: 1,
				DeadLetters: func(ctx context.Context, l *pool.DeadLetter[int]) error {
					time.Sleep(time.Second)
					return box.sink(ctx, l)
				},
			})
		for i := range 100 {
			require.NoError(t, p.Submit(ctx, "flood", i))
		}
		synctest.Wait()
		require.Zero(t, p.Stats().Running)
		require.NoError(t, p.Submit(ctx, "other", 100))
		time.Sleep(3*time.Second + 1)
		require.Equal(t, 100, box.all()[2].Payload)
		end(t, ctx, p)
		require.Len(t, box.all(), 101)
	})
}

// TestOutboxIsBounded has a sink that does not end. Without room in the outbox the worker and
// Submit wait, but neither a handler nor TrySubmit.
func TestOutboxIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		leave := make(chan struct{})
		p := openFunc(t,
			func(context.Context, *task.Task[int]) error { return pool.Permanent(errNo) },
			pool.Options[int]{
				Workers: 1,
				DeadLetters: func(context.Context, *pool.DeadLetter[int]) error {
					<-leave
					return nil
				},
			})
		for i := range 300 {
			_, err := p.TrySubmit(ctx, "a", i, pool.PutOptions{})
			require.NoError(t, err)
		}
		synctest.Wait()
		s := p.Stats()
		require.Equal(t, [2]uint64{256, 0}, [2]uint64{s.Started, s.Failed})
		late := later(func() error { return p.Submit(ctx, "a", 0) })
		synctest.Wait()
		require.Empty(t, late)
		close(leave)
		require.NoError(t, <-late)
		end(t, ctx, p)
		require.Equal(t, uint64(301), p.Stats().DeadLetters)
	})
}

// TestLeaseOfLetter has a sink that takes longer than the leases of its tasks, and letters that
// wait for it. Each letter is sent once, and its task is gone after it.
func TestLeaseOfLetter(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		q := openQueue(t, &task.Options[int]{TTR: time.Second})
		var box mailbox[int]
		p := openNew(t, q, func(context.Context, *task.Task[int]) error {
			time.Sleep(time.Second / 2)
			return pool.Permanent(errNo)
		}, pool.Options[int]{
			Workers: 1, DeadLetters: func(ctx context.Context, l *pool.DeadLetter[int]) error {
				time.Sleep(10 * time.Second)
				return box.sink(ctx, l)
			},
		})
		putMany(t, q, 3, task.PutOptions{})
		wait(t, p)
		require.Len(t, box.all(), 3)
		s, err := q.Stats(ctx)
		require.NoError(t, err)
		require.Equal(t, [3]int{0, 3, 3}, [3]int{s.Len(), int(s.Takes), int(p.Stats().Failed)})
		end(t, ctx, p)
	})
}

// TestLetterWhoseTaskStays has a store that is away from the moment on at which the sink takes a
// letter. Shutdown says so, and the task is in its queue when the store is back.
func TestLetterWhoseTaskStays(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		q, db := openDatabase[int](t, time.Millisecond, nil)
		var away atomic.Bool
		db.fails = func(string) bool { return away.Load() }
		p := openNew(t, q, func(context.Context, *task.Task[int]) error { return pool.Permanent(errNo) },
			pool.Options[int]{
				Workers: 1,
				DeadLetters: func(context.Context, *pool.DeadLetter[int]) error {
					away.Store(true)
					return nil
				},
			})
		putMany(t, q, 1, task.PutOptions{})
		time.Sleep(time.Second)
		soon, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		require.ErrorIs(t, p.Shutdown(soon), pool.ErrAbandoned)
		require.Equal(t, [2]uint64{1, 1}, [2]uint64{p.Stats().DeadLetters, p.Stats().Lost})
		away.Store(false)
		require.NoError(t, p.Shutdown(ctx))
		s, err := q.Stats(ctx)
		require.NoError(t, err)
		require.Equal(t, [2]int{1, 0}, [2]int{s.Ready, s.Taken})
	})
}
