package pool_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
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

// TestMaxInFlightPerKey checks each start, and that no worker rests while a key could be served.
func TestMaxInFlightPerKey(t *testing.T) {
	r := chance(t)
	for range 30 {
		synctest.Test(t, func(t *testing.T) {
			most, workers := 1+r.IntN(3), 1+r.IntN(8)
			var mu sync.Mutex
			running, waiting := map[string]int{}, map[string]int{}
			begin := func(key string, runs, waits int) {
				mu.Lock()
				defer mu.Unlock()
				running[key] += runs
				waiting[key] += waits
				assert.LessOrEqual(t, running[key], most)
			}
			leave := make(chan struct{}, 1000)
			p := openFunc(t, func(_ context.Context, tk *task.Task[int]) error {
				begin(tk.Key, 1, -1)
				defer begin(tk.Key, -1, 0)
				<-leave
				return nil
			}, pool.Options[int]{Workers: workers, MaxInFlightPerKey: most})
			for range 100 {
				if key := strconv.Itoa(r.IntN(4)); r.IntN(2) == 0 {
					begin(key, 0, 1)
					require.NoError(t, p.Submit(t.Context(), key, 0))
				} else if p.Stats().Running > 0 {
					leave <- struct{}{}
				}
				synctest.Wait()
				mu.Lock()
				for key, n := range waiting {
					require.True(t, n == 0 || running[key] == most || p.Stats().Idle == 0 && p.Stats().Workers == workers)
				}
				mu.Unlock()
			}
			close(leave)
			wait(t, p)
			end(t, t.Context(), p)
		})
	}
}

// TestTimeout has a handler that listens to its context, and one that does not: it may finish.
func TestTimeout(t *testing.T) {
	for _, listens := range []bool{true, false} {
		inBubble(t, func(t *testing.T, ctx context.Context) {
			p := openFunc(t, func(ctx context.Context, _ *task.Task[int]) error {
				if listens {
					<-ctx.Done()
					return ctx.Err()
				}
				time.Sleep(time.Hour)
				return nil
			}, pool.Options[int]{Workers: 1, Policy: pool.Policy{Timeout: time.Minute, MaxAttempts: 1}})
			begin := time.Now()
			err := p.Do(ctx, "a", 1, pool.PutOptions{})
			if listens {
				require.EqualError(t, err, "pool: handler timed out: context deadline exceeded")
				require.Equal(t, time.Minute, time.Since(begin))
			} else {
				require.NoError(t, err)
				require.Equal(t, time.Hour, time.Since(begin))
			}
			end(t, ctx, p)
		})
	}
}

//go:noinline
func panicHere(v any) { panic(v) }

// TestPanics has handlers that panic, with anything, or end their goroutine. The pool goes on.
func TestPanics(t *testing.T) {
	for name, v := range map[string]any{"error": errNo, "text": "boo", "nil": nil, "goexit": 0} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, ctx context.Context) {
				var box mailbox[int]
				var workers atomic.Int64
				p := openFunc(t, func(_ context.Context, tk *task.Task[int]) error {
					switch {
					case tk.Payload > 0:
						return nil
					case name == "goexit":
						runtime.Goexit()
					}
					panicHere(v)
					return nil
				}, pool.Options[int]{
					Workers: 1, DeadLetters: box.sink, Policy: pool.Policy{MaxAttempts: 3},
					Observer: pool.Observer[int]{Scaled: func(from, to int) { workers.Add(int64(to - from)) }},
				})
				require.Error(t, p.Do(ctx, "a", 0, pool.PutOptions{}))
				require.NoError(t, p.Do(ctx, "a", 1, pool.PutOptions{}))
				synctest.Wait()
				s := p.Stats()
				require.Equal(t, [4]uint64{4, 2, 1, 1}, [4]uint64{s.Started, s.Retried, s.Failed, s.Succeeded})
				require.EqualValues(t, s.Workers, workers.Load())
				require.Len(t, box.all(), 1)
				err := box.all()[0].Err
				var panicked *pool.PanicError
				if name == "goexit" {
					require.EqualError(t, err, "pool: handler called runtime.Goexit")
					require.Zero(t, s.Panics)
				} else {
					require.Equal(t, uint64(3), s.Panics)
					require.ErrorAs(t, err, &panicked)
					require.Contains(t, string(panicked.Stack), "panicHere")
				}
				switch name {
				case "error":
					require.ErrorIs(t, err, errNo)
					require.ErrorContains(t, err, "task: panic in the handler: no")
				case "text":
					require.Equal(t, "boo", panicked.Value)
					require.ErrorIs(t, err, pool.ErrPanic)
				case "nil":
					require.ErrorAs(t, err, new(*runtime.PanicNilError))
				}
				end(t, ctx, p)
			})
		})
	}
}

