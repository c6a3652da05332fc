package pool_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

//go:noinline
func panicHere(v any) { panic(v) }

// TestPanics has handlers that panic, with anything, or end their goroutine. The pool goes on.
func TestPanics(t *testing.T) {
	for name, v := range map[string]any{"error": errNo, "text": "boo", "nil": nil, "goexit": 0} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, ctx context.Context) {
				p := openFunc(t, func(_ context.Context, tk *task.Task[int]) error {
					switch {
					case tk.Payload > 0:
						return nil
					case name == "goexit":
						runtime.Goexit()
					}
					panicHere(v)
					return nil
				}, pool.Options[int]{Workers: 1, Policy: pool.Policy{MaxAttempts: 3}})
				require.Error(t, p.Do(ctx, "a", 0, pool.PutOptions{}))
				require.NoError(t, p.Do(ctx, "a", 1, pool.PutOptions{}))
				synctest.Wait()
				err := p.Failures()[0].Err
				s := p.Stats()
				require.Equal(t, [4]uint64{4, 2, 1, 1}, [4]uint64{s.Started, s.Retried, s.Failed, s.Succeeded})
				end(t, ctx, p)
				if name == "goexit" {
					require.EqualError(t, err, "pool: handler called runtime.Goexit")
					return
				}
				var panicked *task.PanicError
				require.ErrorAs(t, err, &panicked)
				require.ErrorIs(t, err, task.ErrPanic)
				require.Contains(t, string(panicked.Stack), "panicHere")
				switch name {
				case "error":
					require.ErrorIs(t, err, errNo)
					require.ErrorContains(t, err, "task: panic in the handler: no")
				case "text":
					require.Equal(t, "boo", panicked.Value)
				case "nil":
					require.ErrorAs(t, err, new(*runtime.PanicNilError))
				}
			})
		})
	}
}

// TestPanicsOfItems is TestPanics with a FairQueue.
func TestPanicsOfItems(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		var box mailbox[int]
		q := fairq.New(func(int) string { return "a" }, nil)
		w := pool.NewWorkers(q, func(ctx context.Context, n int) error {
			switch n {
			case 0:
				return nil
			case 1:
				panicHere(errNo)
			case 2:
				runtime.Goexit()
			case 3:
				<-ctx.Done()
				return ctx.Err()
			}
			return errNo
		}, &pool.WorkersOptions[int]{
			Workers: 1, DeadLetters: box.sink, Logger: quiet,
			Timeout: time.Second,
		})
		for n := range 5 {
			require.NoError(t, q.Push(n))
		}
		require.NoError(t, w.Wait(ctx))
		require.Len(t, box.all(), 4)
		for i, l := range box.all() {
			require.Equal(t, i+1, l.Payload)
			require.Equal(t, pool.ReasonFailed, l.Reason)
			require.Equal(t, 1, l.Task.Attempts)
			switch i + 1 {
			case 1:
				require.ErrorAs(t, l.Err, new(*task.PanicError))
				require.ErrorIs(t, l.Err, errNo)
			case 2:
				require.EqualError(t, l.Err, "pool: handler called runtime.Goexit")
			case 3:
				require.ErrorIs(t, l.Err, pool.ErrTimeout)
			case 4:
				require.Equal(t, errNo, l.Err)
			}
		}
		s := w.Stats()
		require.Equal(t, [4]uint64{5, 1, 4, 4},
			[4]uint64{s.Started, s.Succeeded, s.Failed, s.DeadLetters})
		require.NoError(t, w.Shutdown(ctx))
	})
}
