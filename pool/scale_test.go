package pool_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime/metrics"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// rig is a pool of either kind, with a handler that is a gate.
type rig struct {
	*gate
	submit func(ctx context.Context, n int) error
	stats  func() pool.Stats
	end    func(ctx context.Context) error
	set    func(atLeast, atMost int) error
	pause  func()
	resume func()
	holds  bool // running tasks take up room in the queue
}

func newFuncRig(t *testing.T, capacity int, o pool.Options[int]) *rig {
	r := &rig{gate: newGate()}
	o.Queue.Capacity = capacity
	return r.of(openFunc(t, r.handle, o))
}

func newNewRig(t *testing.T, capacity int, o pool.Options[int]) *rig {
	r := &rig{gate: newGate(), holds: true}
	o.Logger = quiet
	p := pool.New(openQueue(t, &task.Options[int]{Capacity: capacity}), r.handle, &o)
	cleanUp(t, p.Shutdown)
	return r.of(p)
}

func (r *rig) of(p *pool.Pool[int]) *rig {
	r.submit = func(ctx context.Context, n int) error { return p.Submit(ctx, fmt.Sprint(n%7), n) }
	r.stats, r.end, r.set, r.pause, r.resume = p.Stats, p.Shutdown, p.SetWorkers, p.Pause, p.Resume
	return r
}

func newNewWorkersRig(t *testing.T, capacity int, o pool.Options[int]) *rig {
	r := &rig{gate: newGate()}
	if capacity == 0 {
		capacity = fairq.Unbounded
	}
	q := fairq.New(func(n int) int { return n % 7 }, &fairq.Options[int, int]{Capacity: capacity})
	w := pool.NewWorkers(q, r.do, &pool.WorkersOptions[int]{
		Workers: o.Workers, Scale: o.Scale, Schedule: o.Schedule, AbandonAfter: o.AbandonAfter,
		Logger: quiet,
	})
	cleanUp(t, w.Shutdown)
	r.submit, r.stats, r.end, r.set, r.pause, r.resume = q.PushWait, w.Stats, w.Shutdown,
		w.SetWorkers, w.Pause, w.Resume
	return r
}

var rigs = map[string]func(t *testing.T, capacity int, o pool.Options[int]) *rig{
	"Func": newFuncRig, "New": newNewRig, "NewWorkers": newNewWorkersRig,
}

// forRigs runs a test for either kind of pool, in a bubble for each round.
func forRigs(t *testing.T, rounds int,
	f func(t *testing.T, r *rand.Rand, open func(*testing.T, int, pool.Options[int]) *rig),
) {
	for name, open := range rigs {
		t.Run(name, func(t *testing.T) {
			r := chance(t)
			for range rounds {
				synctest.Test(t, func(t *testing.T) { f(t, r, open) })
			}
		})
	}
}

// TestWorkersAreAdded submits one task after the other, by producers who wait if there is no room,
// while none is finished.
func TestWorkersAreAdded(t *testing.T) {
	forRigs(t, 40, func(t *testing.T, r *rand.Rand,
		open func(*testing.T, int, pool.Options[int]) *rig,
	) {
		capacity, scale := r.IntN(40), pool.Scale{Min: r.IntN(4)}
		scale.Max = scale.Min + 1 + r.IntN(6)
		base := goroutines()
		rig := open(t, capacity, pool.Options[int]{Scale: scale})
		var producers sync.WaitGroup
		for n := 1; n <= 50; n++ {
			producers.Go(func() { _ = rig.submit(t.Context(), n) })
			synctest.Wait()
			workers := min(n, scale.Max)
			if rig.holds && capacity > 0 {
				workers = min(workers, capacity)
			}
			s := rig.stats()
			require.Equal(t, workers, s.Workers, "%d tasks, capacity %d, %+v", n, capacity, scale)
			require.Equal(t, workers, s.Running)
			running, _ := rig.now()
			require.Equal(t, workers, running)
		}
		rig.let(50)
		producers.Wait()
		synctest.Wait()
		require.LessOrEqual(t, rig.most, scale.Max)
		require.NoError(t, rig.end(t.Context()))
		require.Equal(t, base, goroutines())
	})
}

