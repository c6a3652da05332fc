package fairq

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestConservation has many goroutines push, pop, remove and give up at random, and then accounts
// for every item: none is lost, none is delivered twice, and no refused item is delivered.
func TestConservation(t *testing.T) {
	for seed := range uint64(24) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { conserve(t, seed) })
	}
}

func conserve(t *testing.T, seed uint64) {
	const producers, items, keys = 6, 800, 5
	var out [producers * items]atomic.Int32 // how often each item came out
	take := func(item int) { out[item].Add(1) }
	o := Options[int, int]{
		Capacity: 2 + int(seed>>3&1)*5, TrackWait: seed%3 == 0, ShareTime: seed%5 > 2,
	}
	if seed&2 != 0 {
		o.KeyCapacity = 1 + o.Capacity/4
	}
	if seed&4 != 0 || seed > 15 {
		o.WhenFull = EvictHeaviest
		if seed > 15 {
			o.WhenFull = EvictOldest
		}
		o.OnEvict = func(_, item int) { take(item) }
	}
	q := New(func(item int) int { return item % keys }, &o)
	deliver := func(item int) {
		if take(item); o.ShareTime {
			if err := q.Done(item); err != nil {
				t.Error(err)
			}
		}
	}
	impatient := func(r *rand.Rand) (context.Context, context.CancelFunc) {
		if r.IntN(2) == 0 {
			return t.Context(), func() {}
		}
		return context.WithTimeout(t.Context(), time.Duration(r.IntN(50))*time.Microsecond)
	}
	var accepted [producers * items]bool
	var working, consuming sync.WaitGroup
	for p := range producers {
		working.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(p)))
			for i := p * items; i < (p+1)*items; i++ {
				var err error
				switch r.IntN(5) {
				case 0:
					err = q.Push(i)
				case 1:
					var ticket Ticket
					if ticket, err = q.Add(i); err == nil && r.IntN(2) == 0 {
						if item, ok := q.Remove(ticket); ok {
							take(item)
						}
					}
				case 2:
					n, _ := q.PushBatch([]int{i})
					accepted[i] = n == 1
					continue
				default:
					ctx, cancel := impatient(r)
					err = q.PushWait(ctx, i)
					cancel()
				}
				accepted[i] = err == nil
			}
		})
	}
	for c := range 4 {
		consuming.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(100+c)))
			batch := make([]int, 3)
			for {
				switch r.IntN(6) {
				case 0:
					if item, ok := q.Pop(); ok {
						deliver(item)
					}
				case 1:
					for _, item := range batch[:q.PopBatch(batch)] {
						deliver(item)
					}
				case 2:
					if err := q.Check(); err != nil {
						t.Error(err)
					}
					q.Upcoming(3)
					q.Snapshot()
					if r.IntN(20) == 0 {
						for _, item := range append(q.RemoveKey(r.IntN(keys)), q.Drain()...) {
							take(item)
						}
					}
				default:
					ctx, cancel := impatient(r)
					item, err := q.PopWait(ctx)
					cancel()
					if err == nil {
						deliver(item)
					} else if errors.Is(err, ErrClosed) {
						return
					}
				}
			}
		})
	}
	working.Wait()
	q.Close()
	consuming.Wait()
	s := q.Stats()
	require.Zero(t, s.Len+s.WaitingPop+s.WaitingPush)
	require.Equal(t, s.Pushed, s.Popped+s.Removed+s.Evicted)
	require.NoError(t, q.Check())
	for key := range keys {
		require.Error(t, q.Done(key), "nothing is held")
	}
	for i := range out {
		want := int32(0)
		if accepted[i] {
			want = 1
		}
		require.Equal(t, want, out[i].Load(), "item %d", i)
	}
}
