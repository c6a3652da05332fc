package task

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task/memory"
)

// A newcomer does not get the error of earlier putters: a putter that is about to wait for its key
// does not keep out other keys.
func TestNewcomerIsNotToldWhatIsOver(t *testing.T) {
	o := &Options[int]{Capacity: 2, KeyCapacity: 1}
	hookedBubble(t, o, func(ctx context.Context, q *Queue[int], h *hooked) {
		fill(t, q, "a", 1, PutOptions{})
		fill(t, q, "b", 1, PutOptions{})
		go func() { _, _ = q.PutWait(ctx, "c", 0, PutOptions{}) }()
		synctest.Wait()
		for range 3 {
			one, err := q.Take(ctx)
			require.NoError(t, err)
			require.NoError(t, one.Ack(ctx))
		}
		fill(t, q, "a", 1, PutOptions{})
		puts, newcomer := 0, error(nil)
		h.beforePut = func() { // the second call is of a putter in line
			if puts++; puts == 2 {
				_, newcomer = q.Put(ctx, "b", 0, PutOptions{})
			}
		}
		go func() { _, _ = q.PutWait(ctx, "a", 0, PutOptions{}) }()
		synctest.Wait()
		require.GreaterOrEqual(t, puts, 2)
		require.NoError(t, newcomer)
	})
}

// A store that panics ends one call, and nobody has to wait for it.
func TestPutPanicsInLine(t *testing.T) {
	hookedBubble(t, &Options[int]{Capacity: 1}, func(ctx context.Context, q *Queue[int], h *hooked) {
		fill(t, q, "a", 1, PutOptions{})
		puts := 0
		h.beforePut = func() {
			if puts++; puts == 2 {
				panic("oops")
			}
		}
		require.PanicsWithValue(t, "oops", func() { _, _ = q.PutWait(ctx, "a", 0, PutOptions{}) })
		put := make(chan error, 1)
		go func() {
			_, err := q.PutWait(ctx, "b", 0, PutOptions{})
			put <- err
		}()
		synctest.Wait()
		one, err := q.Take(ctx)
		require.NoError(t, err)
		require.NoError(t, one.Ack(ctx))
		require.NoError(t, <-put)
		require.Zero(t, q.notifier.puttersWaiting.Load())
	})
}

// Producers that wait, and often do not want to any more, and workers that make room: nothing is
// put after an error, nothing is lost, and nobody waits for room that is there. It is for the race
// detector, too.
func TestPuttersRace(t *testing.T) {
	for _, o := range []Options[int]{
		{Capacity: 1},
		{Capacity: 3, KeyCapacity: 2},
		{Capacity: 8, WhenFull: fairq.RejectOverShare, CountOnlyWaiting: true},
		{Capacity: 3, WhenFull: fairq.EvictOldest, OnEvict: func(*Task[int]) {}},
	} {
		t.Run(fmt.Sprint(o.WhenFull, o.KeyCapacity), func(t *testing.T) {
			var evicted, put, taken atomic.Int64
			if o.OnEvict != nil {
				o.OnEvict = func(*Task[int]) { evicted.Add(1) }
			}
			ctx, store := t.Context(), new(memory.Store)
			var queues []*Queue[int]
			var putters, takers sync.WaitGroup
			for range 2 {
				q, err := Open(ctx, store, "q", &o)
				require.NoError(t, err)
				queues = append(queues, q)
				for range 4 {
					putters.Go(func() {
						for range 200 {
							ctx, cancel := context.WithCancel(ctx)
							if rand.IntN(3) == 0 {
								go cancel()
							}
							_, err := q.PutWait(ctx, string(rune('a'+rand.IntN(3))), 0, PutOptions{})
							cancel()
							if err == nil {
								put.Add(1)
							} else if !errors.Is(err, context.Canceled) {
								t.Error(err)
							}
						}
					})
				}
				for range 2 {
					takers.Go(func() {
						one, err := q.Take(ctx)
						for err == nil {
							taken.Add(1)
							next, ok := new(Task[int]), false
							if ok, err = q.self.AckAndTake(ctx, one, next); err == nil && !ok {
								next, err = q.Take(ctx)
							}
							one = next
						}
						assert.ErrorIs(t, err, ErrClosed)
					})
				}
			}
			putters.Wait()
			for left := 1; left > 0; runtime.Gosched() { // each that was taken is acked, too
				s, err := queues[0].Stats(ctx)
				require.NoError(t, err)
				left = s.Len() + int(put.Load()-taken.Load()-evicted.Load())
			}
			for _, q := range queues {
				require.Zero(t, q.notifier.puttersWaiting.Load())
				require.Zero(t, q.notifier.putters.waitQueue.Len())
				require.NoError(t, q.Close(ctx))
			}
			takers.Wait()
			require.Equal(t, put.Load(), taken.Load()+evicted.Load())
		})
	}
}
