package pool_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// anyTime is up to 20 seconds, a whole number of them.
func anyTime(r *rand.Rand) time.Duration { return time.Duration(r.IntN(21)) * time.Second }

// after is time.After. No time at all is no timer: in a bubble, two goroutines that receive from
// timers that are overdue at once crash the race detector (go1.26).
func after(d time.Duration) <-chan time.Time {
	if d > 0 {
		return time.After(d)
	}
	now := make(chan time.Time)
	close(now)
	return now
}

// anyDeadline is never at the time of anything else.
func anyDeadline(r *rand.Rand) time.Duration { return 2*anyTime(r) + time.Second/4 }

// timed is a task that has a delay and a deadline, fails some times, and takes its time.
type timed struct {
	n                              int
	delay, deadline, runs, backoff time.Duration
	failures                       int
	listens                        bool // to its context
}

// late reports whether the deadline is over at a time after the task was put.
func (j *timed) late(at time.Duration) bool { return j.deadline > 0 && at >= j.deadline }

// outcome returns the times at which its attempts begin, the reason for which it fails for good, 0
// if it is done, and the time of its end.
func (j *timed) outcome(
	maxAttempts int,
) (starts []time.Duration, reason pool.Reason, at time.Duration) {
	if j.late(j.delay) {
		return nil, pool.ReasonDeadline, j.deadline
	}
	for at = j.delay; ; at += j.backoff {
		starts = append(starts, at)
		interrupted := j.listens && j.late(at+j.runs)
		if interrupted {
			at = j.deadline
		} else {
			at += j.runs
		}
		switch {
		case len(starts) > j.failures && !interrupted:
			return starts, 0, at
		case len(starts) == maxAttempts:
			return starts, pool.ReasonFailed, at
		case j.late(at + j.backoff):
			return starts, pool.ReasonDeadline, at
		}
	}
}

// result is what happened to such a task.
type result struct {
	starts  []time.Duration
	done    []time.Duration
	reasons []pool.Reason
	letters []time.Duration
}

// TestDelayAndDeadline has tasks with delays, deadlines and failures, and a worker for each. It
// compares the outcome of each task with the outcome that follows from its times.
func TestDelayAndDeadline(t *testing.T) {
	r := chance(t)
	for round := range 30 {
		synctest.Test(t, func(t *testing.T) { testDelayAndDeadline(t, r, round%2 == 0) })
	}
}

// trial is what all tasks of a test have in common.
type trial struct {
	begin   time.Time
	mu      sync.Mutex // protects results
	results [50]result
}

func (x *trial) note(f func(now time.Duration)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	f(time.Since(x.begin))
}

func (x *trial) sink(t *testing.T) pool.Handler[*pool.DeadLetter[timed]] {
	return func(_ context.Context, l *pool.DeadLetter[timed]) error {
		x.note(func(now time.Duration) {
			res := &x.results[l.Payload.n]
			res.reasons, res.letters = append(res.reasons, l.Reason), append(res.letters, now)
			assert.Equal(t, time.Now(), l.At)
			assert.Len(t, res.starts, l.Task.Attempts)
		})
		return nil
	}
}

func (x *trial) handler(t *testing.T) pool.Handler[*task.Task[timed]] {
	return func(ctx context.Context, tk *task.Task[timed]) error {
		j := &tk.Payload
		x.note(func(now time.Duration) { x.results[j.n].starts = append(x.results[j.n].starts, now) })
		at, ok := ctx.Deadline()
		assert.Equal(t, j.deadline > 0, ok)
		if ok {
			assert.Equal(t, x.begin.Add(j.deadline), at)
		}
		end := after(j.runs)
		if !j.listens {
			<-end
		} else {
			select {
			case <-end:
			case <-ctx.Done():
				assert.Equal(t, pool.ErrDeadline, context.Cause(ctx))
				return errors.Join(ctx.Err(), pool.RetryAfter(j.backoff))
			}
		}
		if tk.Attempts <= j.failures {
			return errors.Join(errNo, pool.RetryAfter(j.backoff))
		}
		x.note(func(now time.Duration) { x.results[j.n].done = append(x.results[j.n].done, now) })
		return nil
	}
}

