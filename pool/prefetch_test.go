package pool_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
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

// putMany puts tasks of three keys, in the order in which they will be taken.
func putMany(t *testing.T, q *task.Queue[int], n int, o task.PutOptions) {
	t.Helper()
	for i := 0; i < n; i += 500 {
		batch := make([]task.Entry[int], min(500, n-i))
		for j := range batch {
			batch[j] = task.Entry[int]{Key: fmt.Sprint((i + j) % 3), Payload: i + j, Options: o}
		}
		_, err := q.PutBatch(t.Context(), batch)
		require.NoError(t, err)
	}
}

// Workers do not wait for transactions: a pool is at least four times as fast as its workers would
// be on their own.
func TestWorkersDoNotWaitForTransactions(t *testing.T) {
	const tasks, workers = 3000, 8
	inBubble(t, func(t *testing.T, ctx context.Context) {
		q, _ := openDatabase[int](t, time.Millisecond, nil)
		putMany(t, q, tasks, task.PutOptions{})
		begin := time.Now()
		var all sync.WaitGroup
		for range workers {
			all.Go(func() {
				for {
					tk, ok, err := q.TryTake(ctx)
					assert.NoError(t, err)
					if !ok {
						return
					}
					assert.NoError(t, tk.Ack(ctx))
				}
			})
		}
		all.Wait()
		alone := time.Since(begin)
		for _, prefetch := range []int{0, -1, 20, 1000} {
			putMany(t, q, tasks, task.PutOptions{})
			begin = time.Now()
			p := openNew(t, q, func(context.Context, *task.Task[int]) error { return nil },
				pool.Options[int]{Workers: workers, Prefetch: prefetch})
			require.NoError(t, p.Wait(ctx))
			took := time.Since(begin)
			t.Logf("Prefetch %d: %v; on their own: %v", prefetch, took, alone)
			if prefetch >= 0 {
				require.Less(t, 4*took, alone)
			}
			require.NoError(t, p.Shutdown(ctx))
			require.Equal(t, uint64(tasks), p.Stats().Succeeded)
		}
	})
}

// jammed is a pool whose handlers were quick, and are slow now. So it holds prefetched tasks
// without workers.
type jammed struct {
	*testing.T
	q    *task.Queue[int]
	p    *pool.Pool[int]
	gate *gate
}

func openJammed(t *testing.T, o pool.Options[int]) *jammed {
	q, _ := openDatabase[int](t, time.Millisecond, nil)
	j := &jammed{T: t, q: q, gate: newGate()}
	putMany(t, q, 200, task.PutOptions{})
	o.Workers = 2
	j.p = openNew(t, q, func(ctx context.Context, t *task.Task[int]) error {
		if t.Payload < 60 {
			return nil
		}
		return j.gate.handle(ctx, t)
	}, o)
	time.Sleep(100 * time.Millisecond)
	require.Equal(t, 2, j.p.Stats().Running)
	require.Positive(t, j.p.Stats().Prefetched)
	require.Equal(t, 2+j.p.Stats().Prefetched, j.stats().Taken)
	return j
}

func (j *jammed) stats() task.Stats {
	s, err := j.q.Stats(j.Context())
	require.NoError(j, err)
	return s
}

// checkGivenBack checks that the pool has only running tasks, and that the other tasks are as if
// they had never been taken.
func (j *jammed) checkGivenBack() {
	j.Helper()
	require.Equal(j, 2, j.stats().Taken)
	require.Zero(j, j.p.Stats().Prefetched)
	for i := range 10 {
		tk, ok, err := j.q.TryTake(j.Context())
		require.NoError(j, err)
		require.True(j, ok)
		require.Equal(j, [2]int{62 + i, 1}, [2]int{tk.Payload, tk.Attempts})
	}
}

// A prefetched task is handed back when it must not start any more, or has waited too long, and
// keeps its turn.
func TestPrefetchedTasksAreHandedBack(t *testing.T) {
	for name, f := range map[string]func(ctx context.Context, j *jammed){
		"too long":    func(context.Context, *jammed) { time.Sleep(410 * time.Millisecond) },
		"pool paused": func(_ context.Context, j *jammed) { j.p.Pause() },
		"shutdown": func(ctx context.Context, j *jammed) {
			later(func() error {
				return j.p.Shutdown(ctx)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, ctx context.Context) {
				before := goroutines()
				j := openJammed(t, pool.Options[int]{})
				f(ctx, j)
				time.Sleep(10 * time.Millisecond)
				j.checkGivenBack()
				j.gate.let(1)
				time.Sleep(10 * time.Millisecond)
				require.Zero(t, j.p.Stats().Prefetched) // it takes as few as a pool that begins
				result := later(func() error { return j.p.Shutdown(ctx) })
				j.gate.let(j.p.Stats().Running)
				require.NoError(t, <-result)
				require.LessOrEqual(t, goroutines(), before+1) // the store has one for timers
			})
		})
	}
}

