package pool_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// codeError is an error that only [errors.As] finds.
type codeError struct{ code int }

func (e codeError) Error() string { return fmt.Sprint("code ", e.code) }

// TestDoKnowsTheError has handlers that fail, with a store that keeps no errors but their
// text.
func TestDoKnowsTheError(t *testing.T) {
	handler := func(_ context.Context, tk *task.Task[int]) error {
		switch tk.Payload {
		case 0:
			panicHere(errNo)
		case 1:
			return fmt.Errorf("at last: %w", codeError{tk.Attempts})
		}
		return pool.Permanent(errors.Join(errNo, &task.Error{Code: 7, Message: "seven"}))
	}
	check := func(t *testing.T, ctx context.Context, p *pool.Pool[int]) {
		err := p.Do(ctx, "a", 0, pool.PutOptions{})
		require.EqualError(t, err, "task: panic in the handler: no")
		require.ErrorIs(t, err, errNo)
		var panicked *pool.PanicError
		require.ErrorAs(t, err, &panicked)
		require.Contains(t, string(panicked.Stack), "panicHere")

		err = p.Do(ctx, "a", 1, pool.PutOptions{UniqueKey: "mine"})
		require.EqualError(t, err, "at last: code 2")
		var code codeError
		require.ErrorAs(t, err, &code)
		require.Equal(t, 2, code.code)

		err = p.Do(ctx, "a", 2, pool.PutOptions{})
		require.ErrorIs(t, err, errNo)
		var recorded *task.Error
		require.ErrorAs(t, err, &recorded)
		require.Equal(t, task.Error{Code: 7, Message: "no\nseven"}, *recorded)
		require.NoError(t, p.Shutdown(ctx))
	}
	o := pool.Options[int]{Workers: 1, Policy: pool.Policy{MaxAttempts: 2}}
	t.Run("own", func(t *testing.T) {
		inBubble(t, func(t *testing.T, ctx context.Context) { check(t, ctx, openFunc(t, handler, o)) })
	})
	t.Run("transactions", func(t *testing.T) {
		inBubble(t, func(t *testing.T, ctx context.Context) {
			q, _ := openDatabase[int](t, time.Millisecond, nil)
			check(t, ctx, openNew(t, q, handler, o))
		})
	})
}

// TestDoFollows waits for a task that follows another one, and cancels one.
func TestDoFollows(t *testing.T) {
	for _, first := range []error{nil, errNo} {
		inBubble(t, func(t *testing.T, ctx context.Context) {
			var ran []int
			result := make(chan error)
			p := openFunc(t, func(_ context.Context, tk *task.Task[int]) error {
				ran = append(ran, tk.Payload)
				return <-result
			}, pool.Options[int]{Workers: 1})
			o := pool.PutOptions{UniqueKey: "x", Replace: true}
			over, mu := map[int]error{}, sync.Mutex{}
			do := func(payload int) {
				go func() {
					err := p.Do(ctx, "a", payload, o)
					mu.Lock()
					defer mu.Unlock()
					over[payload] = err
				}()
				synctest.Wait()
			}
			do(1)
			do(2)
			result <- first
			time.Sleep(time.Minute) // the backoff
			synctest.Wait()
			if first == nil {
				require.Equal(t, map[int]error{1: nil}, over)
			} else {
				require.Empty(t, over)
			}
			result <- nil
			synctest.Wait()
			require.Equal(t, map[int]error{1: nil, 2: nil}, over)
			require.Equal(t, []int{1, 2}, ran)

			do(3)
			cancelled, cancel := context.WithCancel(ctx)
			o.CancelWithContext = true
			id, err := p.Put(cancelled, "a", 4, o)
			require.NoError(t, err)
			if first == nil { // then the follower runs, else it is held
				result <- nil
				synctest.Wait()
			}
			cancel()
			synctest.Wait()
			_, err = p.Queue("").Peek(ctx, id)
			require.ErrorIs(t, err, task.ErrNotFound)
			close(result)
			require.NoError(t, p.Shutdown(ctx))
		})
	}
}

// TestDoOfAnotherProcess fails in another process, so only the text of the error remains.
func TestDoOfAnotherProcess(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		q := openQueue[int](t, nil)
		there := openNew(t, q,
			func(context.Context, *task.Task[int]) error { return pool.Permanent(errNo) },
			pool.Options[int]{Workers: 1})
		here := openNew(t, q, nothing, pool.Options[int]{Workers: 1})
		here.Pause()
		err := here.Do(ctx, "a", 1, pool.PutOptions{})
		require.Equal(t, &task.Error{Message: "no"}, err)
		end(t, ctx, here)
		end(t, ctx, there)
	})
}

