package pool_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// anyBackoff returns a random valid Backoff.
func anyBackoff(r *rand.Rand) pool.Backoff {
	b := pool.Backoff{
		Jitter: float64(r.IntN(3)) / 2,
		Base:   time.Duration(1 + r.Int64N(int64(time.Minute))),
	}
	if r.IntN(2) == 0 {
		b.Max = b.Base + time.Duration(r.Int64N(int64(time.Hour)))
	}
	return b
}

// TestRetryDelays has tasks that always fail, after some time. Each attempt begins exactly by the
// backoff; with a jitter, by the delay that the observer gets.
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
				Observer: on(pool.EventRetried, func(e pool.Event[int]) {
					require.Equal(t, runs, e.Took)
					require.ErrorIs(t, e.Err, errNo)
					told = append(told, e.Delay)
				}),
			})
			begin := time.Now()
			require.NoError(t, p.Submit(t.Context(), "a", 0))
			wait(t, p)
			require.Len(t, starts, most)
			require.Len(t, told, most-1)
			require.Equal(t, begin, starts[0])
			for i, delay := range told {
				if b.Jitter == 0 {
					double := cmp.Or(b.Base, time.Second) << i
					require.Equal(t, min(double, cmp.Or(b.Max, max(b.Base, time.Hour))), delay)
				}
				require.LessOrEqual(t, delay, cmp.Or(b.Max, time.Hour))
				require.Equal(t, starts[i].Add(runs+delay), starts[i+1])
			}
			require.Len(t, box.all(), 1)
			require.Equal(t, most, box.all()[0].Task.Attempts)
			s := p.Stats()
			require.Equal(t, [3]uint64{uint64(most), uint64(most - 1), 1},
				[3]uint64{s.Started, s.Retried, s.Failed})
			end(t, t.Context(), p)
		})
	}
}

// TestMaxAttempts counts the attempts of tasks that always fail, with limits of their own, of the
// queue and of the pool. Without a limit they are done after 100.
func TestMaxAttempts(t *testing.T) {
	const never = 100
	for _, c := range []struct{ own, queue, policy, want int }{
		{want: 10},
		{policy: 3, want: 3},
		{policy: -1, want: never},
		{queue: 4, policy: 3, want: 4},
		{own: 5, queue: 4, policy: 3, want: 5},
		{own: -1, queue: 4, policy: 3, want: never},
	} {
		inBubble(t, func(t *testing.T, ctx context.Context) {
			var box mailbox[int]
			attempts := 0
			o := pool.Options[int]{
				Workers: 1, Policy: pool.Policy{MaxAttempts: c.policy},
				DeadLetters: box.sink,
			}
			p := openNew(t, openQueue(t, &task.Options[int]{MaxAttempts: c.queue}),
				func(context.Context, *task.Task[int]) error {
					if attempts++; attempts == never {
						return nil
					}
					return errNo
				}, o)
			_, err := p.Put(ctx, "a", 0, pool.PutOptions{PutOptions: task.PutOptions{
				MaxAttempts: c.own,
			}})
			require.NoError(t, err)
			wait(t, p)
			require.Equal(t, c.want, attempts, "%+v", c)
			require.Equal(t, c.want == never, len(box.all()) == 0)
			require.NoError(t, p.Shutdown(ctx))
		})
	}
}

// TestErrorsThatSayWhen has handlers that return errors of this package: bare, wrapped and joined.
func TestErrorsThatSayWhen(t *testing.T) {
	require.NoError(t, pool.Permanent(nil))
	for name, c := range map[string]struct {
		err    error
		starts []time.Duration // of 3 attempts at most; the backoff is a second
		text   string
	}{
		"plain":     {errNo, []time.Duration{0, time.Second, 2 * time.Second}, "no"},
		"permanent": {pool.Permanent(errNo), []time.Duration{0}, "no"},
		"wrapped": {
			fmt.Errorf("it failed: %w", pool.Permanent(errNo)),
			[]time.Duration{0},
			"it failed: no",
		},
		"after": {
			pool.RetryAfter(time.Hour),
			[]time.Duration{0, time.Hour, 2 * time.Hour},
			"pool: to be tried again in 1h0m0s",
		},
		"after, because": {
			errors.Join(errNo, pool.RetryAfter(time.Hour)),
			[]time.Duration{0, time.Hour, 2 * time.Hour},
			"no\npool: to be tried again in 1h0m0s",
		},
		"snooze, because": {
			fmt.Errorf("it: %w", errors.Join(errNo, pool.Snooze(time.Hour))),
			[]time.Duration{0, time.Hour, 2 * time.Hour},
			"it: no\npool: to be done in 1h0m0s",
		},
		"at once": {
			pool.RetryAfter(-time.Hour),
			[]time.Duration{0, 0, 0},
			"pool: to be tried again in 0s",
		},
		"too late": {
			pool.RetryAfter(2 * task.MaxDuration),
			[]time.Duration{0, task.MaxDuration, 2 * task.MaxDuration},
			"pool: to be tried again in 876000h0m0s",
		},
		"both": {
			errors.Join(pool.RetryAfter(time.Hour), pool.Permanent(errNo)),
			[]time.Duration{0},
			"pool: to be tried again in 1h0m0s\nno",
		},
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
					Workers: 1, Policy: pool.Policy{MaxAttempts: 3, Backoff: pool.Backoff{Max: time.Second}},
					DeadLetters: box.sink,
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
			_, err := p.Put(ctx, strconv.Itoa(i%100), i,
				pool.PutOptions{PutOptions: task.PutOptions{Delay: time.Duration(i%2) * time.Hour}})
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
