package fairq_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
)

// The end of a context ends a waiting call, and any later call with that context. It leaves
// nothing behind.
func TestContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := fairq.New(letter, &options{Capacity: 1})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		_, err := q.PopWait(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Minute, time.Since(start))
		require.ErrorIs(t, q.PushWait(ctx, "A1"), context.DeadlineExceeded, "it was over before")
		require.NoError(t, q.Push("A2"))
		_, err = q.PopWait(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded, "it was over before")
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, q.PushWait(ctx, "A3"), context.DeadlineExceeded)
		require.Equal(t, []string{"A2"}, q.Drain())
		require.Zero(t, q.Stats().WaitingPop+q.Stats().WaitingPush)
	})
}

// When an item is handed to a waiter at the moment at which its context ends, either the waiter
// gets the item, or it gets the error and the item stays. A producer gets an error only if its
// item is not queued.
func TestHandOverWinsOverCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		won := 0
		for i := range 400 {
			q := fairq.New(letter, &options{Capacity: 1})
			var item string
			// race ends the context of a call that waits, and lets it go on, in either order, mostly
			// before the call notices the first.
			race := func(call func(context.Context) error, goOn func()) (err error) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go func() { err = call(ctx) }()
				synctest.Wait()
				if i%2 == 0 {
					cancel()
				}
				goOn()
				cancel()
				synctest.Wait()
				if err == nil {
					won++
				} else {
					require.ErrorIs(t, err, context.Canceled)
				}
				return err
			}
			if race(func(ctx context.Context) (err error) {
				item, err = q.PopWait(ctx)
				return err
			}, func() { require.NoError(t, q.Push("A1")) }) != nil {
				item, _ = q.Pop()
			}
			require.Equal(t, "A1", item)
			require.Zero(t, q.Len())

			require.NoError(t, q.Push("A2"))
			err := race(func(ctx context.Context) error { return q.PushWait(ctx, "A3") },
				func() { q.Pop() })
			require.Equal(t, err == nil, q.Len() == 1, "%d", i)
		}
		require.NotZero(t, won)
	})
}

// A producer who waits allocates nothing.
func TestWaitingDoesNotAllocate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, o := range []options{{Capacity: 1}, {Capacity: 2, KeyCapacity: 1}} {
			q := fairq.New(letter, &o)
			go func() {
				for q.PushWait(context.Background(), "A1") == nil {
				}
			}()
			require.Zero(t, testing.AllocsPerRun(1000, func() {
				synctest.Wait() // it waits for room
				q.Pop()
			}))
			q.Close()
		}
	})
}
