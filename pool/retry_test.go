package pool_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// anyBackoff returns one with all that it can have.
func anyBackoff(r *rand.Rand) pool.Backoff {
	b := pool.Backoff{Curve: pool.Curve(r.IntN(8)), Jitter: pool.Jitter(r.IntN(4)), Base: time.Duration(1 + r.Int64N(int64(time.Minute)))}
	if r.IntN(2) == 0 {
		b.Max = b.Base + time.Duration(r.Int64N(int64(time.Hour)))
	}
	return b
}

// TestDefaultsOfFunc is about what its first lines say.
func TestDefaultsOfFunc(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		var tries atomic.Int64
		p := openFunc(t, func(context.Context, *task.Task[int]) error { tries.Add(1); return errNo }, pool.Options[int]{})
		begin := time.Now()
		require.Error(t, p.Do(ctx, "a", 0, pool.PutOptions{}))
		require.EqualValues(t, 10, tries.Load())
		require.Equal(t, 511*time.Second, time.Since(begin)) // 1 + 2 + 4 ... + 256
	})
}

// TestRetryDelays has tasks that always fail, and take some time to. When each attempt begins is
// exactly as the backoff says; with a jitter, what it says is what the observer is told.
func TestRetryDelays(t *testing.T) {
	r := chance(t)
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			b, most, runs := anyBackoff(r), 1+r.IntN(12), time.Duration(r.Int64N(int64(time.Minute)))
			var starts []time.Time
			var told []time.Duration
			var box mailbox[int]
			p := openFunc(t, func(_ context.Context, tk *task.Task[int]) error {
				starts = append(starts, time.Now())
				require.Equal(t, len(starts), tk.Attempts)
				time.Sleep(runs)
				return errNo
			}, pool.Options[int]{
				Workers: 1, Policy: pool.Policy{MaxAttempts: most, Backoff: b}, DeadLetters: box.sink,
				Observer: pool.Observer[int]{Retried: func(_ context.Context, _ string, _ *task.Task[int], ran, delay time.Duration, err error) {
					require.Equal(t, runs, ran)
					require.ErrorIs(t, err, errNo)
					told = append(told, delay)
				}},
			})
			begin := time.Now()
			require.NoError(t, p.Submit(t.Context(), "a", 0))
			wait(t, p)
			require.Len(t, starts, most)
			require.Len(t, told, most-1)
			require.Equal(t, begin, starts[0])
			for i, delay := range told {
				if b.Jitter == pool.NoJitter && b.Curve != pool.Random {
					require.Equal(t, b.Delay(i+1), delay)
				}
				require.LessOrEqual(t, delay, cmp.Or(b.Max, time.Hour))
				require.Equal(t, starts[i].Add(runs+delay), starts[i+1])
			}
			require.Len(t, box.all(), 1)
			require.Equal(t, most, box.all()[0].Attempts)
			s := p.Stats()
			require.Equal(t, [3]uint64{uint64(most), uint64(most - 1), 1}, [3]uint64{s.Started, s.Retried, s.Failed})
			end(t, t.Context(), p)
		})
	}
}

// TestMaxAttempts counts the attempts of tasks that always fail, with limits of their own, of the
// queue, of the pool and of ForTask. Without a limit they are done after 100.
func TestMaxAttempts(t *testing.T) {
	r := chance(t)
	const never = 100
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			any := func() int { return []int{-1, 0, 1 + r.IntN(30)}[r.IntN(3)] }
			own, policy, perTask, queues := any(), any(), any(), r.IntN(2)*r.IntN(20)
			useForTask := r.IntN(2) == 0
			attempts := 0
			o := pool.Options[int]{Workers: 1, Policy: pool.Policy{MaxAttempts: policy}}
			if useForTask {
				o.ForTask = func(tk *task.Task[int], p pool.Policy) pool.Policy {
					require.Equal(t, policy, p.MaxAttempts)
					p.MaxAttempts = perTask
					return p
				}
			}
			var box mailbox[int]
			o.DeadLetters = box.sink
			p := openNew(t, openQueue(t, &task.Options[int]{MaxAttempts: queues}), func(context.Context, *task.Task[int]) error {
				if attempts++; attempts == never {
					return nil
				}
				return errNo
			}, o)
			_, err := p.Put(t.Context(), "a", 0, pool.PutOptions{MaxAttempts: own})
			require.NoError(t, err)
			wait(t, p)
			if useForTask {
				policy = perTask
			}
			want := own
			if own == 0 {
				want = cmp.Or(queues, policy, pool.DefaultMaxAttempts)
			}
			letters := 1
			if want < 0 {
				want, letters = never, 0
			}
			require.Equal(t, want, attempts, "of its own %d, queue %d, policy %d", own, queues, policy)
			require.Len(t, box.all(), letters)
			require.NoError(t, p.Shutdown(t.Context()))
		})
	}
}

