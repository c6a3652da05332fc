package task

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/task/memory"
)

// waiters drives calls that wait, on two handles of one queue.
type waiters struct {
	*testing.T
	rand    *rand.Rand
	ctx     context.Context
	queues  []*Queue[int]
	takers  []*waitingTaker // by arrival
	putters []*waitingPutter
	filters map[*Consumer[int]]Filter
	taken   []*Task[int]
	steps   int
	calls   int  // of step, in this step
	changed bool // a filter has, in this step
	crossed bool // takers may look at the same time, and so overtake each other

	consumers []*Consumer[int]
	watchers  []*watcher
}

type waitingTaker struct {
	consumer *Consumer[int]
	arrived  int
	cancel   context.CancelFunc
	done     bool
	got      []*Task[int]
	err      error
}

type waitingPutter struct {
	key    string
	cancel context.CancelFunc
	done   bool
	err    error
}

// TestWaiting makes random calls, many of them waiting ones. After each step it checks that no
// call waits for a task that is ready, that calls are served in order, and that each task goes to
// one.
func TestWaiting(t *testing.T) {
	for seed := range uint64(150) {
		synctest.Test(t, func(t *testing.T) {
			w := newWaiters(t, seed)
			for step := range 150 {
				w.steps, w.calls, w.changed = step, 0, false
				w.step()
				synctest.Wait()
				w.check(fmt.Sprintf("seed %d, step %d", seed, step))
				if t.Failed() {
					break
				}
			}
			for _, q := range w.queues {
				require.NoError(t, q.Close(t.Context()))
			}
			synctest.Wait()
			w.checkWatchesEnd()
			for _, taker := range w.takers {
				require.True(t, taker.done)
				// A take that has got tasks ended before its handle was closed.
				require.True(t, len(taker.got) > 0 || errors.Is(taker.err, ErrClosed))
			}
			for _, putter := range w.putters {
				require.True(t, putter.done)
				// Takes of the other handle may have made room first.
				require.True(t, putter.err == nil || errors.Is(putter.err, ErrClosed))
			}
			for _, q := range w.queues {
				require.Zero(t, q.notifier.takersWaiting.Load())
				require.Zero(t, q.notifier.puttersWaiting.Load())
				require.Empty(t, q.notifier.putters.blocked)
				require.Zero(t, q.notifier.putters.waitQueue.Len())
				require.LessOrEqual(t, len(q.notifier.takers.groups), spareGroups)
				for _, g := range q.notifier.takers.groups {
					require.Empty(t, g.waitQueue)
					require.False(t, g.tested)
				}
				require.Zero(t, q.notifier.takers.woken)
			}
		})
		if t.Failed() {
			return
		}
	}
}

func newWaiters(t *testing.T, seed uint64) *waiters {
	w := &waiters{
		T: t, rand: rand.New(rand.NewPCG(seed, 7)), ctx: t.Context(),
		filters: map[*Consumer[int]]Filter{},
	}
	o := &Options[int]{Capacity: 3 + w.rand.IntN(10)}
	if w.rand.IntN(2) == 0 {
		o.KeyCapacity = 2 + w.rand.IntN(3)
	}
	if w.rand.IntN(2) == 0 {
		o.MaxInFlightPerKey = 1 + w.rand.IntN(2)
	}
	o.CountOnlyWaiting = w.rand.IntN(2) == 0
	o.WhenFull = fairq.WhenFull(w.rand.IntN(2))
	store := new(memory.Store)
	for range 2 {
		q, err := Open[int](w.ctx, store, "q", o)
		require.NoError(t, err)
		w.queues = append(w.queues, q)
		w.crossed = seed%3 == 0
		q.notifier.takers.oneAtATime = !w.crossed
		for range 3 {
			w.consumers = append(w.consumers, q.NewConsumer(Filter{}))
		}
	}
	return w
}

