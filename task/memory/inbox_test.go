package memory

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
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
			var put atomic.Int64
			var producing, reading sync.WaitGroup
			for p := range producers {
				producing.Go(func() {
					key := fmt.Sprint(p)
					for i := 0; i < n; {
						batch := []task.Entry[[2]int]{{Key: key, Payload: [2]int{p, i}}}
						var ids []task.ID
						var err error
						if p == 0 { // all of it, or nothing comes in between
							batch = append(batch, task.Entry[[2]int]{Key: key, Payload: [2]int{p, i + 1}})
							ids, err = q.PutBatch(ctx, batch[:min(2, n-i)])
						} else if id, putErr := q.Put(ctx, key, batch[0].Payload, task.PutOptions{}); putErr != nil {
							err = putErr
						} else {
							ids = []task.ID{id}
						}
						if err != nil && !errors.Is(err, fairq.ErrFull) {
							t.Error(err)
							return
						}
						put.Add(int64(len(ids)))
						if len(ids) == 2 && ids[1] != ids[0]+1 {
							t.Errorf("a batch has the ids %d", ids)
						}
						if i += len(ids); len(ids) == 0 {
							runtime.Gosched()
						}
					}
				})
			}
			// One consumer takes all, so that it knows the order; another one looks.
			done := make(chan struct{})
			reading.Go(func() {
				for !t.Failed() {
					before := put.Load()
					other, err := task.Open[[2]int](ctx, store, "q", &task.Options[[2]int]{AsIs: true})
					if err != nil {
						t.Error(err)
						return
					}
					s, err := other.Stats(ctx)
					err = errors.Join(err, other.Close(ctx))
					if err != nil || s.Counted > capacity || s.Puts < uint64(before) {
						t.Errorf("%v: %d tasks count, %d puts, %d were before", err, s.Counted, s.Puts, before)
					}
					select {
					case <-done:
						return
					default:
					}
				}
			})
			next := [producers]int{}
			for range producers * n {
				one, err := q.Take(ctx)
				require.NoError(t, err)
				p := one.Payload[0]
				require.Equal(t, next[p], one.Payload[1], "producer %d", p)
				next[p]++
				require.NoError(t, one.Ack(ctx))
			}
			close(done)
			producing.Wait()
			reading.Wait()
			require.Empty(t, store.Check("q"))

			for range producers {
				producing.Go(func() {
					for err := error(nil); !errors.Is(err, task.ErrDropped); {
						_, err = q.Put(ctx, "k", [2]int{}, task.PutOptions{})
						assert.True(t, err == nil || errors.Is(err, fairq.ErrFull) ||
							errors.Is(err, task.ErrDropped), err)
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
		b := openBackend(t, new(watching))
		b.put(t, driver.New{Key: "a", Delay: time.Second})
		time.Sleep(time.Second) // and nobody calls Tick
		b.put(t, driver.New{Key: "a"})
		for id := driver.ID(1); id <= 2; id++ {
			require.Equal(t, id, b.take(t).ID)
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
	b := openBackend(t, w)
	b.put(t, driver.New{Key: "a"})
	require.NotZero(t, b.take(t).ID)
	for range 10_000 {
		var putting sync.WaitGroup
		w.ready.Store(0)
		putting.Go(func() { b.put(t, driver.New{Key: "a"}) })
		w.interest.Waiting.Add(1)
		found := b.take(t).ID != 0
		putting.Wait()
		require.True(t, found || w.ready.Load() != 0, "nobody was told of a task")
		w.interest.Waiting.Add(-1)
		require.True(t, found || b.take(t).ID != 0)
	}
	require.NoError(t, b.Drop(t.Context(), false))
	_, _, err := b.PutOne(t.Context(), driver.New{Key: "a", Weight: 1, Cost: 1})
	require.ErrorIs(t, err, driver.ErrDropped)
}