// TestCancelWithContext cancels tasks that wait and tasks that run, however they were submitted,
// with stores in memory and others.
func TestCancelWithContext(t *testing.T) {
	bound := pool.PutOptions{CancelWithContext: true}
	for how, submit := range map[string]func(p *pool.Pool[int], ctx context.Context, n int) error{
		"put": func(p *pool.Pool[int], ctx context.Context, n int) error {
			_, err := p.Put(ctx, "a", n, bound)
			return err
		},
		"batch": func(p *pool.Pool[int], ctx context.Context, n int) error {
			_, err := p.SubmitBatch(ctx, []pool.Entry[int]{{Key: "a", Payload: n, Options: bound}})
			return err
		},
		"wait": func(p *pool.Pool[int], ctx context.Context, n int) error {
			go func() { _ = p.Do(ctx, "a", n, bound) }()
			return nil
		},
	} {
		for _, takes := range []time.Duration{0, time.Millisecond} {
			t.Run(fmt.Sprint(how, takes), func(t *testing.T) {
				inBubble(t, func(t *testing.T, ctx context.Context) {
					var box mailbox[int]
					out := &records{lines: map[slog.Level][]string{}}
					g := newGate()
					var cause error
					q := openQueue[int](t, nil)
					if takes > 0 {
						q, _ = openDatabase[int](t, takes, nil)
					}
					p := openNew(t, q, func(ctx context.Context, tk *task.Task[int]) error {
						err := g.handle(ctx, tk)
						if err != nil {
							cause = context.Cause(ctx)
						}
						return err
					}, pool.Options[int]{Workers: 1, DeadLetters: box.sink, Logger: slog.New(out)})
					var cancel [3]context.CancelFunc
					for i := range cancel {
						var caller context.Context
						caller, cancel[i] = context.WithCancel(ctx)
						require.NoError(t, submit(p, caller, i))
						time.Sleep(time.Second)
						synctest.Wait()
					}
					count := func() int {
						time.Sleep(time.Second)
						synctest.Wait()
						s, err := q.Stats(ctx)
						require.NoError(t, err)
						return s.Len()
					}
					require.Equal(t, 3, count())
					cancel[1]() // it has not begun
					require.Equal(t, 2, count())
					require.NoError(t, cause)
					cancel[0]() // it runs
					require.Equal(t, 1, count())
					require.ErrorIs(t, cause, task.ErrLeaseLost)
					require.ErrorIs(t, cause, task.ErrDeleted)
					running, started := g.now()
					require.Equal(t, 1, running)
					require.Equal(t, []int{0, 2}, started)
					g.let(1) // it is done, and after that its context may be
					require.Zero(t, count())
					cancel[2]()
					wait(t, p)
					s := p.Stats()
					require.Equal(t, [5]uint64{2, 1, 1, 0, 0},
						[5]uint64{s.Started, s.Succeeded, s.Cancelled, s.Lost, s.DeadLetters})
					require.Empty(t, box.all())
					require.Empty(t, out.lines[slog.LevelWarn])
					require.Contains(t, strings.Join(out.lines[slog.LevelDebug], "\n"),
						"could not be settled task=1 key=a")
					end(t, ctx, p)
				})
			})
		}
	}
}

// TestCancelDeaf cancels tasks whose handlers do not use their contexts. Only the cancelling pool
// knows why it cannot settle its own.
func TestCancelDeaf(t *testing.T) {
	for _, elsewhere := range []bool{false, true} {
		for _, takes := range []time.Duration{0, time.Millisecond} {
			inBubble(t, func(t *testing.T, ctx context.Context) {
				q := openQueue[int](t, nil)
				if takes > 0 {
					q, _ = openDatabase[int](t, takes, nil)
				}
				deaf := func(context.Context, *task.Task[int]) error { time.Sleep(time.Hour); return errNo }
				p, other := openNew(t, q, deaf, pool.Options[int]{}), openNew(t, q, deaf, pool.Options[int]{})
				runs, lost := p, uint64(0)
				if other.Pause(); elsewhere {
					p.Pause()
					other.Resume()
					runs, lost = other, 2
				}
				caller, cancel := context.WithCancel(ctx)
				for range 2 {
					_, err := p.Put(caller, "a", 1, pool.PutOptions{CancelWithContext: true})
					require.NoError(t, err)
				}
				time.Sleep(time.Minute)
				cancel()
				time.Sleep(time.Hour)
				s := runs.Stats()
				require.Equal(t, [3]uint64{2, 2 - lost, lost}, [3]uint64{s.Started, s.Cancelled, s.Lost})
				end(t, ctx, p)
				end(t, ctx, other)
			})
		}
	}
}