// TestNoTaskWaitsForAnIdleWorker submits tasks at the same time, while some workers are idle: as
// many run as there are workers for. Handlers that fail, and pauses, come in between.
func TestNoTaskWaitsForAnIdleWorker(t *testing.T) {
	forRigs(t, 30, func(t *testing.T, r *rand.Rand,
		open func(*testing.T, int, pool.Options[int]) *rig,
	) {
		const workers = 4
		rig := open(t, 0, pool.Options[int]{Workers: workers})
		synctest.Wait() // the first worker asks in vain
		left, paused := 0, false
		for range 40 {
			switch r.IntN(8) {
			case 0:
				if paused = !paused; paused {
					rig.pause()
				} else {
					rig.resume()
				}
			case 1, 2, 3:
				var all sync.WaitGroup
				for i := range 1 + r.IntN(5) {
					left++
					all.Go(func() { require.NoError(t, rig.submit(t.Context(), i)) })
				}
				all.Wait()
			default:
				for range r.IntN(rig.stats().Running + 1) {
					left--
					rig.leave <- []error{nil, nil, nil, pool.Permanent(errNo)}[r.IntN(4)]
				}
			}
			synctest.Wait()
			if !paused {
				require.Equal(t, min(workers, left), rig.stats().Running)
			}
		}
		rig.resume()
		rig.let(left)
		require.NoError(t, rig.end(t.Context()))
	})
}

// TestIdleWorkersEnd runs tasks of different lengths, and checks when each worker's goroutine
// ends.
func TestIdleWorkersEnd(t *testing.T) {
	forRigs(t, 15, func(t *testing.T, r *rand.Rand,
		open func(*testing.T, int, pool.Options[int]) *rig,
	) {
		scale := pool.Scale{Min: r.IntN(4), IdleTimeout: time.Duration(2+r.IntN(1000)) * time.Second}
		timeout := scale.IdleTimeout
		if r.IntN(4) == 0 {
			scale.IdleTimeout, timeout = 0, time.Minute
		}
		scale.Max = max(scale.Min, 1) + r.IntN(6)
		base := goroutines()
		rig := open(t, 0, pool.Options[int]{Scale: scale})
		for range 3 {
			for n := range scale.Max {
				require.NoError(t, rig.submit(t.Context(), n))
			}
			synctest.Wait()
			require.Equal(t, scale.Max, rig.stats().Workers)
			var ends []time.Time
			for range scale.Max {
				time.Sleep(time.Duration(r.Int64N(int64(timeout) / int64(scale.Max))))
				rig.let(1)
				ends = append(ends, time.Now().Add(timeout))
			}
			for i, at := range ends {
				before, left := scale.Max-i, max(scale.Max-i-1, scale.Min)
				if time.Until(at) > 0 && (i == 0 || !at.Equal(ends[i-1])) {
					time.Sleep(time.Until(at) - 1)
					require.Equal(t, max(before, scale.Min), rig.stats().Workers)
					time.Sleep(time.Nanosecond)
				}
				synctest.Wait()
				if i+1 == len(ends) || ends[i+1].After(at) {
					require.Equal(t, left, rig.stats().Workers)
					require.Equal(t, base+left, goroutines())
				}
			}
		}
		require.NoError(t, rig.end(t.Context()))
	})
}

// switches returns the runtime's count of goroutine runs. The runtime counts one run in eight.
func switches() (n uint64) {
	s := []metrics.Sample{{Name: "/sched/latencies:seconds"}}
	metrics.Read(s)
	for _, c := range s[0].Value.Float64Histogram().Counts {
		n += c
	}
	return n
}

// TestIdlePoolSleeps checks that an idle pool runs no goroutine for a year.
func TestIdlePoolSleeps(t *testing.T) {
	for _, scale := range []pool.Scale{{Min: 3, Max: 3}, {Min: 2, Max: 5}, {Min: 0, Max: 5}} {
		forRigs(t, 1, func(t *testing.T, _ *rand.Rand,
			open func(*testing.T, int, pool.Options[int]) *rig,
		) {
			rig := open(t, 10, pool.Options[int]{Scale: scale})
			for i := range 10 {
				require.NoError(t, rig.submit(t.Context(), i))
			}
			synctest.Wait()
			rig.let(10)
			time.Sleep(time.Hour)
			synctest.Wait()
			stats, before := rig.stats(), switches()
			require.Equal(t, scale.Min, stats.Workers)
			time.Sleep(365 * 24 * time.Hour)
			synctest.Wait()
			require.Equal(t, stats, rig.stats())
			require.Less(t, switches()-before, uint64(200), "an hourly tick makes it about a thousand")
			require.NoError(t, rig.end(t.Context()))
		})
	}
}
