package memory

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/task"
)

// Goroutines that put, while others take, see their tasks in all later calls. There are never more
// tasks than the limits allow, and each producer's tasks of a key come in order, each once. A put
// that returns when the queue is dropped has not succeeded unless its task was dropped too.
func TestInbox(t *testing.T) {
	const producers, capacity = 4, 10
	n := 1000
	if testing.Short() {
		n = 300
	}
	for _, o := range []task.Options[[2]int]{
		{}, {CountOnlyWaiting: true}, {WhenFull: fairq.RejectOverShare},
	} {
		t.Run(fmt.Sprint(o.CountOnlyWaiting, o.WhenFull), func(t *testing.T) {
			ctx, store := t.Context(), new(Store)
			o.Capacity = capacity
			q, err := task.Open(ctx, store, "q", &o)
			require.NoError(t, err)
			m := store.queues["q"]
			var put, taken atomic.Int64
			var producing, consuming sync.WaitGroup
			next := [producers]atomic.Int64{}
			for p := range producers {
				producing.Go(func() {
					for i := 0; i < n; {
						batch := []task.Entry[[2]int]{{Key: fmt.Sprint(p), Payload: [2]int{p, i}}}
						ids, err := []task.ID{0}, error(nil)
						if p == 0 { // all of it, or nothing comes in between
							batch = append(batch, task.Entry[[2]int]{Key: "0", Payload: [2]int{p, i + 1}})
							ids, err = q.PutBatch(ctx, batch[:min(len(batch), n-i)])
						} else {
							ids[0], err = q.Put(ctx, batch[0].Key, batch[0].Payload, task.PutOptions{})
							if err != nil {
								ids = nil
							}
						}
						if err != nil && !errors.Is(err, fairq.ErrFull) {
							t.Error(err)
							return
						}
						put.Add(int64(len(ids)))
						if len(ids) == 2 && ids[1] != ids[0]+1 {
							t.Errorf("a batch has the ids %d", ids)
						}
						if len(ids) > 0 && i%2 == 0 {
							// A consumer may have acked the task.
							if _, err := q.Peek(ctx, ids[0]); err != nil && next[p].Load() <= int64(i) {
								t.Errorf("task %d of producer %d, with id %d: %v", i, p, ids[0], err)
							}
						}
						if i += len(ids); len(ids) == 0 {
							runtime.Gosched()
						}
					}
				})
			}
			// One consumer takes all, so that it knows the order; another one looks.
			consuming.Go(func() {
				for taken.Load() < producers*int64(n) {
					one, err := q.Take(ctx)
					if err != nil {
						t.Error(err)
						return
					}
					p := one.Payload[0]
					if i := next[p].Swap(int64(one.Payload[1]) + 1); i != int64(one.Payload[1]) {
						t.Errorf("producer %d: task %d is taken, it should be task %d", p, one.Payload[1], i)
					}
					taken.Add(1)
					if err := one.Ack(ctx); err != nil {
						t.Error(err)
					}
				}
			})
			consuming.Go(func() {
				for taken.Load() < producers*int64(n) && !t.Failed() {
					before := put.Load()
					other, err := task.Open[[2]int](ctx, store, "q", &task.Options[[2]int]{AsIs: true})
					if err != nil {
						t.Error(err)
						return
					}
					s, err := other.Stats(ctx)
					if err := other.Close(ctx); err != nil {
						t.Error(err)
					}
					if err != nil || s.Counted > capacity || s.Puts < uint64(before) {
						t.Errorf("%v: %d tasks count, %d puts, %d were done before", err, s.Counted, s.Puts, before)
					}
				}
			})
			producing.Wait()
			consuming.Wait()
			require.Empty(t, store.Check("q"))

			for p := range producers {
				producing.Go(func() {
					for {
						if _, err := q.Put(ctx, "k", [2]int{p}, task.PutOptions{}); err != nil &&
							!errors.Is(err, fairq.ErrFull) {
							if !errors.Is(err, task.ErrDropped) {
								t.Error(err)
							}
							return
						}
					}
				})
			}
			require.NoError(t, q.Drop(ctx))
			producing.Wait()
			m.check(t)
			require.Zero(t, m.tasks[0])
		})
	}
}

// Changes that were due before a Put happen before it.
func TestInboxDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opened, err := new(Store).Open(t.Context(), "q",
			driver.Settings{Capacity: fairq.MaxLen, KeyCapacity: fairq.MaxLen}, new(watching))
		require.NoError(t, err)
		b := opened.(*backend)
		by := &driver.Taker{Handle: driver.Handle{ID: "c"}}
		delayed, _, err := b.PutOne(t.Context(),
			driver.New{Key: "a", Weight: 1, Cost: 1, Delay: time.Second})
		require.NoError(t, err)
		time.Sleep(time.Second) // and nobody calls Tick
		second, _, err := b.PutOne(t.Context(), driver.New{Key: "a", Weight: 1, Cost: 1})
		require.NoError(t, err)
		for _, id := range []driver.ID{delayed, second} {
			a, err := b.TakeOne(t.Context(), by)
			require.NoError(t, err)
			require.Equal(t, id, a.ID)
		}
	})
}

// watching is a Notifier of a caller that begins to wait after the Put has read the inbox.
type watching struct {
	deaf
	interest driver.Interest
	ready    atomic.Int32
}

func (w *watching) Interest() *driver.Interest { return &w.interest }
func (w *watching) Ready(int, string)          { w.ready.Add(1) }
func (w *watching) Look()                      { w.ready.Add(1) }
func (w *watching) Dropped()                   {}

// A caller that begins to wait, and then finds no task, is notified of a task that is put at that
// moment. When the queue is dropped, no task can be put.
func TestInboxTellsWatchers(t *testing.T) {
	w := new(watching)
	opened, err := new(Store).Open(t.Context(), "q",
		driver.Settings{Capacity: fairq.MaxLen, KeyCapacity: fairq.MaxLen}, w)
	require.NoError(t, err)
	b := opened.(*backend)
	by := &driver.Taker{Handle: driver.Handle{ID: "c"}}
	put := func(ctx context.Context) {
		_, _, err := b.PutOne(ctx, driver.New{Key: "a", Weight: 1, Cost: 1})
		require.NoError(t, err)
	}
	put(t.Context())
	a, err := b.TakeOne(t.Context(), by)
	require.NoError(t, err)
	require.NotZero(t, a.ID)
	for range 10_000 {
		var putting sync.WaitGroup
		w.ready.Store(0)
		putting.Go(func() { put(context.Background()) })
		w.interest.Waiting.Add(1)
		a, err := b.TakeOne(t.Context(), by)
		require.NoError(t, err)
		putting.Wait()
		if a.ID == 0 {
			require.NotZero(t, w.ready.Load(), "nobody was told of a task")
		}
		w.interest.Waiting.Add(-1)
		if a.ID == 0 {
			a, err = b.TakeOne(t.Context(), by)
			require.NoError(t, err)
			require.NotZero(t, a.ID)
		}
	}
	require.NoError(t, b.Drop(t.Context(), false))
	_, _, err = b.PutOne(t.Context(), driver.New{Key: "a", Weight: 1, Cost: 1})
	require.ErrorIs(t, err, driver.ErrDropped)
}
