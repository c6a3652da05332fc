package pool_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// TestUrgentWorkHasHeadRoom is the example in the documentation of Limit.
func TestUrgentWorkHasHeadRoom(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		g := newGate()
		p := openFunc(t, g.handle,
			pool.Options[int]{Workers: 10, Limits: []pool.Limit{{Priority: 1, Running: 8}}})
		put := func(n, priority int) {
			for range n {
				_, err := p.Put(ctx, "a", priority, pool.PutOptions{PutOptions: task.PutOptions{
					Priority: priority,
				}})
				require.NoError(t, err)
			}
			synctest.Wait()
		}
		put(20, 5)
		require.Equal(t, 8, p.Stats().Running)
		put(20, 0)
		require.Equal(t, 10, p.Stats().Running)
		g.let(18)
		require.Equal(t, 10, p.Stats().Running)
		_, started := g.now()
		require.Equal(t, make([]int, 20), started[8:28])
		g.let(22)
		end(t, ctx, p)
	})
}

// TestLimitsWithYield has a handler that gives its place back: it does not count then.
func TestLimitsWithYield(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		var q *pool.Pool[int]
		options := pool.PutOptions{PutOptions: task.PutOptions{Priority: 1}}
		q = openFunc(t, func(ctx context.Context, tk *task.Task[int]) error {
			if tk.Payload > 0 {
				return q.Do(ctx, "a", tk.Payload-1, options)
			}
			time.Sleep(time.Second)
			return nil
		}, pool.Options[int]{Workers: 3, Limits: []pool.Limit{{Priority: 1, Running: 1}}})
		require.NoError(t, q.Do(ctx, "a", 5, options))
		end(t, ctx, q)
	})
}

func TestLimitErrors(t *testing.T) {
	p := openFunc(t, func(context.Context, *task.Task[int]) error { return nil },
		pool.Options[int]{Workers: 1})
	for want, limits := range map[string][]pool.Limit{
		"Priority is -1; the limits are 0 and 99": {{Priority: -1}},
		"Priority is 100; the limits are 0 and 99": {
			{Priority: 1, Running: 1}, {Priority: 100},
		},
		"Running of priority 1 is -1; the limits are 0 and 1048576": {{Priority: 1, Running: -1}},
		"Running of priority 1 is 1048577; the limits are 0 and 1048576": {
			{Priority: 1, Running: 1048577},
		},
		"priority 1 has two limits, 2 and 3": {
			{Priority: 1, Running: 2}, {Priority: 1, Running: 3},
		},
		"Running of priority 5 is 4; the limit is 3, that of the more urgent priority 2": {
			{Priority: 5, Running: 4}, {Priority: 2, Running: 3},
		},
		"Running of priority 9 is 1048576; the limit is 1048575, that of the more urgent priority 0": {
			{Running: 1048575}, {Priority: 9, Running: 1048576},
		},
	} {
		err := p.SetLimits(limits)
		require.ErrorIs(t, err, task.ErrInvalid)
		require.EqualError(t, err, "pool: invalid: SetLimits: "+want)
		require.EqualError(t, pool.Options[int]{Limits: limits}.Validate(),
			"pool: invalid: Options.Limits: "+want)
	}
	end(t, t.Context(), p)
}
