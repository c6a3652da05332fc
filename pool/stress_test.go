package pool_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/pool"
)

// cycles runs f that often, each time with random numbers of its own, on all processors.
func cycles(t *testing.T, total int, f func(t *testing.T, r *rand.Rand)) {
	if testing.Short() {
		total /= 20
	}
	first := *seed
	if first == 0 {
		first = rand.Uint64()
	}
	// concurrent events differ between runs, but the options do not
	t.Logf("seed %d", first)
	var next atomic.Int64
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for i := next.Add(1); i <= int64(total) && !t.Failed(); i = next.Add(1) {
				f(t, rand.New(rand.NewPCG(first, uint64(i))))
			}
		})
	}
	all.Wait()
}

// anyScale is for pools that end soon.
func anyScale(r *rand.Rand) pool.Scale {
	s := pool.Scale{Max: 1 + r.IntN(3)}
	s.Min = r.IntN(s.Max + 1)
	return s
}

// closers call Shutdown at the same time, some of them without time for handlers.
func closers(r *rand.Rand, all *sync.WaitGroup,
	shutdown func(context.Context) error,
) (errs []error) {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	errs = make([]error, 1+r.IntN(2))
	for i := range errs {
		ctx := context.Background()
		if r.IntN(4) == 0 {
			ctx = over
		}
		yields := r.IntN(4)
		all.Go(func() {
			for range yields {
				runtime.Gosched()
			}
			errs[i] = shutdown(ctx)
		})
	}
	return errs
}

func checkEnded(t *testing.T, errs []error, s pool.Stats) {
	for _, err := range errs {
		known := errors.Is(err, context.Canceled)
		if err != nil && !known || errors.Is(err, pool.ErrAbandoned) {
			t.Errorf("Shutdown returns %v", err)
		}
	}
	if s.Workers != 0 || s.Idle != 0 || s.Nested != 0 ||
		s.Started != s.Succeeded+s.Retried+s.Snoozed+s.Failed+s.Cancelled+s.Lost+s.Returned {
		t.Errorf("after the end: %+v", s)
	}
}

// TestNewWorkersCycles shuts workers down at any moment, in real time, and accounts for each item.
func TestNewWorkersCycles(t *testing.T) {
	cycles(t, 70_000, func(t *testing.T, r *rand.Rand) {
		var all sync.WaitGroup
		var accepted, done atomic.Uint64
		q := fairq.New(func(i int) int { return i }, &fairq.Options[int, int]{Capacity: 1 + r.IntN(3)})
		w := pool.NewWorkers(q, func(ctx context.Context, i int) error {
			if i == 1 {
				pool.Yield(ctx, runtime.Gosched)
			}
			done.Add(1)
			return nil
		}, &pool.WorkersOptions[int]{Logger: quiet, Scale: anyScale(r), AbandonAfter: time.Minute})
		for range 1 + r.IntN(2) {
			items := 1 + r.IntN(4)
			all.Go(func() {
				for i := range items {
					if err := q.PushWait(context.Background(), i); err == nil {
						accepted.Add(1)
					} else if !errors.Is(err, fairq.ErrClosed) {
						t.Errorf("PushWait returns %v", err)
					}
				}
			})
		}
		over, end := context.WithCancel(context.Background())
		if r.IntN(4) == 0 {
			all.Go(func() {
				q.Close()
				if err := w.Wait(over); err == nil && q.Len() > 0 {
					t.Errorf("Wait returns though there are items")
				}
			})
		}
		if r.IntN(2) == 0 {
			all.Go(func() {
				for i := range 3 {
					if err := w.SetWorkers(1, 1+i%2*2); err != nil {
						t.Error(err)
					}
				}
			})
		}
		errs := closers(r, &all, w.Shutdown)
		all.Go(func() {
			_ = w.Shutdown(context.Background())
			end()
			q.Close() // producers may wait for room that nobody makes any more
		})
		all.Wait()
		s, left := w.Stats(), uint64(len(q.Drain()))
		checkEnded(t, errs, s)
		if accepted.Load() != s.Succeeded+left || done.Load() != s.Started {
			t.Errorf("%d items accepted, %d done, %d left, %+v", accepted.Load(), done.Load(), left, s)
		}
	})
}