// TestPanicsOfItems does so with a FairQueue.
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
		}, &pool.Options[int]{Workers: 1, DeadLetters: box.sink, Logger: quiet, Policy: pool.Policy{Timeout: time.Second}})
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
				require.ErrorAs(t, l.Err, new(*pool.PanicError))
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
		require.Equal(t, [5]uint64{5, 1, 4, 1, 4}, [5]uint64{s.Started, s.Succeeded, s.Failed, s.Panics, s.DeadLetters})
		require.NoError(t, w.Shutdown(ctx))
	})
}

// TestMiddleware wraps a handler twice.
func TestMiddleware(t *testing.T) {
	var order []string
	say := func(what string) func(pool.Handler[*task.Task[int]]) pool.Handler[*task.Task[int]] {
		return func(next pool.Handler[*task.Task[int]]) pool.Handler[*task.Task[int]] {
			return func(ctx context.Context, tk *task.Task[int]) error {
				order = append(order, what)
				defer func() { order = append(order, "end of "+what) }()
				return next(ctx, tk)
			}
		}
	}
	p := openFunc(t, say("a")(say("b")(func(context.Context, *task.Task[int]) error {
		order = append(order, "work")
		return nil
	})), pool.Options[int]{Workers: 1})
	require.NoError(t, p.Do(t.Context(), "a", 1, pool.PutOptions{}))
	require.Equal(t, []string{"a", "b", "work", "end of b", "end of a"}, order)
	end(t, t.Context(), p)
}

// TestMux has handlers by kind, and switches kinds on and off: so they can be drained in order.
func TestMux(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		var mu sync.Mutex
		var order []string
		handler := func(_ context.Context, tk *task.Task[int]) error {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, tk.Kind)
			return nil
		}
		mux := pool.Mux[int]{"write": handler, "read": handler, "audit": handler}
		require.Equal(t, []string{"audit", "read", "write"}, mux.Kinds())
		p := openFunc(t, mux.Handle, pool.Options[int]{Workers: 2, Kinds: []string{"none yet"}})
		for i := range 30 {
			_, err := p.Put(ctx, strconv.Itoa(i%4), i, pool.PutOptions{Kind: mux.Kinds()[i%3]})
			require.NoError(t, err)
		}
		_, err := p.Put(ctx, "a", 1, pool.PutOptions{Kind: "other", UniqueKey: "x"})
		require.NoError(t, err)
		synctest.Wait()
		require.Empty(t, order)
		var kinds []string
		var want []string
		for _, kind := range []string{"write", "audit", "read"} {
			kinds = append(kinds, kind)
			p.SetKinds(kinds)
			synctest.Wait()
			want = append(want, slices.Repeat([]string{kind}, 10)...)
			require.Equal(t, want, order)
		}
		p.SetKinds(nil)
		synctest.Wait()
		require.Equal(t, want, order)
		require.EqualError(t, p.Queue("").Wait(ctx, "x"), `pool: invalid: there is no handler for kind "other"`)
		require.Equal(t, [2]uint64{1, 0}, [2]uint64{p.Stats().Failed, p.Stats().Retried})
		end(t, ctx, p)
	})
}

