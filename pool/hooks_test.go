package pool_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// brokenObserver returns an Observer that calls f with each kind of event.
func brokenObserver(f func(name string)) func(context.Context, pool.Event[int]) {
	return func(_ context.Context, e pool.Event[int]) { f(e.Kind.String()) }
}

// fails is a handler of tasks and items; it succeeds with 0.
func fails(_ context.Context, n int) error {
	if n == 0 {
		return nil
	}
	return errNo
}

// forHooks runs a test for each of these hooks. The hook panics, or ends the goroutine that calls
// it, as FailNow does in a test.
func forHooks(t *testing.T, hooks []string,
	f func(t *testing.T, ctx context.Context, hook string, exits bool, call func(name string)),
) {
	for _, hook := range hooks {
		for _, exits := range []bool{false, true} {
			t.Run(fmt.Sprint(hook, exits), func(t *testing.T) {
				inBubble(t, func(t *testing.T, ctx context.Context) {
					f(t, ctx, hook, exits, func(name string) {
						switch {
						case name != hook:
						case exits:
							runtime.Goexit()
						default:
							panic(name)
						}
					})
					synctest.Wait()
					require.Zero(t, goroutines())
				})
			})
		}
	}
}

// TestHooksThatFail has a pool with a function that panics, or exits: the pool goes on as usual.
// TestAccounting has the other functions.
func TestHooksThatFail(t *testing.T) {
	hooks := []string{
		"started", "succeeded", "failed", "retried", "expired", "dead letter",
		"DeadLetters",
	}
	forHooks(t, hooks, func(t *testing.T, ctx context.Context, hook string, exits bool,
		call func(string),
	) {
		o := pool.Options[int]{
			Scale: pool.Scale{Max: 2, IdleTimeout: time.Second}, Observer: brokenObserver(call),
			Logger: quiet,
			DeadLetters: func(context.Context, *pool.DeadLetter[int]) error {
				call("DeadLetters")
				return nil
			},
			Policy: pool.Policy{MaxAttempts: 2},
		}
		p := openFunc(t, func(ctx context.Context, tk *task.Task[int]) error {
			return fails(ctx, tk.Payload)
		}, o)
		for i := range 2 {
			require.NoError(t, p.Submit(ctx, "a", i))
		}
		_, err := p.Put(ctx, "a", 0,
			pool.PutOptions{PutOptions: task.PutOptions{
				Delay: time.Hour, Deadline: time.Now().Add(time.Minute),
			}})
		require.NoError(t, err)
		time.Sleep(2 * time.Minute)
		wait(t, p)
		s := p.Stats()
		require.Equal(t, s.Started, s.Succeeded+s.Failed+s.Retried)
		require.Zero(t, s.Lost) // each attempt is settled once
		require.Zero(t, s.Workers)
		result := later(func() error { return p.Shutdown(ctx) })
		if hook == "DeadLetters" {
			requireLeft(t, p, <-result, 1)
		} else {
			require.NoError(t, <-result)
		}
	})
}
