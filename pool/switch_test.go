package pool_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
	_ "time/tzdata" // for machines without zones

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// sleepUntil lets time pass, and waits for the events of that time.
func sleepUntil(at time.Time) {
	time.Sleep(time.Until(at))
	synctest.Wait()
}

// TestSwitchingDown has 4 tasks running when there may be 2, and then none, and then 3.
func TestSwitchingDown(t *testing.T) {
	forRigs(t, 1, func(t *testing.T, _ *rand.Rand,
		open func(*testing.T, int, pool.Options[int]) *rig,
	) {
		begin := time.Now()
		rig := open(t, 0, pool.Options[int]{
			Workers: 4,
			Schedule: []pool.Range{
				{Time: "00:50-02:00", Location: time.UTC, Scale: pool.Scale{Min: 1, Max: 2}},
				{Time: "02:00-03:00", Location: time.UTC},
				{Time: "03:00-04:00", Location: time.UTC, Scale: pool.Scale{Max: 3}},
			},
		})
		for i := range 30 {
			require.NoError(t, rig.submit(t.Context(), i))
		}
		expect := func(runs, started int) {
			t.Helper()
			synctest.Wait()
			running, all := rig.now()
			require.Equal(t, [2]int{runs, started}, [2]int{running, len(all)})
			require.Equal(t, runs, rig.stats().Running)
		}
		expect(4, 4)
		sleepUntil(begin.Add(50*time.Minute - 1))
		rig.let(1)
		expect(4, 5)
		sleepUntil(begin.Add(50 * time.Minute))
		expect(4, 5) // they go on
		rig.let(2)
		expect(2, 5) // and are not replaced
		rig.let(1)
		expect(2, 6)
		sleepUntil(begin.Add(2 * time.Hour))
		expect(2, 6)
		rig.let(2)
		expect(0, 6)
		require.Zero(t, rig.stats().Workers)
		require.NoError(t, rig.submit(t.Context(), 30))
		sleepUntil(begin.Add(3*time.Hour - 1))
		expect(0, 6)
		sleepUntil(begin.Add(3 * time.Hour))
		expect(3, 9)
		rig.let(25)
		expect(0, 31)
		require.Equal(t, uint64(31), rig.stats().Succeeded)
		require.NoError(t, rig.end(t.Context()))
	})
}

// TestSetWorkersOverridesSchedule sets a number of workers across a switch, and takes it back
// after that.
func TestSetWorkersOverridesSchedule(t *testing.T) {
	forRigs(t, 1, func(t *testing.T, _ *rand.Rand,
		open func(*testing.T, int, pool.Options[int]) *rig,
	) {
		begin := time.Now()
		rig := open(t, 0, pool.Options[int]{
			Scale: pool.Scale{Min: 1, Max: 9},
			Schedule: []pool.Range{
				{Time: "01:00-02:00", Location: time.UTC, Scale: pool.Scale{Min: 2, Max: 8}},
			},
		})
		scale := func() [2]int { return [2]int{rig.stats().Min, rig.stats().Max} }
		require.Equal(t, [2]int{1, 9}, scale())
		require.NoError(t, rig.set(3, 4))
		require.Equal(t, [2]int{3, 4}, scale())
		sleepUntil(begin.Add(90 * time.Minute))
		require.Equal(t, [2]int{3, 4}, scale())
		require.NoError(t, rig.set(0, 0))
		require.Equal(t, [2]int{2, 8}, scale())
		require.NoError(t, rig.set(0, 1))
		require.Equal(t, [2]int{0, 1}, scale())
		sleepUntil(begin.Add(3 * time.Hour))
		require.Equal(t, [2]int{0, 1}, scale())
		require.NoError(t, rig.set(0, 0))
		require.Equal(t, [2]int{1, 9}, scale())
		sleepUntil(begin.Add(25 * time.Hour))
		require.Equal(t, [2]int{2, 8}, scale())
		require.NoError(t, rig.end(t.Context()))
	})
}

// TestRangeHasTimeoutOfPool has a range without an IdleTimeout.
func TestRangeHasTimeoutOfPool(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		p := openFunc(t, nothing, pool.Options[int]{
			Scale:    pool.Scale{Max: 9, IdleTimeout: time.Second},
			Schedule: []pool.Range{{Time: "00:00-24:00", Scale: pool.Scale{Max: 2}}},
		})
		require.NoError(t, p.Do(ctx, "a", 1, pool.PutOptions{}))
		time.Sleep(time.Second - 1)
		require.Equal(t, 1, p.Stats().Workers)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.Zero(t, p.Stats().Workers)
		end(t, ctx, p)
	})
}

// TestShutdownInPause has a handler that waits for another task when a paused range begins, and
// then the pool is shut down: that task is done.
func TestShutdownInPause(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		var p *pool.Pool[int]
		p = openFunc(t, func(ctx context.Context, tk *task.Task[int]) error {
			if time.Sleep(2 * time.Hour); tk.Payload == 0 {
				return nil
			}
			return p.Do(ctx, "a", tk.Payload-1, pool.PutOptions{})
		}, pool.Options[int]{
			Workers: 1, Schedule: []pool.Range{{Time: "01:00-24:00", Location: time.UTC}},
		})
		begin := time.Now()
		require.NoError(t, p.Submit(ctx, "a", 2))
		time.Sleep(time.Hour)
		require.NoError(t, p.Shutdown(ctx))
		require.Equal(t, 6*time.Hour, time.Since(begin))
		require.Equal(t, uint64(3), p.Stats().Succeeded)
		require.Empty(t, p.Leftovers())
	})
}