// TestErrorsThatSayWhen has handlers that return the errors of this package, also wrapped and
// joined.
func TestErrorsThatSayWhen(t *testing.T) {
	require.NoError(t, pool.Permanent(nil))
	for name, c := range map[string]struct {
		err    error
		starts []time.Duration // of 3 attempts at most; the backoff is a second
		text   string
	}{
		"plain":          {errNo, []time.Duration{0, time.Second, 2 * time.Second}, "no"},
		"permanent":      {pool.Permanent(errNo), []time.Duration{0}, "no"},
		"wrapped":        {fmt.Errorf("it failed: %w", pool.Permanent(errNo)), []time.Duration{0}, "it failed: no"},
		"after":          {pool.RetryAfter(time.Hour), []time.Duration{0, time.Hour, 2 * time.Hour}, "pool: to be tried again in 1h0m0s"},
		"after, because": {errors.Join(errNo, pool.RetryAfter(time.Hour)), []time.Duration{0, time.Hour, 2 * time.Hour}, "no\npool: to be tried again in 1h0m0s"},
		"at once":        {pool.RetryAfter(-time.Hour), []time.Duration{0, 0, 0}, "pool: to be tried again in 0s"},
		"too late":       {pool.RetryAfter(2 * task.MaxDuration), []time.Duration{0, task.MaxDuration, 2 * task.MaxDuration}, "pool: to be tried again in 876000h0m0s"},
		"both":           {errors.Join(pool.RetryAfter(time.Hour), pool.Permanent(errNo)), []time.Duration{0}, "pool: to be tried again in 1h0m0s\nno"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, ctx context.Context) {
				var box mailbox[int]
				var starts []time.Duration
				begin := time.Now()
				p := openFunc(t, func(context.Context, *task.Task[int]) error {
					starts = append(starts, time.Since(begin))
					return c.err
				}, pool.Options[int]{
					Workers: 1, Policy: pool.Policy{MaxAttempts: 3, Backoff: pool.Backoff{Curve: pool.Constant}}, DeadLetters: box.sink,
				})
				require.EqualError(t, p.Do(ctx, "a", 0, pool.PutOptions{}), c.text)
				synctest.Wait()
				require.Equal(t, c.starts, starts)
				require.Len(t, box.all(), 1)
				require.Equal(t, c.err, box.all()[0].Err)
				end(t, ctx, p)
			})
		})
	}
}

// TestInVain has a key whose handlers hang for longer than their leases last, or are never ready.
// Another key gets its share.
func TestInVain(t *testing.T) {
	for name, hang := range map[string]func() error{
		"Snooze":     func() error { time.Sleep(time.Millisecond); return pool.Snooze(0) },
		"RetryAfter": func() error { time.Sleep(time.Millisecond); return pool.RetryAfter(0) },
		"TTR":        func() error { time.Sleep(80 * time.Millisecond); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, ctx context.Context) {
				var good atomic.Int64
				q := openQueue(t, &task.Options[int]{TTR: 50 * time.Millisecond})
				for i := range 44 {
					_, err := q.Put(ctx, map[bool]string{true: "bad", false: "good"}[i < 4], 0, task.PutOptions{})
					require.NoError(t, err)
				}
				p := openNew(t, q, func(_ context.Context, t *task.Task[int]) error {
					if t.Key == "bad" {
						return hang()
					}
					good.Add(1)
					return nil
				}, pool.Options[int]{Workers: 2, Policy: pool.Policy{MaxAttempts: -1}})
				time.Sleep(3 * time.Second)
				require.EqualValues(t, 40, good.Load())
				require.Greater(t, p.Stats().Started, uint64(80)) // and bad went on
			})
		})
	}
}

// TestSnooze has a task that is not ready for its handler a hundred times, and then fails as often
// as it may.
func TestSnooze(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		var attempts []int
		begin, snoozed := time.Now(), 0
		p := openFunc(t, func(_ context.Context, tk *task.Task[int]) error {
			attempts = append(attempts, tk.Attempts)
			if len(attempts) <= 100 {
				return fmt.Errorf("later: %w", pool.Snooze(time.Minute))
			}
			return errNo
		}, pool.Options[int]{
			Workers: 1, Policy: pool.Policy{Backoff: pool.Backoff{Curve: pool.Constant, Base: time.Hour}},
			Observer: pool.Observer[int]{Retried: func(_ context.Context, _ string, _ *task.Task[int], _, _ time.Duration, err error) {
				if errors.Is(err, pool.ErrSnoozed) {
					snoozed++
				}
			}},
		})
		err := p.Do(ctx, "a", 0, pool.PutOptions{MaxAttempts: 2})
		synctest.Wait()
		require.EqualError(t, err, "no")
		require.Len(t, attempts, 102)
		for i, n := range attempts {
			require.Equal(t, max(1, i-99), n)
		}
		require.Equal(t, 100*time.Minute+time.Hour, time.Since(begin))
		s := p.Stats()
		require.Equal(t, [4]uint64{102, 100, 1, 1}, [4]uint64{s.Started, s.Snoozed, s.Retried, s.Failed})
		require.Equal(t, 100, snoozed)
		require.NotErrorIs(t, pool.RetryAfter(time.Minute), pool.ErrSnoozed)
		end(t, ctx, p)
	})
}

