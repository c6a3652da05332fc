package pool_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// TestHoldKey has a provider that a tenant may call three times in ten seconds; further calls are
// refused. Only one call in ten seconds is refused, not one for each task, and the tasks of the
// tenant are done in order. Other tenants do not wait. It runs in memory, and in a database, where
// tasks are prefetched.
func TestHoldKey(t *testing.T) {
	for name, inMemory := range map[string]bool{"memory": true, "database": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, ctx context.Context) {
				q := openQueue[int](t, nil)
				if !inMemory {
					q, _ = openDatabase[int](t, time.Millisecond, &task.Options[int]{KeepPlace: true})
				}
				var mu sync.Mutex
				var limited []int
				refused, attempts, left, others := 0, 0, 3, time.Time{}
				next := time.Now().Add(10 * time.Second)
				handle := func(_ context.Context, tk *task.Task[int]) error {
					mu.Lock()
					defer mu.Unlock()
					now := time.Now()
					if tk.Key != "limited" {
						others = now
						return nil
					}
					if !now.Before(next) {
						left, next = 3, now.Add(10*time.Second)
					}
					if left == 0 {
						refused++
						return fmt.Errorf("no: %w", pool.HoldKey(next.Sub(now)))
					}
					left--
					limited, attempts = append(limited, tk.Payload), max(attempts, tk.Attempts)
					return nil
				}
				begin := time.Now()
				for i := range 30 {
					_, err := q.Put(ctx, "limited", i, task.PutOptions{})
					require.NoError(t, err)
				}
				for range 300 {
					_, err := q.Put(ctx, "other", 0, task.PutOptions{})
					require.NoError(t, err)
				}
				p := openNew(t, q, handle, pool.Options[int]{Workers: 1})
				require.NoError(t, p.Wait(ctx))
				for i, n := range limited {
					require.Equal(t, i, n)
				}
				require.Len(t, limited, 30)
				require.Equal(t, 1, attempts)
				require.Less(t, others.Sub(begin), 5*time.Second)
				require.Less(t, time.Since(begin), 91*time.Second)
				if inMemory {
					require.Equal(t, 9, refused)
				} else { // a batch may be taken just then
					require.LessOrEqual(t, refused, 18)
				}
				s := p.Stats()
				require.EqualValues(t, refused, s.Snoozed)
				require.Zero(t, s.Retried+s.Failed+s.Lost)
				require.NoError(t, p.Shutdown(ctx))
			})
		})
	}
}

// A HoldKey that is joined with another error is a failure, whose attempt counts, and the key
// waits. Alone, joined with nil, or in an error that only adds a text, it is none.
func TestHoldKeyCounts(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		begin, hold := time.Now(), pool.HoldKey(time.Minute)
		var log []string
		p := openFunc(t, func(_ context.Context, tk *task.Task[int]) error {
			log = append(log, fmt.Sprint(tk.Payload, " ", tk.Attempts, " ", time.Since(begin)))
			switch {
			case tk.Payload > 0:
				return nil
			case len(log) == 1:
				return fmt.Errorf("step: %w", errors.Join(nil, hold))
			}
			return fmt.Errorf("step: %w", errors.Join(errNo, hold))
		}, pool.Options[int]{Workers: 1, Policy: pool.Policy{MaxAttempts: 3}})
		for i := range 2 {
			require.NoError(t, p.Submit(ctx, "a", i))
		}
		wait(t, p)
		require.Equal(t, []string{"0 1 0s", "0 1 1m0s", "0 2 2m0s", "0 3 3m0s", "1 1 3m0s"}, log)
		s := p.Stats()
		require.Equal(t, [3]uint64{1, 2, 1}, [3]uint64{s.Snoozed, s.Retried, s.Failed})
		end(t, ctx, p)
	})
}