// TestKindsAtRunTime switches kinds at random, with several workers, and checks what is started
// and what waits.
func TestKindsAtRunTime(t *testing.T) {
	r := chance(t)
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			g := newGate()
			all, on := []string{"a", "b", "c"}, []string{"a", "b", "c"}
			var mu sync.Mutex
			waiting := map[string]int{}
			p := openFunc(t, func(ctx context.Context, tk *task.Task[int]) error {
				mu.Lock()
				assert.Contains(t, on, tk.Kind)
				waiting[tk.Kind]--
				mu.Unlock()
				return g.handle(ctx, tk)
			}, pool.Options[int]{Workers: 3, Kinds: all, Classes: anyClasses(r, 3)})
			for range 100 {
				switch r.IntN(3) {
				case 0:
					mu.Lock()
					on = nil
					for _, kind := range all {
						if r.IntN(2) == 0 {
							on = append(on, kind)
						}
					}
					mu.Unlock()
					kinds := append([]string{}, on...)
					p.SetKinds(kinds)
					clear(kinds) // it has a copy
				case 1:
					mu.Lock()
					kind := all[r.IntN(3)]
					waiting[kind]++
					mu.Unlock()
					_, err := p.Put(t.Context(), strconv.Itoa(r.IntN(3)), 0, pool.PutOptions{Class: strconv.Itoa(r.IntN(2)), Kind: kind})
					require.NoError(t, err)
				case 2:
					g.let(r.IntN(p.Stats().Running + 1))
				}
				synctest.Wait()
				mu.Lock()
				for _, kind := range on {
					require.True(t, waiting[kind] == 0 || p.Stats().Running == 3)
				}
				mu.Unlock()
			}
		})
	}
}

// TestTransit has two pools in line, the second of which is slow and small: it holds up the first
// one.
func TestTransit(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		g := newGate()
		next := openQueue(t, &task.Options[int]{Capacity: 2})
		second := openNew(t, next, func(ctx context.Context, tk *task.Task[int]) error {
			assert.Equal(t, [4]any{"alice", "mail", 3, 4}, [4]any{tk.Key, tk.Kind, tk.Priority, tk.Info().MaxAttempts})
			return g.handle(ctx, tk)
		}, pool.Options[int]{Workers: 1})
		first := openFunc(t, pool.Transit(next), pool.Options[int]{Workers: 1, Capacity: 2, WhenFull: pool.Reject})
		options := pool.PutOptions{Kind: "mail", Priority: 3, MaxAttempts: 4}
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

// TestTransitKeepsDeadline is about the only option that is a time.
func TestTransitKeepsDeadline(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		next := openQueue[int](t, nil)
		p := openFunc(t, pool.Transit(next), pool.Options[int]{Workers: 1, DeadlineAfter: time.Hour})
		require.NoError(t, p.Submit(ctx, "a", 1))
		wait(t, p)
		time.Sleep(time.Hour - time.Nanosecond)
		s, err := next.Stats(ctx)
		require.NoError(t, err)
		require.Equal(t, 1, s.Len())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		s, err = next.Stats(ctx)
		require.NoError(t, err)
		require.Zero(t, s.Len())
		end(t, ctx, p)
	})
}

// TestChain fails in each of the steps, or in none.
func TestChain(t *testing.T) {
	for fails := range 4 {
		var calls []int
		step := func(i int) pool.Step[int] {
			return pool.Step[int]{Name: fmt.Sprint("s", i), Handle: func(_ context.Context, n int) error {
				calls = append(calls, n+i)
				if i == fails {
					return errNo
				}
				return nil
			}}
		}
		err := pool.Chain(step(0), step(1), step(2))(t.Context(), 10)
		require.Equal(t, []int{10, 11, 12}[:min(fails+1, 3)], calls)
		if fails == 3 {
			require.NoError(t, err)
			continue
		}
		require.EqualError(t, err, fmt.Sprintf("step s%d: no", fails))
		require.ErrorIs(t, err, errNo)
	}
	require.NoError(t, pool.Chain[int]()(t.Context(), 1))
}

// TestChainOfErrorsThatSayWhen lets the errors of this package through.
func TestChainOfErrorsThatSayWhen(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		p := openFunc(t, pool.Chain(pool.Step[*task.Task[int]]{Name: "only", Handle: func(context.Context, *task.Task[int]) error {
			return pool.Permanent(errNo)
		}}), pool.Options[int]{Workers: 1})
		require.EqualError(t, p.Do(ctx, "a", 1, pool.PutOptions{}), "step only: no")
		require.Equal(t, uint64(1), p.Stats().Started)
		end(t, ctx, p)
	})
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
		var panicked *pool.PanicError
		require.ErrorAs(t, err, &panicked)
		require.Equal(t, "boo", panicked.Value)
		require.Contains(t, string(panicked.Stack), "panicHere")
		require.ErrorContains(t, err, "runtime.Goexit")
		require.NoError(t, pool.Parallel[int]()(ctx, 1))
	})
}
