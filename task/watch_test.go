package task

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/task/memory"
)

// watcher uses a Watch as a pool does: it takes, and when the Watch calls it takes again, or gives
// up.
type watcher struct {
	w     *waiters
	watch *Watch[int]
	batch int // how many it takes at a time; 0 means that it uses Take

	mu      sync.Mutex // protects all that follows
	seed    uint64
	armed   bool // Take has returned that it is
	strays  int  // calls that there may be yet, because it was disarmed just before
	closed  bool
	calls   int
	got     []*Task[int]
	trouble string
}

func (w *waiters) newWatcher(c *Consumer[int]) *watcher {
	o := &watcher{w: w, seed: w.rand.Uint64(), batch: w.rand.IntN(4)}
	o.watch = c.Watch(o.onCall)
	w.watchers = append(w.watchers, o)
	return o
}

// onCall is the function of the Watch.
func (o *watcher) onCall() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.calls++
	switch {
	case o.armed:
		o.armed = false
	case o.strays > 0:
		o.strays--
		return
	default:
		o.trouble = "called though it was not armed, or twice"
	}
	o.seed = o.seed*6364136223846793005 + 1442695040888963407
	if o.seed>>60 < 5 {
		o.watch.Disarm() // others may want it
		return
	}
	o.takeLocked(o.seed>>60 < 12)
}

// takeLocked takes a task, or all that there are.
func (o *watcher) takeLocked(all bool) {
	for {
		var got []*Task[int]
		var armed bool
		var err error
		if o.batch > 0 {
			got, armed, err = o.watch.TakeBatch(context.Background(), o.batch)
		} else {
			var found bool
			t := new(Task[int])
			if found, armed, err = o.watch.Take(context.Background(), t); found {
				got = append(got, t)
			}
		}
		o.armed, o.closed = armed, err != nil
		o.got = append(o.got, got...)
		if armed && err != nil {
			o.trouble = "armed, in spite of an error"
		} else if !armed && err == nil && len(got) == 0 {
			o.trouble = "it has found nothing, and is not armed"
		}
		if len(got) == 0 || !all {
			return
		}
	}
}

// take is called at random.
func (o *watcher) take(all bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.takeLocked(all)
}

func (o *watcher) disarm() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.armed {
		o.strays = 1
	}
	o.armed = false
	o.watch.Disarm()
}

// watch does something with a Watch.
func (w *waiters) watch(c *Consumer[int]) {
	quiet := w.calls == 1 // no call of theirs is under way
	switch op := w.rand.IntN(8); {
	case op == 0 && len(w.watchers) < 8:
		w.newWatcher(c).take(true)
	case op < 6 && len(w.watchers) > 0 && quiet:
		w.watchers[w.rand.IntN(len(w.watchers))].take(w.rand.IntN(2) == 0)
	case op < 7 && len(w.watchers) > 0:
		w.watchers[w.rand.IntN(len(w.watchers))].disarm()
	case op == 7 && w.rand.IntN(4) == 0:
		w.closeConsumer(c)
	}
	if w.rand.IntN(3) == 0 {
		w.step() // sometimes several things happen at once
	}
}

// closeConsumer closes a consumer, and has a new one instead.
func (w *waiters) closeConsumer(c *Consumer[int]) {
	require.NoError(w, c.Close(w.ctx))
	w.changed = true
	delete(w.filters, c)
	i := slices.Index(w.consumers, c)
	w.consumers[i] = c.queue.NewConsumer(Filter{})
	w.dropHandedBack()
}

// collect gathers the tasks that watchers have taken, without those handed back. It is called when
// nothing moves.
func (w *waiters) collect() {
	w.watchers = slices.DeleteFunc(w.watchers, func(o *watcher) bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		w.taken = append(w.taken, o.got...)
		o.got, o.strays = nil, 0
		require.Empty(w, o.trouble)
		if o.watch.consumer.state.over() != nil {
			require.False(w, o.armed, "it was not told that its consumer is closed")
			o.watch.Disarm()
			return true
		}
		return false
	})
	w.dropHandedBack()
}

// dropHandedBack forgets what consumers had that were closed.
func (w *waiters) dropHandedBack() {
	w.taken = slices.DeleteFunc(w.taken, func(t *Task[int]) bool {
		return !slices.ContainsFunc(w.consumers, func(c *Consumer[int]) bool {
			return c.ID() == t.Info().Consumer
		})
	})
}

// checkWatches runs when everybody who can do something has done it.
func (w *waiters) checkWatches(when string) {
	for _, o := range w.watchers {
		if !o.armed {
			continue
		}
		require.False(w, w.has(w.filters[o.watch.consumer]),
			"%s: a watch has not told what is there", when)
	}
}

// checkWatchesEnd runs when the queues were closed.
func (w *waiters) checkWatchesEnd() {
	for _, o := range w.watchers {
		o.mu.Lock()
		require.Empty(w, o.trouble)
		require.False(w, o.armed, "it was not told that the queue is closed")
		o.mu.Unlock()
		o.watch.Disarm()
	}
}

// Watches of several consumers get all tasks, though one of them gives up time and again.
func TestWatchesLoseNothing(t *testing.T) {
	ctx := t.Context()
	for round := range 20 {
		q, err := Open[int](ctx, new(memory.Store), "q",
			&Options[int]{Capacity: 8, MaxInFlightPerKey: round % 3})
		require.NoError(t, err)
		const tasks = 600
		var done sync.WaitGroup
		var taken [tasks]atomic.Int32
		done.Add(tasks)
		for i := range 4 {
			c := q.NewConsumer(Filter{})
			var w *Watch[int]
			var mu sync.Mutex
			var again func()
			take := func() {
				mu.Lock()
				defer mu.Unlock()
				for {
					one := new(Task[int])
					found, _, err := w.Take(ctx, one)
					if !found || err != nil {
						return
					}
					go func() {
						if one.Ack(ctx) == nil && taken[one.Payload].Add(1) == 1 {
							done.Done()
						}
					}()
					if i == 0 && one.Payload%5 == 0 { // it has enough for now
						w.Disarm()
						go again()
						return
					}
				}
			}
			again = take
			w = c.Watch(take)
			take()
		}
		var all sync.WaitGroup
		for p := range 3 {
			all.Go(func() {
				for i := p; i < tasks; i += 3 {
					_, err := q.PutWait(ctx, string(rune('a'+i%4)), i, PutOptions{Priority: i % 2})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		done.Wait()
		require.NoError(t, q.Close(ctx))
	}
}
