package fairq_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
)

// watched is a queue with watches, and the demand at which each is due.
type watched struct {
	*testing.T
	rand    *rand.Rand
	q       *fairq.FairQueue[int, int]
	watches []*fairq.Watch[int, int]
	levels  []int // 0 means that it is not armed
	calls   []atomic.Int32
	closed  bool
	panics  bool         // the functions do
	inside  atomic.Int32 // goroutines in calls that wait
	peak    int          // the demand at the last calls: a PushWait gives up when one panics
	tickets []fairq.Ticket
	cancels []context.CancelFunc
	all     sync.WaitGroup
}

// TestWatch makes random calls. After each it checks that it has called exactly the watches that
// became due, once.
func TestWatch(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			w := newWatched(t, seed)
			for step := range 150 {
				spared(w.step)
				synctest.Wait()
				if w.check(); t.Failed() {
					t.Logf("seed %d, step %d", seed, step)
					break
				}
			}
			w.closed = true
			spared(w.q.Close)
			synctest.Wait()
			w.check()
			require.Zero(w, w.inside.Load(), "nobody waits at a closed queue")
			for _, cancel := range w.cancels {
				cancel()
			}
			w.all.Wait()
		})
		if t.Failed() {
			return
		}
	}
}

func newWatched(t *testing.T, seed uint64) *watched {
	w := &watched{
		T: t, rand: rand.New(rand.NewPCG(seed, 41)), levels: make([]int, 3),
		calls: make([]atomic.Int32, 3),
	}
	r := w.rand
	o := &fairq.Options[int, int]{
		Capacity: []int{fairq.Unbounded, 1 + r.IntN(8), 20}[r.IntN(3)], TrackWait: r.IntN(4) == 0,
	}
	if o.Capacity > 0 && r.IntN(3) == 0 {
		o.KeyCapacity = 1 + r.IntN(o.Capacity)
	}
	if o.Capacity > 0 && r.IntN(3) == 0 {
		o.WhenFull, o.OnEvict = fairq.EvictHeaviest, func(int, int) {}
	}
	w.q = fairq.New(func(i int) int { return i % 3 }, o)
	for i := range w.levels {
		w.watches = append(w.watches, w.q.Watch(func() {
			w.peak = w.demand()
			if w.calls[i].Add(1); w.panics {
				panic(spare{})
			}
		}))
	}
	w.panics = r.IntN(2) == 0
	return w
}

// spare is the value with which functions of the user panic in these tests.
type spare struct{}

// spared makes a call whose caller recovers.
func spared(call func()) {
	defer func() {
		if r := recover(); r != nil && r != (spare{}) {
			panic(r)
		}
	}()
	call()
}

// demand returns how many items are queued or wait for room.
func (w *watched) demand() int {
	s := w.q.Stats()
	return s.Len + s.WaitingPush
}

// wait starts a call that waits until it is cancelled or served.
func (w *watched) wait(call func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	w.cancels = append(w.cancels, cancel)
	w.all.Go(func() {
		w.inside.Add(1)
		defer w.inside.Add(-1)
		spared(func() { call(ctx) })
	})
}

func (w *watched) step() {
	r, item := w.rand, w.rand.IntN(6)
	switch r.IntN(20) {
	case 0, 1, 2, 3:
		i := r.IntN(len(w.watches))
		n := r.IntN(12)
		due := w.closed || w.demand() >= n
		require.Equal(w, !due, w.watches[i].Arm(n))
		if w.levels[i] = n; due {
			w.levels[i] = 0
		}
	case 4:
		i := r.IntN(len(w.watches))
		w.watches[i].Disarm()
		w.levels[i] = 0
	case 5, 6:
		_ = w.q.Push(item)
	case 7:
		if t, err := w.q.Add(item); err == nil {
			w.tickets = append(w.tickets, t)
		}
	case 8, 9:
		_, _ = w.q.PushBatch(slices.Repeat([]int{item, r.IntN(6)}, r.IntN(5)))
	case 10, 11, 12:
		w.wait(func(ctx context.Context) { _ = w.q.PushWait(ctx, item) })
	case 13:
		if r.IntN(3) == 0 {
			w.wait(func(ctx context.Context) { _, _ = w.q.PopWait(ctx) })
		}
	case 14, 15:
		w.q.Pop()
	case 16:
		w.q.PopBatch(make([]int, r.IntN(5)))
	case 17:
		if len(w.tickets) > 0 {
			w.q.Remove(w.tickets[r.IntN(len(w.tickets))])
		}
	case 18:
		if len(w.cancels) > 0 {
			w.cancels[r.IntN(len(w.cancels))]()
		}
	default:
		switch r.IntN(12) {
		case 0:
			w.q.Drain()
		case 1, 2, 3:
			w.q.RemoveKey(item % 3)
		case 4:
			w.closed = true
			w.q.Close()
		}
	}
}

