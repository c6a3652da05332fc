package pool_test

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// anyLimits returns valid ones for priorities 0 to 4.
func anyLimits(r *rand.Rand, workers int) (limits []pool.Limit) {
	most := workers
	for priority := range 5 {
		if r.IntN(2) == 0 {
			most = r.IntN(most + 1)
			if priority == 0 {
				most = max(most, 1)
			}
			limits = append(limits, pool.Limit{Priority: priority, Running: most})
		}
	}
	r.Shuffle(len(limits), func(i, j int) { limits[i], limits[j] = limits[j], limits[i] })
	return limits
}

// limitOf returns how many may run at most, the task included, if one of that priority is started.
func limitOf(limits []pool.Limit, priority int) int {
	most := math.MaxInt
	for _, l := range limits {
		if l.Priority <= priority {
			most = min(most, l.Running)
		}
	}
	return most
}

// TestLimits checks what is started after each change of the limits, each task that is put, and
// each end; and whether anything waits that may be started. Of tasks that are started together
// handlers begin in any order, so it is checked whether there is one in which each is within its
// limit. If there is, it is within it with the least urgent first.
func TestLimits(t *testing.T) {
	r := chance(t)
	for round := range 30 {
		synctest.Test(t, func(t *testing.T) { testLimits(t, r, round%2 == 1) })
	}
}

func testLimits(t *testing.T, r *rand.Rand, classes bool) {
	const workers = 6
	var mu sync.Mutex
	limits := anyLimits(r, workers)
	running, waiting, started := 0, make([]int, 5), []int(nil)
	leave := make(chan struct{})
	o := pool.Options[int]{Workers: workers, Limits: limits}
	if classes {
		o.Classes = anyClasses(r, 3)
	}
	p := openFunc(t, func(_ context.Context, tk *task.Task[int]) error {
		mu.Lock()
		started = append(started, tk.Priority)
		running++
		waiting[tk.Priority]--
		mu.Unlock()
		<-leave
		mu.Lock()
		defer mu.Unlock()
		running--
		return nil
	}, o)
	for range 200 {
		switch r.IntN(3) {
		case 0:
			mu.Lock()
			limits = anyLimits(r, workers)
			mu.Unlock()
			require.NoError(t, p.SetLimits(limits))
		case 1:
			priority := r.IntN(5)
			mu.Lock()
			waiting[priority]++
			mu.Unlock()
			options := pool.PutOptions{Priority: priority}
			if classes {
				options.Class = strconv.Itoa(r.IntN(2))
			}
			_, err := p.Put(t.Context(), strconv.Itoa(r.IntN(3)), 0, options)
			require.NoError(t, err)
		case 2:
			mu.Lock()
			n := running
			mu.Unlock()
			if n > 0 {
				leave <- struct{}{}
			}
		}
		synctest.Wait()
		mu.Lock()
		slices.Sort(started)
		for i, priority := range slices.Backward(started) {
			require.Less(t, running-i-1, limitOf(limits, priority), "started %v, limits %v", started, limits)
		}
		started = nil
		for priority, n := range waiting {
			if n > 0 {
				require.GreaterOrEqual(t, running, min(limitOf(limits, priority), workers), "%d of priority %d wait, limits %v", n, priority, limits)
			}
		}
		mu.Unlock()
	}
	require.NoError(t, p.SetLimits(nil))
	close(leave)
	wait(t, p)
	end(t, t.Context(), p)
}

// TestUrgentWorkHasHeadRoom is the example in the documentation of Limit.
func TestUrgentWorkHasHeadRoom(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		g := newGate()
		p := openFunc(t, g.handle, pool.Options[int]{Workers: 10, Limits: []pool.Limit{{Priority: 1, Running: 8}}})
		put := func(n, priority int) {
			for range n {
				_, err := p.Put(ctx, "a", priority, pool.PutOptions{Priority: priority})
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

// TestLimitsWithYield has a handler that gives its place back: it does not count meanwhile.
func TestLimitsWithYield(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		var q *pool.Pool[int]
		options := pool.PutOptions{Priority: 1}
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
	p := openFunc(t, func(context.Context, *task.Task[int]) error { return nil }, pool.Options[int]{Workers: 1})
	for want, limits := range map[string][]pool.Limit{
		"Priority is -1; the limits are 0 and 32767":                                                 {{Priority: -1}},
		"Priority is 32768; the limits are 0 and 32767":                                              {{Priority: 1, Running: 1}, {Priority: 32768}},
		"Running of priority 1 is -1; the limits are 0 and 1048576":                                  {{Priority: 1, Running: -1}},
		"Running of priority 1 is 1048577; the limits are 0 and 1048576":                             {{Priority: 1, Running: 1048577}},
		"priority 1 has two limits, 2 and 3":                                                         {{Priority: 1, Running: 2}, {Priority: 1, Running: 3}},
		"Running of priority 5 is 4; the limit is 3, that of the more urgent priority 2":             {{Priority: 5, Running: 4}, {Priority: 2, Running: 3}},
		"Running of priority 9 is 1048576; the limit is 1048575, that of the more urgent priority 0": {{Running: 1048575}, {Priority: 9, Running: 1048576}},
	} {
		err := p.SetLimits(limits)
		require.ErrorIs(t, err, pool.ErrInvalid)
		require.EqualError(t, err, "pool: invalid: SetLimits: "+want)
		require.EqualError(t, pool.Options[int]{Limits: limits}.Validate(), "pool: invalid: Options.Limits: "+want)
	}
	end(t, t.Context(), p)
}
