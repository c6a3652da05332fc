package pool_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
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

// TestMaxInFlightPerKey has more workers than two keys may use.
func TestMaxInFlightPerKey(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		g := newGate()
		var left [2]atomic.Int32 // tasks of a key that have not ended
		p := openFunc(t, func(ctx context.Context, t *task.Task[int]) error {
			defer left[t.Payload%2].Add(-1)
			return g.handle(ctx, t)
		}, pool.Options[int]{Workers: 8, Queue: task.Options[int]{MaxInFlightPerKey: 2}})
		for n := range 10 {
			left[n%2].Add(1)
			require.NoError(t, p.Submit(ctx, strconv.Itoa(n%2), n))
		}
		synctest.Wait()
		for range 10 {
			require.EqualValues(t, min(2, left[0].Load())+min(2, left[1].Load()), p.Stats().Running)
			g.let(1)
		}
		end(t, ctx, p)
	})
}

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
					require.Zero(t, s.Panics)
					return
				}
				require.Equal(t, uint64(3), s.Panics)
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
			require.Equal(t, 1, l.Attempts)
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
		require.Equal(t, [5]uint64{5, 1, 4, 1, 4},
			[5]uint64{s.Started, s.Succeeded, s.Failed, s.Panics, s.DeadLetters})
		require.NoError(t, w.Shutdown(ctx))
	})
}

// TestMux has a task of a kind without a handler, which fails for good; ExampleMux has the others.
func TestMux(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		mux := pool.Mux[int]{"write": nothing, "read": nothing, "audit": nothing}
		kinds := mux.Kinds()
		require.Equal(t, []string{"audit", "read", "write"}, kinds)
		p := openFunc(t, mux.Handle, pool.Options[int]{Workers: 2, Kinds: kinds})
		kinds[0] = "other" // the pool has a copy
		for range 2 {
			_, err := p.Put(ctx, "a", 1, pool.PutOptions{PutOptions: task.PutOptions{Kind: "audit"}})
			require.NoError(t, err)
			synctest.Wait()
		}
		_, err := p.Put(ctx, "a", 1, pool.PutOptions{PutOptions: task.PutOptions{
			Kind: "other", UniqueKey: "x",
		}})
		require.NoError(t, err)
		synctest.Wait()
		require.EqualValues(t, 2, p.Stats().Started)
		p.Pause()
		tk, err := p.Queue("").Find(ctx, "x")
		require.NoError(t, err)
		require.EqualError(t, pool.Mux[int]{}.Handle(ctx, tk),
			`pool: invalid: there is no handler for kind "other"`)
		require.ErrorIs(t, p.Shutdown(ctx), pool.ErrShutdown)
	})
}

// TestTransit has two pools in line; the second one is slow and small, and slows the first one.
func TestTransit(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		g := newGate()
		next := openQueue(t, &task.Options[int]{Capacity: 2})
		second := openNew(t, next, func(ctx context.Context, tk *task.Task[int]) error {
			assert.Equal(t, [4]any{"alice", "mail", 3, 4},
				[4]any{tk.Key, tk.Kind, tk.Priority, tk.Info().MaxAttempts})
			return g.handle(ctx, tk)
		}, pool.Options[int]{Workers: 1})
		first := openFunc(t, pool.Transit(next),
			pool.Options[int]{Workers: 1, Queue: task.Options[int]{Capacity: 2}, WhenFull: pool.Reject})
		options := pool.PutOptions{PutOptions: task.PutOptions{
			Kind: "mail", Priority: 3, MaxAttempts: 4,
		}}
		put := 0
		for range 10 {
			if _, err := first.Put(ctx, "alice", put, options); err == nil {
				put++
			}
			synctest.Wait()
		}
		// 1 runs and 1 is queued in the second, 1 waits for room and 2 are queued in the first
		require.Equal(t, 5, put)
		for done := range 5 {
			require.Equal(t, uint64(min(2+done, 5)), first.Stats().Succeeded)
			g.let(1)
		}
		_, started := g.now()
		require.Equal(t, []int{0, 1, 2, 3, 4}, started)
		end(t, ctx, first)
		require.NoError(t, second.Shutdown(ctx))
	})
}

// TestChain fails in each of the steps, or in none.
func TestChain(t *testing.T) {
	for fails := range 4 {
		var calls []int
		step := func(i int) pool.Handler[int] {
			return func(_ context.Context, n int) error {
				calls = append(calls, n+i)
				if i == fails {
					return errNo
				}
				return nil
			}
		}
		err := pool.Chain(step(0), step(1), step(2))(t.Context(), 10)
		require.Equal(t, []int{10, 11, 12}[:min(fails+1, 3)], calls)
		if fails == 3 {
			require.NoError(t, err)
			continue
		}
		require.EqualError(t, err, fmt.Sprintf("step %d: no", fails+1))
		require.ErrorIs(t, err, errNo)
	}
	require.NoError(t, pool.Chain[int]()(t.Context(), 1))
}

// TestParallel has handlers that take their time, fail and panic.
func TestParallel(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		errOther := errors.New("other")
		begin := time.Now()
		sleep := func(d time.Duration, err error) pool.Handler[int] {
			return func(context.Context, int) error { time.Sleep(d); return err }
		}
		require.NoError(t, pool.Parallel(sleep(time.Second, nil), sleep(time.Minute, nil))(ctx, 1))
		require.Equal(t, time.Minute, time.Since(begin))
		err := pool.Parallel(sleep(time.Hour, errNo), sleep(0, nil), sleep(time.Second, errOther),
			func(context.Context, int) error { panicHere("boo"); return nil },
			func(context.Context, int) error { runtime.Goexit(); return nil })(ctx, 1)
		require.Equal(t, time.Minute+time.Hour, time.Since(begin))
		require.ErrorIs(t, err, errNo)
		require.ErrorIs(t, err, errOther)
		var panicked *task.PanicError
		require.ErrorAs(t, err, &panicked)
		require.Equal(t, "boo", panicked.Value)
		require.Contains(t, string(panicked.Stack), "panicHere")
		require.ErrorContains(t, err, "runtime.Goexit")
		require.NoError(t, pool.Parallel[int]()(ctx, 1))
	})
}
