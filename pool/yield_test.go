package pool_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
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

// TestNestedTasks has tasks that wait for others, 5 deep, with one worker and a few more, and a
// queue that is always full. Never do more run than may.
func TestNestedTasks(t *testing.T) {
	for _, workers := range []int{1, 2, 3} {
		inBubble(t, func(t *testing.T, ctx context.Context) {
			var p *pool.Pool[int]
			var running, most, leaves atomic.Int64
			work := func() {
				now := running.Add(1)
				defer running.Add(-1)
				for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
				}
				time.Sleep(time.Second)
			}
			p = openFunc(t, func(ctx context.Context, tk *task.Task[int]) error {
				work()
				defer work() // it has its place again
				if tk.Payload == 0 {
					leaves.Add(1)
					return nil
				}
				for range 2 {
					if err := p.SubmitWait(ctx, fmt.Sprint(tk.Payload), tk.Payload-1, pool.PutOptions{}); err != nil {
						return err
					}
				}
				return nil
			}, pool.Options[int]{Workers: workers, Capacity: 20})
			var all sync.WaitGroup
			for range 3 {
				all.Go(func() { assert.NoError(t, p.SubmitWait(ctx, "a", 5, pool.PutOptions{})) })
			}
			all.Wait()
			require.EqualValues(t, 3*32, leaves.Load())
			require.EqualValues(t, workers, most.Load())
			synctest.Wait()
			s := p.Stats()
			require.Equal(t, [3]int{workers, 0, 0}, [3]int{s.Workers, s.Nested, s.Running})
			end(t, ctx, p)
		})
	}
}

// TestYieldPanics leaves the pool in order when what is called panics, or ends the goroutine.
func TestYieldPanics(t *testing.T) {
	for name, f := range map[string]func(){"panic": func() { panic("boo") }, "goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, ctx context.Context) {
				p := openFunc(t, func(ctx context.Context, tk *task.Task[int]) error {
					if tk.Payload > 0 {
						pool.Yield(ctx, func() { time.Sleep(time.Second); f() })
					}
					return nil
				}, pool.Options[int]{Workers: 2, Policy: pool.Policy{MaxAttempts: 2}})
				require.Error(t, p.SubmitWait(ctx, "a", 1, pool.PutOptions{}))
				require.NoError(t, p.SubmitWait(ctx, "a", 0, pool.PutOptions{}))
				synctest.Wait()
				require.Zero(t, p.Stats().Nested)
				require.Zero(t, p.Stats().Running)
				end(t, ctx, p)
			})
		})
	}
}

// TestYieldOutside just calls.
func TestYieldOutside(t *testing.T) {
	called := 0
	pool.Yield(t.Context(), func() { pool.Yield(t.Context(), func() { called++ }) })
	require.Equal(t, 1, called)
}

// TestYieldGivesPlaceBack watches the places of one worker.
func TestYieldGivesPlaceBack(t *testing.T) {
	for _, drain := range []bool{false, true} {
		inBubble(t, func(t *testing.T, ctx context.Context) { testYieldGivesPlaceBack(t, ctx, drain) })
	}
}

func testYieldGivesPlaceBack(t *testing.T, ctx context.Context, drain bool) {
	back := make(chan struct{})
	leave := make(chan error)
	handler := func(ctx context.Context, n int) error {
		if n == 0 {
			pool.Yield(ctx, func() {
				pool.Yield(ctx, func() { <-back }) // it has no more to give
			})
		}
		return <-leave
	}
	var submit func(int) error
	var p interface {
		Stats() pool.Stats
		Shutdown(context.Context) error
	}
	if drain {
		q := fairq.New(func(int) string { return "a" }, nil)
		p, submit = pool.NewWorkers(q, handler, &pool.Options[int]{Workers: 1, Logger: quiet}), q.Push
	} else {
		f := openFunc(t, func(ctx context.Context, tk *task.Task[int]) error { return handler(ctx, tk.Payload) }, pool.Options[int]{Workers: 1})
		p, submit = f, func(n int) error { return f.Submit(ctx, "a", n) }
	}
	expect := func(workers, running, nested, succeeded int) {
		t.Helper()
		synctest.Wait()
		s := p.Stats()
		require.Equal(t, [4]int{workers, running, nested, succeeded}, [4]int{s.Workers, s.Running, s.Nested, int(s.Succeeded)})
	}
	require.NoError(t, submit(0))
	expect(0, 0, 1, 0)
	require.NoError(t, submit(1))
	require.NoError(t, submit(2))
	expect(1, 1, 1, 0)
	back <- struct{}{}
	expect(1, 1, 1, 0) // there is no place
	leave <- nil
	expect(1, 1, 0, 1) // it comes before the other one
	leave <- nil
	expect(1, 1, 0, 2)
	leave <- nil
	expect(1, 0, 0, 3)
	require.NoError(t, submit(0))
	expect(0, 0, 1, 3)
	require.NoError(t, submit(1))
	expect(1, 1, 1, 3)
	leave <- nil
	expect(1, 0, 1, 4) // an idle one
	back <- struct{}{}
	expect(1, 1, 0, 4) // makes room at once
	leave <- nil
	expect(1, 0, 0, 5)
	require.NoError(t, p.Shutdown(ctx))
}

