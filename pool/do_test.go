package pool_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
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
		var panicked *task.PanicError
		require.ErrorAs(t, err, &panicked)
		require.Contains(t, string(panicked.Stack), "panicHere")

		err = p.Do(ctx, "a", 1, pool.PutOptions{PutOptions: task.PutOptions{UniqueKey: "mine"}})
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

// TestDoFollows waits for a task that follows another one.
func TestDoFollows(t *testing.T) {
	for _, first := range []error{nil, errNo} {
		inBubble(t, func(t *testing.T, ctx context.Context) {
			var ran []int
			result := make(chan error)
			p := openFunc(t, func(_ context.Context, tk *task.Task[int]) error {
				ran = append(ran, tk.Payload)
				return <-result
			}, pool.Options[int]{Workers: 1})
			o := pool.PutOptions{PutOptions: task.PutOptions{UniqueKey: "x", Replace: true}}
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
				inner := pool.PutOptions{PutOptions: task.PutOptions{MaxAttempts: 1}}
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
		require.Equal(t, task.ErrDeleted, <-result)
	})
}
