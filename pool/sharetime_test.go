package pool_test

import (
	"context"
	"runtime"
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

// TestShareTime: an item is in hand until its handler returns, in whatever way.
func TestShareTime(t *testing.T) {
	q := fairq.New(func(n int) int { return n }, &fairq.Options[int, int]{ShareTime: true})
	held, goOn := make(chan int), make(chan struct{})
	w := pool.NewWorkers(q, func(_ context.Context, n int) error {
		held <- n
		<-goOn
		switch n {
		case 0:
			panic("this item")
		case 1:
			runtime.Goexit()
		case 2:
			return errNo
		}
		return nil
	}, &pool.WorkersOptions[int]{Workers: 1, Logger: quiet})
	for key := range 4 {
		require.NoError(t, q.Push(key))
		require.Equal(t, key, <-held)
		require.NoError(t, q.Push(key))
		require.NoError(t, q.Push(100+key))
		require.Equal(t, 100+key, q.Upcoming(1)[0].Key, "key %d has an item in hand", key)
		goOn <- struct{}{}
		require.Equal(t, 100+key, <-held)
		goOn <- struct{}{}
		require.Equal(t, key, <-held)
		goOn <- struct{}{}
	}
	q.Close()
	require.NoError(t, w.Wait(t.Context()))
	require.NoError(t, w.Shutdown(t.Context()))
	for _, key := range []int{0, 1, 2, 3, 100, 101, 102, 103} {
		require.ErrorContains(t, q.Done(key), "no item of key")
	}
}

// TestHangingTenant: jobs that hang leave the workers beyond MaxInFlightPerKey to others, also
// after Close, and nobody spins: in synctest a spinning worker would never let time pass.
func TestHangingTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := fairq.New(func(n int) int { return n }, &fairq.Options[int, int]{
			ShareTime: true, MaxInFlightPerKey: 3, KeyCapacity: 7,
		})
		goOn, served := make(chan struct{}), 0
		w := pool.NewWorkers(q, func(_ context.Context, n int) error {
			if n == 0 {
				<-goOn
			} else {
				served++
			}
			return nil
		}, &pool.WorkersOptions[int]{Workers: 4, Logger: quiet})
		for range 10 {
			synctest.Wait()
			require.NoError(t, q.Push(0))
		}
		go func() { assert.ErrorIs(t, q.PushWait(t.Context(), 0), fairq.ErrClosed) }()
		for i := range 5 {
			time.Sleep(time.Second)
			require.NoError(t, q.Push(1))
			synctest.Wait()
			require.Equal(t, i+1, served)
		}
		require.Equal(t, 3, q.KeyStat(0).Taken)
		require.Equal(t, 3, q.Stats().Taken)
		q.Close()
		time.Sleep(time.Second)
		require.Equal(t, 7, q.Len(), "they wait for their key")
		close(goOn)
		require.NoError(t, w.Wait(t.Context()))
		require.Zero(t, q.Stats().Taken+q.Len())
		require.NoError(t, w.Shutdown(t.Context()))
	})
}

// With ShareTime of the task queue two keys get as much of the workers' time each, although the
// jobs of one take ten times as long, a quarter of them fail, and some panic.
func TestShareTimeOfTasks(t *testing.T) {
	takes := map[string]time.Duration{"quick": 10 * time.Millisecond, "slow": 100 * time.Millisecond}
	ratio := func(share bool) float64 {
		var spent map[string]time.Duration
		synctest.Test(t, func(t *testing.T) {
			runs := make(chan string, 1)
			var n atomic.Int64
			p := openFunc(t, func(_ context.Context, tk *task.Task[string]) error {
				key := tk.Key
				time.Sleep(takes[key])
				select {
				case runs <- key:
				case <-t.Context().Done():
				}
				switch n := n.Add(1); {
				case n%16 == 0:
					panic("as it must")
				case n%4 == 0:
					return pool.Permanent(context.DeadlineExceeded)
				}
				return nil
			}, pool.Options[string]{Workers: 2, Queue: task.Options[string]{ShareTime: share}})
			submit := func(key string) { require.NoError(t, p.Submit(t.Context(), key, key)) }
			for range 5 {
				submit("quick")
				submit("slow")
			}
			spent = map[string]time.Duration{}
			for began := time.Now(); time.Since(began) < 20*time.Second; {
				key := <-runs
				submit(key)
				if time.Since(began) > 5*time.Second { // costs are known by then
					spent[key] += takes[key]
				}
			}
		})
		return float64(spent["slow"]) / float64(spent["quick"])
	}
	require.InDelta(t, 1, ratio(true), 0.1)
	require.InDelta(t, 10, ratio(false), 1)
}