// TestInOrder has handlers that fail in every way in which a task is tried again, and some that
// fail for good. No task of a key begins before the one before it is done or has failed for good,
// whatever others do to the key, and keys do not wait for each other.
func TestInOrder(t *testing.T) {
	for name, open := range map[string]func(*testing.T) *task.Queue[int]{
		"own":    nil,
		"memory": func(t *testing.T) *task.Queue[int] { return openQueue(t, inOrder) },
		"database": func(t *testing.T) *task.Queue[int] {
			q, _ := openDatabase(t, time.Millisecond, inOrder)
			return q
		},
	} {
		for seed := range uint64(20) {
			t.Run(fmt.Sprint(name, " ", seed), func(t *testing.T) {
				inBubble(t, func(t *testing.T, ctx context.Context) { doInOrder(t, ctx, open, seed) })
			})
		}
	}
}

var inOrder = &task.Options[int]{MaxInFlightPerKey: 1, KeepPlace: true, TTR: time.Minute}

func doInOrder(t *testing.T, ctx context.Context,
	open func(*testing.T) *task.Queue[int], seed uint64,
) {
	const keys, tasks = 5, 20
	rnd, handlers := rand.New(rand.NewPCG(seed, 0)), rand.New(rand.NewPCG(seed, 1))
	var mu sync.Mutex
	at, failedForGood := map[string]int{}, 0 // the tasks that are next
	handle := func(ctx context.Context, tk *task.Task[int]) error {
		mu.Lock()
		how := handlers.IntN(12)
		if tk.Payload < at[tk.Key] { // its lease was lost when it was done
			assert.Equal(t, at[tk.Key]-1, tk.Payload)
		} else {
			assert.Equal(t, at[tk.Key], tk.Payload)
		}
		defer mu.Unlock()
		done := func() { at[tk.Key] = tk.Payload + 1 }
		switch how {
		case 0:
			return errNo
		case 1:
			panic("no")
		case 2:
			return pool.Snooze(time.Second)
		case 3:
			return pool.RetryAfter(3 * time.Second)
		case 4:
			return pool.HoldKey(time.Second)
		case 5:
			failedForGood++
			done()
			return pool.Permanent(errNo)
		case 6: // until its lease is over
			mu.Unlock()
			<-ctx.Done()
			mu.Lock()
			return ctx.Err()
		case 7:
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
		}
		done()
		return nil
	}
	var box mailbox[int]
	o := pool.Options[int]{
		Workers: 3, Policy: pool.Policy{
			MaxAttempts: -1, InOrder: true,
			Backoff: pool.Backoff{Max: 4 * time.Second, Jitter: 1},
		},
		DeadLetters: box.sink,
	}
	var p *pool.Pool[int]
	if open == nil {
		o.Queue.TTR = time.Minute
		p = openFunc(t, handle, o)
	} else {
		p = openNew(t, open(t), handle, o)
	}
	q := p.Queue("")
	for i := range tasks {
		for k := range keys {
			require.NoError(t, p.Submit(ctx, fmt.Sprint(k), i))
		}
	}
	for range 20 {
		time.Sleep(time.Duration(rnd.IntN(3000)) * time.Millisecond)
		key := fmt.Sprint(rnd.IntN(keys))
		switch rnd.IntN(4) {
		case 0:
			require.NoError(t, q.PauseKey(ctx, key))
		case 1:
			require.NoError(t, q.ResumeKey(ctx, key))
		case 2:
			require.NoError(t, q.HoldKey(ctx, key, time.Second))
		case 3:
			p.Pause()
			time.Sleep(time.Second)
			p.Resume()
		}
	}
	for k := range keys {
		require.NoError(t, q.ResumeKey(ctx, fmt.Sprint(k)))
	}
	require.NoError(t, p.StopAndWait(ctx))
	for k := range keys {
		require.Equal(t, tasks, at[fmt.Sprint(k)])
	}
	require.Len(t, box.all(), failedForGood)
	s := p.Stats()
	require.EqualValues(t, keys*tasks-failedForGood, s.Succeeded)
}