// TestShutdownLetsNestedWorkFinish has a handler that waits for others when the pool is shut down,
// and then submits more.
func TestShutdownLetsNestedWorkFinish(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		var p *pool.Pool[int]
		p = openFunc(t, func(ctx context.Context, tk *task.Task[int]) error {
			time.Sleep(time.Minute)
			for i := range tk.Payload {
				if err := p.SubmitWait(ctx, "a", i, pool.PutOptions{}); err != nil {
					return err
				}
			}
			return nil
		}, pool.Options[int]{Workers: 1})
		require.NoError(t, p.Submit(ctx, "a", 4))
		time.Sleep(time.Second)
		require.NoError(t, p.Shutdown(ctx))
		require.Equal(t, uint64(16), p.Stats().Succeeded)
		require.Empty(t, p.Leftovers())
	})
}

// TestSubmitWait is about what comes of tasks for those who wait for them.
func TestSubmitWait(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		var box mailbox[int]
		p := openFunc(t, func(_ context.Context, tk *task.Task[int]) error {
			time.Sleep(time.Minute)
			if tk.Payload < 0 {
				return fmt.Errorf("try %d: %w", tk.Attempts, &task.Error{Code: 5, Message: "negative"})
			}
			return nil
		}, pool.Options[int]{
			Workers: 1, Capacity: 2, WhenFull: pool.DropNew, DeadLetters: box.sink,
			Policy: pool.Policy{MaxAttempts: 2, Backoff: pool.Backoff{Base: time.Hour}},
		})
		begin := time.Now()
		require.NoError(t, p.SubmitWait(ctx, "a", 1, pool.PutOptions{}))
		require.Equal(t, time.Minute, time.Since(begin))
		var failed *task.Error
		require.ErrorAs(t, p.SubmitWait(ctx, "a", -1, pool.PutOptions{}), &failed)
		require.Equal(t, task.Error{Code: 5, Message: "try 2: negative"}, *failed)
		require.Equal(t, time.Hour+3*time.Minute, time.Since(begin))
		box.letters = nil
		for i := range 3 {
			soon, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			require.Equal(t, context.DeadlineExceeded, p.SubmitWait(soon, "a", 2+i, pool.PutOptions{}))
		}
		require.NoError(t, p.Submit(ctx, "a", 5))
		require.ErrorIs(t, p.SubmitWait(ctx, "a", 6, pool.PutOptions{}), fairq.ErrFull)
		require.Len(t, box.all(), 2)
		end(t, ctx, p)
		require.Equal(t, pool.ErrShutdown, p.SubmitWait(ctx, "a", 7, pool.PutOptions{}))
	})
}

// TestSubmitWaitForWhatExpires returns at the deadline.
func TestSubmitWaitForWhatExpires(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		p := openFunc(t, newGate().handle, pool.Options[int]{Workers: 1, Deadline: time.Minute})
		p.Pause()
		begin := time.Now()
		require.Equal(t, task.ErrExpired, p.SubmitWait(ctx, "a", 1, pool.PutOptions{}))
		require.Equal(t, time.Minute, time.Since(begin))
		end(t, ctx, p)
	})
}