// TestCancelWithContextAtShutdown has tasks of callers that stay; Shutdown leaves nothing of them.
func TestCancelWithContextAtShutdown(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		q := openQueue[int](t, nil)
		p := openNew(t, q, newGate().handle, pool.Options[int]{Workers: 1})
		caller, cancel := context.WithCancel(ctx)
		for i := range 3 {
			_, err := p.Put(caller, "a", i, pool.PutOptions{CancelWithContext: true})
			require.NoError(t, err)
		}
		soon, stop := context.WithTimeout(ctx, time.Second)
		defer stop()
		require.Error(t, p.Shutdown(soon))
		other := openQueue[int](t, nil)
		paused := openNew(t, other, nothing, pool.Options[int]{Workers: 1})
		paused.Pause()
		_, err := paused.Put(caller, "a", 3, pool.PutOptions{CancelWithContext: true})
		require.NoError(t, err)
		require.NoError(t, paused.Shutdown(ctx))
		cancel()
		synctest.Wait()
		for q, want := range map[*task.Queue[int]]int{q: 3, other: 1} {
			s, err := q.Stats(ctx)
			require.NoError(t, err)
			require.Equal(t, want, s.Ready)
		}
	})
}

// TestErrorOfAnotherTask has handlers that return what Do has returned: that the other task
// has failed for good, and when it would be tried again, says nothing of theirs.
func TestErrorOfAnotherTask(t *testing.T) {
	again := pool.RetryAfter(time.Hour)
	for _, err := range []error{pool.Permanent(errNo), errors.Join(errNo, again), pool.ErrDeadline} {
		inBubble(t, func(t *testing.T, ctx context.Context) {
			var p *pool.Pool[string]
			p = openFunc(t, func(ctx context.Context, tk *task.Task[string]) error {
				switch {
				case tk.Payload == "inner":
					return err
				case tk.Attempts > 1:
					return nil
				}
				inner := pool.PutOptions{MaxAttempts: 1}
				if errors.Is(err, pool.ErrDeadline) { // then it is not started
					inner.Deadline = time.Now().Add(time.Second)
				}
				bad := p.Do(ctx, "a", "inner", inner)
				if assert.ErrorIs(t, bad, err) {
					assert.ErrorAs(t, bad, new(*task.Error))
				}
				return bad
			}, pool.Options[string]{
				Workers: 1,
				ForTask: func(tk *task.Task[string], p pool.Policy) pool.Policy {
					if tk.Payload == "inner" {
						time.Sleep(time.Second)
					}
					return p
				},
			})
			begin := time.Now()
			require.NoError(t, p.Do(ctx, "a", "outer", pool.PutOptions{}))
			require.Equal(t, 2*time.Second, time.Since(begin))
			end(t, ctx, p)
		})
	}
}

// TestDoAfterShutdown waits for a task of a queue that goes on without the pool.
func TestDoAfterShutdown(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		q := openQueue[int](t, nil)
		p := openNew(t, q, nothing, pool.Options[int]{Workers: 1})
		p.Pause()
		result := later(func() error { return p.Do(ctx, "a", 1, pool.PutOptions{}) })
		synctest.Wait()
		end(t, ctx, p)
		tk, err := q.Take(ctx)
		require.NoError(t, err)
		require.NoError(t, q.Delete(ctx, tk.ID))
		require.Equal(t, pool.ErrDeleted, <-result)
	})
}

// lateContext is a context whose Done never fires.
type lateContext struct {
	context.Context
	done atomic.Bool
}

func (c *lateContext) Err() error {
	if c.done.Load() {
		return context.Canceled
	}
	return nil
}

// TestCancelTooLate has a context that is done when the task is buried already, which stays so.
func TestCancelTooLate(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		late := &lateContext{Context: context.WithoutCancel(ctx)}
		q := openQueue[int](t, nil)
		p := openNew(t, q, func(context.Context, *task.Task[int]) error {
			time.Sleep(time.Second)
			late.done.Store(true)
			return pool.Permanent(errNo)
		}, pool.Options[int]{Workers: 1})
		require.ErrorIs(t, p.Do(late, "a", 1, pool.PutOptions{CancelWithContext: true}), errNo)
		caller, cancel := context.WithCancel(ctx)
		_, err := p.Put(caller, "a", 1, pool.PutOptions{CancelWithContext: true})
		require.NoError(t, err)
		wait(t, p)
		cancel()
		synctest.Wait()
		s, err := q.Stats(ctx)
		require.NoError(t, err)
		require.Equal(t, 2, s.Buried)
		end(t, ctx, p)
	})
}