// If the function for the next time panics, the work is not done again: the task has failed for
// good.
func TestRepeatPanics(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		runs := 0
		p := openFunc(t, pool.Repeat(func(_, _ time.Time) time.Time { panic(errNo) },
			func(context.Context, *task.Task[int]) error { runs++; return nil }), pool.Options[int]{})
		err := p.Do(ctx, "a", 1, pool.PutOptions{})
		require.EqualError(t, err, "task: panic in the function for the next time: no")
		require.Equal(t, 1, runs)
		end(t, ctx, p)
	})
}

// hourly is a function for Repeat.
func hourly(put, now time.Time) time.Time { return now.Add(time.Hour - now.Sub(put)%time.Hour) }

// TestRepeat has two pools that do a task every hour, at the full hours from its put on, however
// long it takes and how often it fails. All runs missed without a pool are one run. A run that
// fails for good ends the task, until it is kicked.
func TestRepeat(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		q := openQueue(t, &task.Options[int]{TTR: 20 * time.Minute})
		begin := time.Now()
		var mu sync.Mutex
		var starts []time.Duration
		hangs, fails, ends := false, 0, false
		handle := pool.Repeat(func(put, now time.Time) time.Time {
			mu.Lock()
			defer mu.Unlock()
			assert.Equal(t, begin, put)
			if ends {
				return time.Time{}
			}
			return hourly(put, now)
		}, func(ctx context.Context, tk *task.Task[int]) error {
			mu.Lock()
			defer mu.Unlock()
			starts = append(starts, time.Since(begin))
			switch {
			case hangs:
				hangs = false
				mu.Unlock()
				<-ctx.Done() // its lease is lost, as when its process dies
				mu.Lock()
				return ctx.Err()
			case fails > 0:
				fails--
				return errNo
			}
			mu.Unlock()
			time.Sleep(10 * time.Minute)
			mu.Lock()
			return nil
		})
		set := func(f func()) {
			mu.Lock()
			defer mu.Unlock()
			f()
		}
		runs := func(d time.Duration, want ...time.Duration) {
			t.Helper()
			time.Sleep(d)
			mu.Lock()
			defer mu.Unlock()
			require.Equal(t, want, starts)
			starts = nil
		}
		o := pool.Options[int]{Policy: pool.Policy{
			MaxAttempts: 3, Backoff: pool.Backoff{Base: time.Minute, Max: time.Minute},
		}}
		defer set(func() { ends = true }) // or a failure would never end
		one, two := openNew(t, q, handle, o), openNew(t, q, handle, o)
		id, err := q.Put(ctx, "a", 0, task.PutOptions{UniqueKey: "hourly"})
		require.NoError(t, err)
		_, err = q.Put(ctx, "a", 0, task.PutOptions{UniqueKey: "hourly"})
		require.ErrorIs(t, err, task.ErrDuplicate)
		const h, m = time.Hour, time.Minute
		runs(3*h+30*m, 0, h, 2*h, 3*h)
		for i := range 3 * h / h { // more failures than there are attempts, but not in one run
			set(func() { fails = 2 })
			at := (4 + i) * h
			runs(h, at, at+m, at+2*m)
		}
		set(func() { hangs = true })
		runs(h, 7*h, 7*h+20*m)
		require.NoError(t, one.Shutdown(ctx))
		require.NoError(t, two.Shutdown(ctx))
		s := one.Stats()
		require.EqualValues(t, 8, s.Succeeded+two.Stats().Succeeded)
		require.EqualValues(t, 6, s.Retried+two.Stats().Retried)
		runs(5 * h)
		three := openNew(t, q, handle, o)
		runs(h, 12*h+30*m, 13*h)
		set(func() { fails = 3 })
		runs(2*h, 14*h, 14*h+m, 14*h+2*m)
		require.NoError(t, q.KickID(ctx, id))
		runs(h, 15*h+30*m, 16*h)
		set(func() { ends = true })
		runs(5*h, 17*h)
		require.ErrorIs(t, q.Wait(ctx, "hourly"), task.ErrNotFound)
		require.NoError(t, three.Shutdown(ctx))
	})
}