// Shutdown says so if a task could not be settled in time.
func TestShutdownWithoutDatabase(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		q, db := openDatabase[int](t, time.Millisecond, nil)
		var away atomic.Bool
		db.fails = func(string) bool { return away.Load() }
		p := openNew(t, q, func(context.Context, *task.Task[int]) error { away.Store(true); return nil },
			pool.Options[int]{Workers: 1})
		putMany(t, q, 1, task.PutOptions{})
		time.Sleep(time.Second)
		require.Equal(t, [3]int{0, 1, 1},
			[3]int{p.Stats().Running, p.Stats().Unsettled, int(p.Stats().Started)})
		soon, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		require.ErrorIs(t, p.Shutdown(soon), pool.ErrAbandoned)
		time.Sleep(2 * time.Second)
		require.Equal(t, [2]uint64{0, 1}, [2]uint64{p.Stats().Succeeded, p.Stats().Lost})
		require.Error(t, p.Shutdown(ctx), "the task is not back")
		away.Store(false)
		require.NoError(t, p.Shutdown(ctx))
		s, err := q.Stats(ctx)
		require.NoError(t, err)
		require.Equal(t, [2]int{1, 0}, [2]int{s.Ready, s.Taken})
		tk, _, err := q.TryTake(ctx)
		require.NoError(t, err)
		require.Equal(t, 2, tk.Attempts, "its handler has run")
	})
}

// Tasks that run for long are not prefetched: another process may have workers for them.
func TestPoolsDoNotHoard(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		q, _ := openDatabase[int](t, time.Millisecond, nil)
		putMany(t, q, 100, task.PutOptions{})
		handler := func(context.Context, *task.Task[int]) error { time.Sleep(time.Second); return nil }
		one := openNew(t, q, handler, pool.Options[int]{Workers: 4})
		two := openNew(t, q, handler, pool.Options[int]{Workers: 4})
		for range 12 {
			time.Sleep(time.Second)
			a, b := one.Stats(), two.Stats()
			require.Equal(t, [2]int{4, 4}, [2]int{a.Running, b.Running})
			require.Zero(t, a.Prefetched+b.Prefetched)
		}
		require.NoError(t, one.Wait(ctx))
		require.NoError(t, two.Wait(ctx))
	})
}

// A task is not started when much of its lease is over, and tasks are started in the order in
// which they are taken.
func TestPrefetchedTasksHaveTheirTime(t *testing.T) {
	const ttr = 80 * time.Millisecond
	for _, ttr := range []time.Duration{0, ttr} {
		inBubble(t, func(t *testing.T, ctx context.Context) {
			q, _ := openDatabase[int](t, time.Millisecond, nil)
			putMany(t, q, 500, task.PutOptions{TTR: ttr})
			r := chance(t)
			var started []int
			p := openNew(t, q, func(_ context.Context, tk *task.Task[int]) error {
				assert.Equal(t, 1, tk.Attempts)
				if ttr > 0 {
					assert.Greater(t, time.Until(tk.Info().Until), ttr*7/8-2*time.Millisecond)
				}
				started = append(started, tk.Payload)
				if r.IntN(50) == 0 {
					time.Sleep(ttr / 2)
				}
				return nil
			}, pool.Options[int]{Workers: 1})
			require.NoError(t, p.Wait(ctx))
			require.Equal(t, uint64(500), p.Stats().Succeeded)
			if ttr == 0 {
				require.True(t, slices.IsSorted(started))
			}
		})
	}
}

// While the database is away nothing is lost and nobody is in a hurry; when it is back, the pool
// goes on by itself.
func TestDatabaseAway(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		q, db := openDatabase[int](t, time.Millisecond, nil)
		var away atomic.Bool
		var calls atomic.Int32
		db.fails = func(string) bool {
			if away.Load() {
				calls.Add(1)
			}
			return away.Load()
		}
		var log bytes.Buffer
		var done [300]atomic.Int32
		p := openNew(t, q, func(_ context.Context, tk *task.Task[int]) error {
			time.Sleep(time.Millisecond)
			done[tk.Payload].Add(1)
			return nil
		}, pool.Options[int]{Workers: 8, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		putMany(t, q, len(done), task.PutOptions{})
		time.Sleep(20 * time.Millisecond)
		away.Store(true)
		time.Sleep(time.Minute)
		require.Less(t, calls.Load(), int32(100*60)) // up to 64 results a second, and a few takes
		synctest.Wait()
		require.Equal(t, 1, bytes.Count(log.Bytes(), []byte("level=ERROR")))
		away.Store(false)
		require.NoError(t, p.Wait(ctx))
		require.Equal(t, uint64(len(done)), p.Stats().Succeeded)
		for i := range done {
			require.EqualValues(t, 1, done[i].Load())
		}
		require.NoError(t, p.Shutdown(ctx))
		synctest.Wait()
	})
}

// Done of a handler's context does not wait for the store, because its caller may be in a
// transaction for which the store waits.
func TestContextDoesNotWaitForTheStore(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		q, _ := openDatabase[int](t, time.Second, nil)
		putMany(t, q, 1, task.PutOptions{TTR: time.Minute})
		causes := make(chan error, 1)
		p := openNew(t, q, func(ctx context.Context, _ *task.Task[int]) error {
			begin := time.Now()
			done := ctx.Done()
			assert.Zero(t, time.Since(begin))
			<-done
			causes <- context.Cause(ctx)
			return nil
		}, pool.Options[int]{Workers: 1})
		time.Sleep(2 * time.Minute)
		require.ErrorIs(t, <-causes, task.ErrLeaseLost)
		stopped, stop := context.WithCancel(ctx)
		stop()
		_ = p.Shutdown(stopped)
	})
}
