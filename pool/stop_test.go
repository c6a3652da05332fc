package pool_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/memory"
)

// TestCalledByHandler has handlers, observers and a sink that wait for themselves.
func TestCalledByHandler(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		var p *pool.Pool[int]
		var w *pool.Workers
		var places sync.Map
		check := func(place string, ctx context.Context) {
			places.Store(place, nil)
			for _, call := range []func(context.Context) error{p.Wait, p.Shutdown, p.StopAndWait} {
				assert.ErrorIs(t, call(ctx), task.ErrInvalid)
			}
		}
		p = openFunc(t, func(ctx context.Context, tk *task.Task[int]) error {
			pool.Yield(ctx, func() { check("Yield", ctx) })
			over, cancel := context.WithCancel(ctx)
			cancel()
			if assert.ErrorIs(t, p.Submit(over, "a", 1), context.Canceled) &&
				assert.NoError(t, w.Wait(ctx)) { // that is another one
				check("handler", ctx)
			}
			return pool.Permanent(errNo)
		}, pool.Options[int]{
			Observer: func(ctx context.Context, e pool.Event[int]) { check(e.Kind.String(), ctx) },
			DeadLetters: func(ctx context.Context, _ *pool.DeadLetter[int]) error {
				check("sink", ctx)
				return nil
			},
			Logger: quiet, Queue: task.Options[int]{Capacity: 1}, Workers: 1,
		})
		q := fairq.New(func(int) string { return "a" }, nil)
		w = pool.NewWorkers(q, func(ctx context.Context, n int) error {
			for _, call := range []func(context.Context) error{w.Wait, w.Shutdown} {
				assert.ErrorIs(t, call(ctx), task.ErrInvalid)
			}
			return nil
		}, &pool.WorkersOptions[int]{Logger: quiet})
		require.EqualError(t, p.Do(ctx, "a", 1, pool.PutOptions{}), "no")
		_, err := p.Put(ctx, "a", 1,
			pool.PutOptions{PutOptions: task.PutOptions{
				Delay: time.Hour, Deadline: time.Now().Add(time.Second),
			}})
		require.NoError(t, err)
		require.NoError(t, p.Submit(ctx, "a", 1))
		require.NoError(t, p.Wait(ctx))
		for _, place := range []string{
			"Yield", "handler", "sink", "started", "failed", "expired",
			"dead letter",
		} {
			_, called := places.Load(place)
			require.True(t, called, place)
		}
		require.NoError(t, q.Push(1))
		require.NoError(t, w.Wait(ctx))
		require.NoError(t, w.Shutdown(ctx))
		end(t, ctx, p)
	})
}

// After Shutdown, Wait returns an error for the tasks that are left, and does not wait for them.
func TestWaitAfterShutdown(t *testing.T) {
	for _, left := range []int{0, 3} {
		inBubble(t, func(t *testing.T, ctx context.Context) {
			want := error(nil)
			if left > 0 {
				want = pool.ErrShutdown
			}
			items := fairq.New(func(int) string { return "a" }, nil)
			w := pool.NewWorkers(items, newGate().do, &pool.WorkersOptions[int]{Workers: 1, Logger: quiet})
			q := openQueue[int](t, nil)
			others := openNew(t, q, newGate().handle, pool.Options[int]{Workers: 1})
			own := openFunc(t, newGate().handle, pool.Options[int]{Workers: 1})
			w.Pause()
			others.Pause()
			own.Pause()
			var waits []<-chan error
			for i := range left {
				require.NoError(t, items.Push(i))
				require.NoError(t, others.Submit(ctx, "a", i))
				require.NoError(t, own.Submit(ctx, "a", i))
			}
			for _, wait := range []func(context.Context) error{w.Wait, others.Wait, own.Wait} {
				waits = append(waits, later(func() error { return wait(ctx) }))
			}
			require.NoError(t, w.Shutdown(ctx))
			require.NoError(t, others.Shutdown(ctx))
			require.ErrorIs(t, own.Shutdown(ctx), want)
			for i, wait := range []func(context.Context) error{w.Wait, others.Wait, own.Wait} {
				require.Equal(t, want, <-waits[i])
				require.Equal(t, want, wait(ctx))
			}
		})
	}
}

// TestStopAndWait finishes ready, delayed and retried tasks, and tasks that handlers submit.
func TestStopAndWait(t *testing.T) {
	for _, own := range []bool{false, true} {
		inBubble(t, func(t *testing.T, ctx context.Context) {
			var p *pool.Pool[int]
			done := 0
			handle := func(ctx context.Context, tk *task.Task[int]) error {
				time.Sleep(time.Second)
				if tk.Attempts == 1 && tk.Payload == 0 {
					return errNo
				}
				done++
				if tk.Payload == 1 {
					return p.Submit(ctx, "b", 100)
				}
				return nil
			}
			if own {
				p = openFunc(t, handle, pool.Options[int]{Workers: 1, Queue: task.Options[int]{Capacity: 3}})
			} else {
				p = openNew(t, openQueue(t, &task.Options[int]{Capacity: 4}), handle,
					pool.Options[int]{Workers: 1})
			}
			for i := range 4 {
				delay := time.Duration(i%2) * time.Hour
				_, err := p.Put(ctx, "a", i, pool.PutOptions{PutOptions: task.PutOptions{Delay: delay}})
				require.NoError(t, err)
			}
			blocked := later(func() error { return p.Submit(ctx, "a", 9) })
			result := later(func() error { return p.StopAndWait(ctx) })
			require.Equal(t, pool.ErrShutdown, <-blocked)
			require.Equal(t, pool.ErrShutdown, p.Submit(ctx, "a", 9))
			require.NoError(t, <-result)
			require.Equal(t, 5, done)
			require.True(t, p.Stats().Closed)
			require.Empty(t, p.Leftovers())
			require.Zero(t, goroutines())
		})
	}
}

