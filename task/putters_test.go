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

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/task/memory"
)

// beforePut is a Store in memory that calls a function before each call of PutOne.
type beforePut struct {
	memory.Store
	f func()
}

type beforePutBackend struct {
	driver.Backend
	store *beforePut
}

func (s *beforePut) Open(
	ctx context.Context, name string, o driver.Settings, n driver.Notifier,
) (driver.Backend, error) {
	b, err := s.Store.Open(ctx, name, o, n)
	return beforePutBackend{b, s}, err
}

func (b beforePutBackend) PutOne(
	ctx context.Context, task driver.New,
) (ID, *driver.Record, error) {
	if b.store.f != nil {
		b.store.f()
	}
	return b.Backend.PutOne(ctx, task)
}

// A newcomer does not get the error of earlier putters: a putter that is about to wait for its key
// does not keep out other keys.
func TestNewcomerIsNotToldWhatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, s := t.Context(), new(beforePut)
		q, err := Open(ctx, s, "q", &Options[int]{Capacity: 2, KeyCapacity: 1})
		require.NoError(t, err)
		defer func() { require.NoError(t, q.Close(ctx)) }()
		put := func(key string) {
			_, err := q.Put(ctx, key, 0, PutOptions{})
			require.NoError(t, err)
		}
		put("a")
		put("b")
		go func() { _, _ = q.PutWait(ctx, "c", 0, PutOptions{}) }()
		synctest.Wait()
		for range 3 {
			one, err := q.Take(ctx)
			require.NoError(t, err)
			require.NoError(t, one.Ack(ctx))
		}
		put("a")
		puts, newcomer := 0, error(nil)
		s.f = func() { // the second call is of a putter in line
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
	synctest.Test(t, func(t *testing.T) {
		ctx, s := t.Context(), new(beforePut)
		q, err := Open(ctx, s, "q", &Options[int]{Capacity: 1})
		require.NoError(t, err)
		_, err = q.Put(ctx, "a", 0, PutOptions{})
		require.NoError(t, err)
		puts := 0
		s.f = func() {
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
		require.NoError(t, q.Close(ctx))
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
			const producers, each = 8, 200
			var evicted, put, taken atomic.Int64
			if o.OnEvict != nil {
				o.OnEvict = func(*Task[int]) { evicted.Add(1) }
			}
			ctx, store := t.Context(), new(memory.Store)
			var queues [2]*Queue[int]
			for i := range queues {
				var err error
				queues[i], err = Open(ctx, store, "q", &o)
				require.NoError(t, err)
			}
			var putters, takers sync.WaitGroup
			for p := range producers {
				putters.Go(func() {
					r := rand.New(rand.NewPCG(uint64(p), 1))
					for range each {
						ctx, cancel := context.WithCancel(ctx)
						if r.IntN(3) == 0 {
							go cancel()
						}
						_, err := queues[p%2].PutWait(ctx, string(rune('a'+r.IntN(3))), 0, PutOptions{})
						cancel()
						if err == nil {
							put.Add(1)
						} else if !errors.Is(err, context.Canceled) {
							t.Error(err)
						}
					}
				})
			}
			for i := range 4 {
				takers.Go(func() {
					for {
						one, err := queues[i%2].Take(ctx)
						for next := new(Task[int]); err == nil; next = new(Task[int]) {
							taken.Add(1)
							var ok bool
							if ok, err = queues[i%2].self.AckAndTake(ctx, one, next); !ok {
								break
							}
							one = next
						}
						if err != nil {
							require.ErrorIs(t, err, ErrClosed)
							return
						}
					}
				})
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