// TestSubmitWaitAtShutdown has somebody who waits for a task that is not run any more.
func TestSubmitWaitAtShutdown(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		p := openFunc(t, newGate().handle, pool.Options[int]{Workers: 1})
		p.Pause()
		result := make(chan error)
		go func() { result <- p.SubmitWait(ctx, "a", 1, pool.PutOptions{}) }()
		synctest.Wait()
		require.NoError(t, p.Shutdown(ctx))
		require.Error(t, <-result)
		require.Len(t, p.Leftovers(), 1)
	})
}

// TestSubmitWaitNeedsRoom has a handler that waits for room, which only another task can make.
func TestSubmitWaitNeedsRoom(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		var p *pool.Pool[int]
		p = openFunc(t, func(ctx context.Context, tk *task.Task[int]) error {
			if tk.Payload == 0 {
				return p.SubmitWait(ctx, "a", 2, pool.PutOptions{})
			}
			return nil
		}, pool.Options[int]{Workers: 1, Capacity: 2})
		p.Pause()
		require.NoError(t, p.Submit(ctx, "a", 0))
		require.NoError(t, p.Submit(ctx, "a", 1))
		go func() { _ = p.Submit(ctx, "a", 1) }() // has the room of the handler that begins
		synctest.Wait()
		p.Resume()
		wait(t, p)
		require.Equal(t, uint64(4), p.Stats().Succeeded)
		end(t, ctx, p)
	})
}

// TestHandlersStuckInSubmits has handlers that fill the queue they submit to, of which no task can
// be taken before one of them returns: by what counts in its capacity, or because a key is in
// flight. One after the other is told, and all tasks are done.
func TestHandlersStuckInSubmits(t *testing.T) {
	for _, wait := range []bool{false, true} {
		for name, o := range map[string]*task.Options[int]{"New": {Capacity: 4}, "Func": nil} {
			if wait && o == nil {
				continue // it would wait for a task that waits for its own
			}
			t.Run(fmt.Sprint(name, wait), func(t *testing.T) {
				inBubble(t, func(t *testing.T, ctx context.Context) {
					var p *pool.Pool[int]
					var stuck atomic.Int32
					handle := func(ctx context.Context, tk *task.Task[int]) (err error) {
						time.Sleep(time.Second)
						for n := range tk.Payload { // more than there is room for
							key := fmt.Sprint(tk.Key, n)
							if o == nil {
								key = tk.Key
							}
							if wait {
								err = p.SubmitWait(ctx, key, 0, pool.PutOptions{})
							} else {
								err = p.Submit(ctx, key, 0)
							}
							if errors.Is(err, fairq.ErrFull) {
								require.ErrorAs(t, err, new(*fairq.FullError))
								require.ErrorContains(t, err, "all handlers wait in submits")
								stuck.Add(1)
								return nil
							}
							require.NoError(t, err)
						}
						return nil
					}
					if o == nil { // own queues have room for what waits only
						p = openFunc(t, handle, pool.Options[int]{Workers: 4, Capacity: 2, MaxInFlightPerKey: 1})
					} else {
						p = openNew(t, openQueue(t, o), handle, pool.Options[int]{Workers: 4})
					}
					for _, key := range []string{"a", "b", "c", "d"} {
						require.NoError(t, p.Submit(ctx, key, 4))
					}
					limited, cancel := context.WithTimeout(ctx, time.Hour)
					defer cancel()
					require.NoError(t, p.Wait(limited))
					require.Positive(t, stuck.Load())
					require.LessOrEqual(t, stuck.Load(), int32(4))
					end(t, ctx, p)
				})
			})
		}
	}
}

// TestLastOfStuckIsTold has two handlers stuck, of which the one that has submitted first need not
// be told.
func TestLastOfStuckIsTold(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		var p *pool.Pool[int]
		told := make(chan int, 2)
		p = openNew(t, openQueue(t, &task.Options[int]{Capacity: 2}), func(ctx context.Context, tk *task.Task[int]) error {
			time.Sleep(time.Duration(tk.Payload) * time.Second)
			if tk.Payload > 0 && errors.Is(p.Submit(ctx, "a", 0), fairq.ErrFull) {
				told <- tk.Payload
			}
			return nil
		}, pool.Options[int]{Workers: 2})
		for _, seconds := range []int{2, 1} {
			require.NoError(t, p.Submit(ctx, "a", seconds))
		}
		wait(t, p)
		close(told)
		require.Equal(t, 2, <-told)
		require.Empty(t, told)
		end(t, ctx, p)
	})
}

