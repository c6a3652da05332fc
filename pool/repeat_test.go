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

// Wait and StopAndWait do not wait for the repetitions of a task: not while they are delayed.
// They wait for everything else: running repetitions, retries, first delays, and a repetition that
// was replaced.
func TestWaitForRepeats(t *testing.T) {
	const m = time.Minute
	for _, inMemory := range []bool{true, false} {
		inBubble(t, func(t *testing.T, ctx context.Context) {
			begin := time.Now()
			var failures atomic.Int32
			q := openQueue[int](t, nil)
			if !inMemory {
				q, _ = openDatabase[int](t, time.Millisecond, nil)
			}
			p := openNew(t, q, pool.Repeat(func(put, now time.Time) time.Time {
				if q.Name() == "" {
					return time.Time{}
				}
				return hourly(begin, now)
			}, func(context.Context, *task.Task[int]) error {
				time.Sleep(m)
				if failures.Add(-1) >= 0 {
					return pool.RetryAfter(m)
				}
				return nil
			}), pool.Options[int]{Workers: 2})
			waits := func(until time.Duration) {
				t.Helper()
				wait(t, p)
				require.Equal(t, until, time.Since(begin).Round(time.Second))
			}
			put := func(o pool.PutOptions) task.ID {
				id, err := p.Put(ctx, "a", 0, o)
				require.NoError(t, err)
				return id
			}
			o := pool.PutOptions{PutOptions: task.PutOptions{UniqueKey: "hourly", Replace: true}}
			id := put(o)
			waits(m)
			waits(m) // it is delayed
			time.Sleep(time.Hour - m)
			synctest.Wait()
			waits(61 * m) // it runs
			failures.Store(2)
			time.Sleep(time.Hour - m)
			synctest.Wait()
			waits(125 * m) // it is tried again
			o.Delay = 5 * m
			require.Equal(t, id, put(o))
			waits(131 * m)
			require.NoError(t, q.Delete(ctx, id))
			o.Delay = m
			put(o)
			waits(133 * m) // its first delay
			require.NoError(t, p.StopAndWait(ctx))
			require.Equal(t, 133*m, time.Since(begin).Round(time.Second))
			s, err := q.Stats(ctx)
			require.NoError(t, err)
			require.Equal(t, 1, s.Delayed)
		})
	}
}

// A task that is repeated at once is a leftover of the pool's own queue when the backlog is done.
func TestStopAndWaitWithRepeats(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		runs := 0
		p := openFunc(t, pool.Repeat(func(_, now time.Time) time.Time { return now },
			func(_ context.Context, tk *task.Task[int]) error {
				runs++
				time.Sleep(time.Second)
				return nil
			}), pool.Options[int]{Workers: 1})
		require.NoError(t, p.Submit(ctx, "a", 0))
		time.Sleep(time.Minute + time.Second/2)
		requireLeft(t, p, p.StopAndWait(ctx), 1)
		require.LessOrEqual(t, runs, 62)
	})
}

// A Wait ends with Shutdown, even if it looks when the last worker has ended and a Submit has not.
// This takes real time, because in a bubble the goroutines come in a better order.
func TestWaitBesideShutdown(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 500 {
		begun, goOn := make(chan bool), make(chan bool)
		p := pool.Func(newGate().handle, &pool.Options[int]{
			Logger: quiet, Workers: 8,
			Queue: task.Options[int]{Weight: func(key string) int {
				if key == "late" {
					close(begun)
					<-goOn
					return 0 // so it is refused
				}
				return 1
			}},
		})
		for range 8 {
			require.NoError(t, p.Submit(t.Context(), "a", 1))
		}
		go func() { _ = p.Submit(t.Context(), "late", 2) }()
		<-begun
		waited, stopped := make(chan error, 1), make(chan error, 1)
		go func() { waited <- p.Wait(t.Context()) }()
		go func() { stopped <- p.Shutdown(ctx) }()
		time.Sleep(100 * time.Microsecond)
		close(goOn)
		require.ErrorIs(t, <-stopped, pool.ErrShutdown)
		select {
		case err := <-waited:
			require.ErrorIs(t, err, pool.ErrShutdown)
		case <-time.After(10 * time.Second):
			t.Fatal("Wait goes on")
		}
	}
}