// StopAndWait ends with its context, whether a task runs or not, and when Shutdown is called.
func TestStopAndWaitInTime(t *testing.T) {
	tired := errors.New("tired of waiting")
	for _, how := range []string{"running", "delayed", "shutdown"} {
		inBubble(t, func(t *testing.T, ctx context.Context) {
			p := openFunc(t, newGate().handle, pool.Options[int]{Workers: 1})
			options := pool.PutOptions{}
			if how != "running" {
				options.Delay = time.Hour
			}
			for i := range 2 {
				_, err := p.Put(ctx, "a", i, options)
				require.NoError(t, err)
			}
			soon, cancel := context.WithTimeoutCause(ctx, time.Minute, tired)
			defer cancel()
			begin := time.Now()
			result := later(func() error { return p.StopAndWait(soon) })
			if how == "shutdown" {
				requireLeft(t, p, p.Shutdown(ctx), 2)
				requireLeft(t, p, <-result, 2)
			} else {
				err := <-result
				require.ErrorIs(t, err, tired)
				requireLeft(t, p, err, 2)
				require.Equal(t, time.Minute, time.Since(begin))
			}
			require.Zero(t, goroutines())
		})
	}
}

// slowStats is a Store that takes a second to count its tasks.
type slowStats struct{ memory.Store }

type slowStatsBackend struct{ driver.Backend }

func (s *slowStats) Open(ctx context.Context, name string, o driver.Settings,
	n driver.Notifier,
) (driver.Backend, error) {
	b, err := s.Store.Open(ctx, name, o, n)
	return slowStatsBackend{b}, err
}

func (b slowStatsBackend) Stats(ctx context.Context) (driver.Stats, error) {
	s, err := b.Backend.Stats(ctx)
	time.Sleep(time.Second)
	return s, err
}

// While Wait looks at one class, a task of another class begins and submits to the first, or
// expires. Wait looks again.
func TestWaitLooksAgain(t *testing.T) {
	for name, o := range map[string]pool.PutOptions{
		"begins":  {PutOptions: task.PutOptions{Delay: time.Second / 2}},
		"expires": {PutOptions: task.PutOptions{Delay: time.Hour, Deadline: time.Unix(946684800, 5e8)}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, ctx context.Context) {
				q, err := task.Open[int](ctx, new(slowStats), "a", nil)
				require.NoError(t, err)
				var p *pool.Pool[int]
				p = openFunc(t, func(ctx context.Context, tk *task.Task[int]) error {
					if tk.Payload == 0 {
						return nil
					}
					_, err := p.Put(ctx, "a", 0, pool.PutOptions{PutOptions: task.PutOptions{
						Delay: time.Hour,
					}, Class: "a"})
					return err
				}, pool.Options[int]{
					Workers: 1, Classes: []pool.Class[int]{{Name: "a", Queue: q}, {Name: "b"}},
					DeadLetters: func(context.Context, *pool.DeadLetter[int]) error {
						time.Sleep(time.Hour)
						return nil
					},
				})
				o.Class = "b"
				_, err = p.Put(ctx, "a", 1, o)
				require.NoError(t, err)
				begin := time.Now()
				require.NoError(t, p.Wait(ctx))
				require.Greater(t, time.Since(begin), time.Hour)
				s := p.Stats()
				want := map[string][2]uint64{"begins": {2, 0}, "expires": {0, 1}}[name]
				require.Equal(t, want, [2]uint64{s.Succeeded, s.DeadLetters})
				end(t, ctx, p)
				require.NoError(t, q.Close(ctx))
			})
		})
	}
}

// TestStopAndWaitForSubmits has an accepted submit that has not returned yet.
func TestStopAndWaitForSubmits(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		p := openFunc(t, nothing,
			pool.Options[int]{
				Workers: 1,
				Queue:   task.Options[int]{Weight: func(string) int { time.Sleep(time.Hour); return 1 }},
			})
		submitted := later(func() error { return p.Submit(ctx, "a", 1) })
		synctest.Wait()
		require.NoError(t, p.StopAndWait(ctx))
		require.NoError(t, <-submitted)
		require.Equal(t, uint64(1), p.Stats().Succeeded)
		require.Empty(t, p.Leftovers())
	})
}

// TestWaitForWhatOthersTake has items that other consumers take, because the workers are paused.
func TestWaitForWhatOthersTake(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		q := fairq.New(func(int) string { return "a" }, nil)
		w := pool.NewWorkers(q, newGate().do, &pool.WorkersOptions[int]{Workers: 1, Logger: quiet})
		w.Pause()
		require.NoError(t, q.Push(1))
		result := later(func() error { return w.Wait(ctx) })
		time.Sleep(time.Hour)
		require.Empty(t, result)
		q.Pop()
		require.NoError(t, <-result)
		require.NoError(t, w.Shutdown(ctx))
	})
}

// Wait returns the error of a queue that cannot report its tasks, even a queue that was closed.
func TestWaitForClosedQueue(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		q := openQueue[int](t, nil)
		p := openNew(t, q, nothing, pool.Options[int]{Workers: 1})
		require.NoError(t, q.Close(ctx))
		require.ErrorIs(t, p.Wait(ctx), task.ErrClosed)
		require.NoError(t, p.Shutdown(ctx))
	})
}