func testDelayAndDeadline(t *testing.T, r *rand.Rand, own bool) {
	const maxAttempts = 4
	x := trial{begin: time.Now()}
	sink, handler := x.sink(t), x.handler(t)
	o := pool.Options[timed]{
		Workers: len(x.results), DeadLetters: sink,
		Policy: pool.Policy{MaxAttempts: maxAttempts},
	}
	var p *pool.Pool[timed]
	if own {
		p = openFunc(t, handler, o)
	} else {
		q := openQueue(t, &task.Options[timed]{OnExpire: func(tk *task.Task[timed]) {
			_ = sink(t.Context(), &pool.DeadLetter[timed]{
				Task: tk.Info(), Payload: tk.Payload, Reason: pool.ReasonDeadline, Err: pool.ErrDeadline,
				At: time.Now(),
			})
		}})
		p = openNew(t, q, handler, o)
	}
	var jobs [len(x.results)]timed
	for i := range jobs {
		j := timed{
			n: i, runs: anyTime(r), backoff: time.Second + anyTime(r), failures: r.IntN(6),
			listens: r.IntN(2) == 0,
		}
		var options pool.PutOptions
		if r.IntN(2) == 0 {
			j.delay = time.Second + anyTime(r)
			options.Delay = j.delay
		}
		if r.IntN(2) == 0 {
			j.deadline = anyDeadline(r)
			options.Deadline = x.begin.Add(j.deadline)
		}
		jobs[i] = j
		_, err := p.Put(t.Context(), fmt.Sprint(i%5), j, options)
		require.NoError(t, err)
	}
	time.Sleep(time.Hour)
	synctest.Wait()
	for i, j := range jobs {
		starts, reason, at := j.outcome(maxAttempts)
		want := result{starts: starts, done: []time.Duration{at}}
		if reason != 0 {
			want = result{starts: starts, reasons: []pool.Reason{reason}, letters: []time.Duration{at}}
		}
		require.Equal(t, want, x.results[i], "%+v", j)
	}
	require.NoError(t, p.Shutdown(t.Context()))
}

// TestContextEnds has handlers that run until their context is done.
func TestContextEnds(t *testing.T) {
	for name, c := range map[string]struct {
		timeout, deadline, ttr time.Duration
		after                  time.Duration
		cause                  error
	}{
		"timeout": {timeout: time.Minute, after: time.Minute, cause: pool.ErrTimeout},
		"timeout is sooner": {
			timeout: time.Minute, deadline: time.Hour, ttr: time.Hour,
			after: time.Minute, cause: pool.ErrTimeout,
		},
		"deadline": {deadline: time.Minute, after: time.Minute, cause: pool.ErrDeadline},
		"deadline is sooner": {
			deadline: time.Minute, timeout: time.Hour, ttr: time.Hour,
			after: time.Minute, cause: pool.ErrDeadline,
		},
		"lease": {ttr: time.Minute, after: time.Minute, cause: task.ErrLeaseLost},
		"lease is the sooner": {
			ttr: time.Minute, timeout: time.Hour, deadline: time.Hour,
			after: time.Minute, cause: task.ErrLeaseLost,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, ctx context.Context) {
				begin := time.Now()
				var box mailbox[int]
				var cause, err error
				again, most := false, 1
				if errors.Is(c.cause, task.ErrLeaseLost) {
					most = 2
				}
				p := openNew(t, openQueue(t, &task.Options[int]{TTR: c.ttr}),
					func(ctx context.Context, _ *task.Task[int]) error {
						if again {
							return nil
						}
						again = true
						at, ok := ctx.Deadline()
						require.Equal(t, c.timeout+c.deadline > 0, ok)
						if ok && !errors.Is(c.cause, task.ErrLeaseLost) {
							require.Equal(t, c.after, at.Sub(begin))
						}
						<-ctx.Done()
						require.Equal(t, c.after, time.Since(begin))
						cause = context.Cause(ctx)
						return fmt.Errorf("handler: %w", ctx.Err())
					}, pool.Options[int]{
						Workers: 1, DeadLetters: box.sink,
						Policy:   pool.Policy{Timeout: c.timeout, MaxAttempts: most},
						Observer: on(pool.EventFailed, func(e pool.Event[int]) { err = e.Err }),
					})
				var options pool.PutOptions
				if c.deadline > 0 {
					options.Deadline = begin.Add(c.deadline)
				}
				_, bad := p.Put(ctx, "a", 1, options)
				require.NoError(t, bad)
				wait(t, p)
				require.Equal(t, c.cause, cause)
				if errors.Is(c.cause, task.ErrLeaseLost) {
					require.NoError(t, err)
					require.Empty(t, box.all())
					require.Equal(t, [2]uint64{1, 1}, [2]uint64{p.Stats().Lost, p.Stats().Succeeded})
				} else {
					require.ErrorIs(t, err, c.cause)
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.Len(t, box.all(), 1)
					require.Equal(t, err, box.all()[0].Err)
				}
				require.NoError(t, p.Shutdown(ctx))
			})
		})
	}
}

// TestTimeoutOfItsOwn has a handler whose own context has timed out, which is no matter of the
// pool's.
func TestTimeoutOfItsOwn(t *testing.T) {
	for _, asks := range []bool{false, true} {
		inBubble(t, func(t *testing.T, ctx context.Context) {
			var box mailbox[int]
			p := openFunc(t, func(ctx context.Context, _ *task.Task[int]) error {
				parent := context.Background()
				if asks {
					parent = ctx
				}
				ctx, cancel := context.WithTimeout(parent, time.Second)
				defer cancel()
				<-ctx.Done()
				return ctx.Err()
			}, pool.Options[int]{
				Workers: 1, Policy: pool.Policy{Timeout: time.Hour, MaxAttempts: 1},
				DeadLetters: box.sink,
			})
			require.EqualError(t, p.Do(ctx, "a", 1, pool.PutOptions{}), "context deadline exceeded")
			synctest.Wait()
			require.Equal(t, context.DeadlineExceeded, box.all()[0].Err)
			end(t, ctx, p)
		})
	}
}