func (w *waiters) step() {
	w.calls++
	c := w.consumers[w.rand.IntN(len(w.consumers))]
	q := w.queues[w.rand.IntN(2)]
	key := string(rune('a' + w.rand.IntN(3)))
	switch op := w.rand.IntN(26); {
	case op >= 20:
		w.watch(c)
	case op < 5:
		ctx, cancel := context.WithCancel(w.ctx)
		t := &waitingTaker{consumer: c, arrived: w.steps, cancel: cancel}
		w.takers = append(w.takers, t)
		batch := w.rand.IntN(4) == 0
		go func() {
			if batch {
				t.got, t.err = c.TakeBatch(ctx, 2)
			} else if one, err := c.Take(ctx); err == nil {
				t.got = []*Task[int]{one}
			} else {
				t.err = err
			}
			t.done = true
		}()
	case op < 7 && len(w.takers) > 0:
		w.takers[w.rand.IntN(len(w.takers))].cancel()
	case op < 8 && len(w.putters) > 0:
		w.putters[w.rand.IntN(len(w.putters))].cancel()
	case op < 13:
		ctx, cancel := context.WithCancel(w.ctx)
		p := &waitingPutter{key: key, cancel: cancel}
		w.putters = append(w.putters, p)
		o := PutOptions{Priority: w.rand.IntN(2), Kind: []string{"x", "y"}[w.rand.IntN(2)]}
		if w.rand.IntN(5) == 0 {
			o.Delay = time.Second
		}
		go func() {
			_, p.err = q.PutWait(ctx, key, 0, o)
			p.done = true
		}()
		if w.rand.IntN(2) == 0 { // sometimes several things happen at once
			w.step()
		}
	case op < 16 && len(w.taken) > 0:
		i := w.rand.IntN(len(w.taken))
		t := w.taken[i]
		w.taken = slices.Delete(w.taken, i, i+1)
		if w.rand.IntN(3) == 0 {
			require.NoError(w, t.Release(w.ctx, 0))
		} else {
			require.NoError(w, t.Ack(w.ctx))
		}
		if w.rand.IntN(3) == 0 {
			w.step()
		}
	case op < 17:
		f := Filter{}
		switch w.rand.IntN(4) {
		case 0:
			f.MaxPriority = new(w.rand.IntN(3) - 1)
		case 1:
			f.Kinds = []string{"x"}
		case 2:
			f.Kinds = []string{"y"}
		}
		c.SetFilter(f)
		w.filters[c], w.changed = f, true
	case op < 18:
		pause := w.rand.IntN(2) == 0
		if w.rand.IntN(3) == 0 {
			require.NoError(w, q.pause(w.ctx, nil, pause))
		} else {
			require.NoError(w, q.pause(w.ctx, &key, pause))
		}
	default:
		time.Sleep(300 * time.Millisecond)
	}
}

// check runs when everybody who can do something has done it.
func (w *waiters) check(when string) {
	var served []*waitingTaker
	w.takers = slices.DeleteFunc(w.takers, func(t *waitingTaker) bool {
		if !t.done {
			return false
		}
		require.True(w,
			t.err == nil || errors.Is(t.err, context.Canceled) ||
				t.consumer.state.over() != nil && errors.Is(t.err, ErrClosed), when)
		require.Equal(w, t.err == nil, len(t.got) > 0, when)
		w.taken = append(w.taken, t.got...)
		served = append(served, t)
		return true
	})
	w.putters = slices.DeleteFunc(w.putters, func(p *waitingPutter) bool {
		require.True(w, p.err == nil || errors.Is(p.err, context.Canceled), when)
		return p.done
	})
	w.collect()

	stats, err := w.queues[0].Stats(w.ctx)
	require.NoError(w, err)
	keys, err := w.queues[0].backend.KeyStats(w.ctx, 100)
	require.NoError(w, err)
	require.Len(w, w.taken, stats.Taken, when)
	for _, t := range w.takers {
		f := w.filters[t.consumer]
		require.False(w, w.has(f), "%s: a taker waits for what is there", when)
		for _, s := range served {
			for _, got := range s.got {
				sf := w.filters[s.consumer]
				require.False(w,
					!w.changed && !w.crossed && s.consumer.queue == t.consumer.queue && t.arrived < s.arrived &&
						set(&f, driver.Handle{}).id == set(&sf, driver.Handle{}).id &&
						(*driver.Filter)(&f).Passes(got.Priority, got.Kind),
					"%s: a taker was served before its turn", when)
			}
		}
	}
	w.checkWatches(when)
	for _, p := range w.putters {
		o, ofKey := w.queues[0].options, 0
		for _, k := range keys {
			if k.Key == p.key {
				if ofKey = k.Len(); o.CountOnlyWaiting {
					ofKey = k.Ready + k.Delayed
				}
			}
		}
		limit := o.KeyCapacity
		if o.WhenFull == fairq.RejectOverShare {
			// The share of the key may have grown. While the key has a task, the putter may wait for
			// its end.
			limit = 1
		}
		require.False(w, stats.Counted < o.Capacity && ofKey < limit,
			"%s: a putter waits though there is room", when)
	}
}

// has reports whether the filter passes a ready task, and takes it.
func (w *waiters) has(f Filter) bool {
	r, err := w.queues[0].backend.TakeOne(w.ctx, &set(&f, driver.Handle{ID: "who looks"}).Taker)
	require.NoError(w, err)
	return r.ID != 0
}

// A call that makes room admits the waiting callers, so newcomers can use the rest of the room at
// once: they need not wait for admitted goroutines that have not run yet.
func TestRoomIsLeftForNewcomers(t *testing.T) {
	for range 100 {
		bubble(t, &Options[int]{Capacity: 3}, func(ctx context.Context, q *Queue[int]) {
			fill(t, q, "x", 3, PutOptions{})
			go func() { _, _ = q.PutWait(ctx, "a", 0, PutOptions{}) }()
			synctest.Wait()
			tasks, err := q.TakeBatch(ctx, 3)
			require.NoError(t, err)
			for i, one := range tasks {
				require.NoError(t, one.Ack(ctx))
				fill(t, q, "b", min(i, 1), PutOptions{})
			}
			order := ""
			for range 3 {
				one, err := q.Take(ctx)
				require.NoError(t, err)
				order += one.Key
			}
			require.Equal(t, "abb", order)
		})
	}
}