// TestNotStuck has a handler that waits for room until something else than a handler of the pool
// has made it, an hour later.
func TestNotStuck(t *testing.T) {
	takeAndAck := func(ctx context.Context, q *task.Queue[int]) {
		tk, err := q.Take(ctx)
		require.NoError(t, err)
		time.Sleep(time.Hour)
		require.NoError(t, tk.Ack(ctx))
	}
	for name, c := range map[string]struct {
		own      bool
		other    task.PutOptions
		makeRoom func(context.Context, *task.Queue[int])
	}{
		"delayed":         {other: task.PutOptions{Kind: "ours", Delay: time.Hour}, makeRoom: func(context.Context, *task.Queue[int]) {}},
		"taken by others": {other: task.PutOptions{Kind: "ours"}, makeRoom: takeAndAck},
		"ready for others": {other: task.PutOptions{Kind: "theirs"}, makeRoom: func(ctx context.Context, q *task.Queue[int]) {
			time.Sleep(time.Hour)
			takeAndAck(ctx, q)
		}},
		"paused": {own: true, other: task.PutOptions{Kind: "ours"}, makeRoom: func(ctx context.Context, q *task.Queue[int]) {
			time.Sleep(time.Hour)
			require.NoError(t, q.Resume(ctx))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, ctx context.Context) {
				var p *pool.Pool[int]
				handle := func(ctx context.Context, tk *task.Task[int]) (err error) {
					if tk.Payload == 0 {
						time.Sleep(time.Minute)
						_, err = p.Put(ctx, "a", 1, pool.PutOptions{Kind: "ours"})
					}
					return err
				}
				o := pool.Options[int]{Workers: 1, Kinds: []string{"ours"}, Policy: pool.Policy{MaxAttempts: 1}}
				if c.own {
					o.Capacity = 1
					p = openFunc(t, handle, o)
				} else {
					p = openNew(t, openQueue(t, &task.Options[int]{Capacity: 2}), handle, o)
				}
				q := p.Queue("")
				_, err := p.Put(ctx, "a", 0, pool.PutOptions{Kind: "ours"})
				require.NoError(t, err)
				synctest.Wait()
				if c.own {
					require.NoError(t, q.Pause(ctx))
				}
				_, err = q.Put(ctx, "b", 1, c.other)
				require.NoError(t, err)
				start := time.Now()
				c.makeRoom(ctx, q)
				wait(t, p)
				require.GreaterOrEqual(t, time.Since(start), time.Hour)
				require.Zero(t, p.Stats().Failed)
				end(t, ctx, p)
			})
		})
	}
}

// TestContextOutlivesHandler submits with the context of a handler that has returned, and with one
// that was made of it.
func TestContextOutlivesHandler(t *testing.T) {
	for _, asked := range []bool{false, true} {
		inBubble(t, func(t *testing.T, ctx context.Context) { testContextOutlivesHandler(t, ctx, asked) })
	}
}

// asked says that the handler has waited for its context.
func testContextOutlivesHandler(t *testing.T, ctx context.Context, asked bool) {
	var old context.Context
	g := newGate()
	p := openFunc(t, func(ctx context.Context, tk *task.Task[int]) error {
		if tk.Payload == 0 {
			if old = ctx; asked {
				_ = ctx.Done()
			}
			return nil
		}
		return g.handle(ctx, tk)
	}, pool.Options[int]{Workers: 1, Capacity: 1})
	require.NoError(t, p.Submit(ctx, "a", 0))
	wait(t, p)
	ended := old
	old = context.WithoutCancel(ended)
	for n := range 2 {
		require.NoError(t, p.Submit(old, "a", n+1))
		synctest.Wait()
	}
	blocked := later(func() error { return p.Submit(old, "a", 3) }) // it has no place to give
	require.Empty(t, blocked)
	require.Equal(t, 1, p.Stats().Running)
	require.Zero(t, p.Stats().Nested)
	require.Equal(t, context.Canceled, p.Submit(ended, "a", 4)) // last, for it asks what is behind the context
	g.let(1)
	require.NoError(t, <-blocked)
	g.let(2)
	end(t, ctx, p)
	require.Equal(t, pool.ErrShutdown, p.Submit(old, "a", 4))
}