// check finds out which watches have become due.
func (w *watched) check() {
	require.NoError(w, w.q.Check())
	s := w.q.Stats()
	require.EqualValues(w, w.inside.Load(), s.WaitingPush+s.WaitingPop,
		"who does not wait any more is in no line")
	demand := max(w.demand(), w.peak)
	w.peak = 0
	for i := range w.watches {
		want := 0
		if w.levels[i] > 0 && (w.closed || demand >= w.levels[i]) {
			want, w.levels[i] = 1, 0
		}
		require.EqualValues(w, want, w.calls[i].Swap(0), "watch %d, demand %d, closed %v",
			i, demand, w.closed)
	}
}

// A consumer that only looks when a watch calls gets everything.
func TestWatchLosesNothing(t *testing.T) {
	for level := 1; level <= 6; level++ {
		const producers, items = 4, 3000
		q := fairq.New(func(i int) int { return i % 5 },
			&fairq.Options[int, int]{Capacity: 8, KeyCapacity: 2 + level})
		var pushing sync.WaitGroup
		for p := range producers {
			pushing.Go(func() {
				for i := p; i < items; i += producers {
					if i%3 > 0 || q.Push(i) != nil {
						if err := q.PushWait(t.Context(), i); err != nil {
							t.Error(err)
						}
					}
				}
			})
		}
		go func() {
			pushing.Wait()
			q.Close()
		}()
		called := make(chan struct{}, 1)
		var calls, armed atomic.Int32
		w := q.Watch(func() {
			calls.Add(1)
			called <- struct{}{} // there is room, because it is called only once
		})
		var got [items]int
		for left := items; left > 0; {
			for i, ok := q.Pop(); ok; i, ok = q.Pop() {
				got[i]++
				left--
			}
			if left > 0 && w.Arm(level) {
				armed.Add(1)
				select {
				case <-called:
				case <-time.After(time.Minute):
					t.Fatal("nobody tells that there are items")
				}
			}
		}
		for i, n := range got {
			require.Equal(t, 1, n, "item %d", i)
		}
		require.Equal(t, armed.Load(), calls.Load())
		require.False(t, func() bool { pushing.Wait(); q.Close(); return w.Arm(1) }())
	}
}

// If one of the functions that a call runs panics or exits, the call still runs the others.
func TestEndsOfFunctions(t *testing.T) {
	for name, end := range map[string]func(){
		"panic": func() { panic(spare{}) }, "Goexit": runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			var evicted []int
			q := fairq.New(func(i int) int { return i / 10 }, &fairq.Options[int, int]{
				Capacity: 3, WhenFull: fairq.EvictHeaviest,
				OnEvict: func(_, i int) { evicted = append(evicted, i); end() },
			})
			calls := 0
			watch := func(n int) {
				for range 3 {
					require.True(t, q.Watch(func() { calls++; end() }).Arm(n))
				}
			}
			do := func(call func()) {
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					spared(call)
				}()
				<-ended
			}
			watch(3)
			do(func() { _, _ = q.PushBatch([]int{1, 2, 3, 11, 21}) })
			require.Equal(t, []int{3, 2}, evicted)
			require.Equal(t, 3, calls)
			require.Equal(t, []int{1, 11, 21}, q.Drain())
			watch(1)
			do(func() { _ = q.Push(1) })
			require.Equal(t, 6, calls)
			watch(10)
			do(q.Close)
			require.Equal(t, 9, calls)
		})
	}
}