// TestWaitingRetriesCostNothing has 5,000 tasks that wait for their next attempt or for their
// delay.
func TestWaitingRetriesCostNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		const tasks = 5_000
		p := openFunc(t, func(_ context.Context, tk *task.Task[int]) error {
			if tk.Attempts == 1 {
				return errNo
			}
			return nil
		}, pool.Options[int]{
			Scale: pool.Scale{Max: 4}, Policy: pool.Policy{Backoff: pool.Backoff{Base: time.Hour}},
		})
		for i := range tasks {
			_, err := p.Put(ctx, strconv.Itoa(i%100), i, pool.PutOptions{Delay: time.Duration(i%2) * time.Hour})
			require.NoError(t, err)
		}
		time.Sleep(10 * time.Minute)
		require.LessOrEqual(t, goroutines(), 1) // the queue has one, from the first delay on
		require.Zero(t, p.Stats().Workers)
		wait(t, p)
		require.Equal(t, uint64(2*tasks), p.Stats().Started)
		end(t, ctx, p)
	})
}

// TestFailuresDelayNobodyElse has a key with a thousand tasks that always fail, and are tried
// again soon, and others whose tasks are done. There is one worker. In each round every key has
// its turn, so a task of a key that has nothing else waits for one of each other key at most, and
// for the one that runs.
func TestFailuresDelayNobodyElse(t *testing.T) {
	r := chance(t)
	for range 5 {
		synctest.Test(t, func(t *testing.T) {
			ctx := t.Context()
			others := 1 + r.IntN(5)
			var longest time.Duration
			submitted := map[int]time.Time{}
			var mu sync.Mutex
			p := openFunc(t, func(_ context.Context, tk *task.Task[int]) error {
				mu.Lock()
				if tk.Key != "bad" {
					longest = max(longest, time.Since(submitted[tk.Payload]))
				}
				mu.Unlock()
				time.Sleep(time.Second)
				if tk.Key == "bad" {
					return errNo
				}
				return nil
			}, pool.Options[int]{Workers: 1, Policy: pool.Policy{MaxAttempts: -1, Backoff: pool.Backoff{Base: time.Second, Max: time.Minute, Jitter: pool.FullJitter}}})
			for i := range 1000 {
				require.NoError(t, p.Submit(ctx, "bad", i))
			}
			for i := range 200 {
				mu.Lock()
				submitted[1000+i] = time.Now()
				mu.Unlock()
				require.NoError(t, p.Submit(ctx, strconv.Itoa(i%others), 1000+i))
				time.Sleep(time.Duration(2+r.IntN(4000))*time.Millisecond + time.Second)
				if (i+1)%others == 0 {
					time.Sleep(time.Duration(2*others+2) * time.Second)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			require.LessOrEqual(t, longest, time.Duration(others+1)*time.Second)
			require.Greater(t, p.Stats().Retried, uint64(300))
		})
	}
}

// TestAttemptsWithoutResult has attempts that end otherwise than by a return: the handler runs for
// longer than the lease lasts, or those who took the task were never heard of again. They count.
func TestAttemptsWithoutResult(t *testing.T) {
	for _, stays := range []bool{true, false} {
		for _, sink := range []bool{true, false} {
			inBubble(t, func(t *testing.T, ctx context.Context) {
				var box mailbox[int]
				q := openQueue(t, &task.Options[int]{TTR: time.Second})
				id, err := q.Put(ctx, "a", 0, task.PutOptions{})
				require.NoError(t, err)
				why := "pool: not done after 2 attempts, of which the last one has ended without a result"
				if !stays {
					why += "; the last error: no"
					tk, err := q.Take(ctx)
					require.NoError(t, err)
					require.NoError(t, tk.Fail(ctx, errNo, 0))
					_, err = q.Take(ctx)
					require.NoError(t, err)
					time.Sleep(time.Second)
				}
				var starts atomic.Int32
				o := pool.Options[int]{Workers: 3, Policy: pool.Policy{MaxAttempts: 20}}
				o.ForTask = func(_ *task.Task[int], p pool.Policy) pool.Policy { p.MaxAttempts = 2; return p }
				if sink {
					o.DeadLetters = box.sink
				}
				p := openNew(t, q, func(context.Context, *task.Task[int]) error {
					starts.Add(1)
					time.Sleep(10 * time.Second)
					return nil
				}, o)
				limited, cancel := context.WithTimeout(ctx, time.Hour)
				defer cancel()
				require.NoError(t, p.Wait(limited))
				require.Equal(t, map[bool]int32{true: 2}[stays], starts.Load())
				if sink {
					require.Len(t, box.all(), 1)
					require.Equal(t, 2, box.all()[0].Attempts)
					require.EqualError(t, box.all()[0].Err, why)
				} else {
					buried, err := q.Peek(ctx, id)
					require.NoError(t, err)
					require.Equal(t, task.Buried, buried.Info().State)
					require.EqualError(t, buried.Info().Err, why)
				}
				end(t, ctx, p)
			})
		}
	}
}
