package memory

import (
	"context"
	"fmt"
	"reflect"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/task"
)

// After a spike of everything there can be many of, next to nothing is kept.
func TestNothingStays(t *testing.T) {
	const n = 3000
	synctest.Test(t, func(t *testing.T) {
		ctx, store := t.Context(), new(Store)
		q, err := task.Open(ctx, store, "q", &task.Options[int]{MaxInFlightPerKey: 1, Quantum: 1})
		require.NoError(t, err)
		defer func() { require.NoError(t, q.Close(ctx)) }()
		put := func(key string, o task.PutOptions) {
			_, err := q.Put(ctx, key, 0, o)
			require.NoError(t, err)
		}
		consumers := make([]*task.Consumer[int], n)
		for i := range consumers {
			name := fmt.Sprint(i)
			put(name,
				task.PutOptions{Kind: name, Priority: i % 100, UniqueKey: name, Group: name, TTL: time.Hour})
			put("k", task.PutOptions{Kind: name, Priority: i % 100, Delay: time.Second})
			require.NoError(t, q.StartGroup(ctx, name))
		}
		time.Sleep(time.Second)
		for i := range consumers {
			consumers[i] = q.NewConsumer(task.Filter{})
			_, err = consumers[i].Take(ctx)
			require.NoError(t, err)
		}
		_, err = q.Truncate(ctx)
		require.NoError(t, err)
		for _, c := range consumers {
			require.NoError(t, c.Disconnect(ctx))
		}
		time.Sleep(2 * time.Minute)
		put("z", task.PutOptions{})
		put("z", task.PutOptions{}) // it waits for the first, so that accounts are not void
		take := func() *task.Task[int] {
			one, err := q.Take(ctx)
			require.NoError(t, err)
			return one
		}
		first := take()
		for i := range n {
			put(fmt.Sprint("k", i), task.PutOptions{Cost: 2})
			require.NoError(t, take().Ack(ctx))
		}
		for _, b := range store.queues["q"].bands {
			require.LessOrEqual(t, len(b.idle), 2*maxSpare, "accounts of keys without tasks")
		}
		require.NoError(t, first.Ack(ctx))
		require.NoError(t, take().Ack(ctx))
		synctest.Wait()
		m := store.queues["q"]
		m.mu.Lock()
		defer m.mu.Unlock()
		require.Len(t, m.keys, len(m.idle))
		require.LessOrEqual(t, len(m.idle), maxSpare)
		for what, n := range map[string]int{
			"timers": len(m.timers), "unique keys": len(m.uniqueKeys), "groups": len(m.groups),
			"outcomes": len(m.outcomes.by), "consumers that have left": len(m.leaving),
			"consumers beside the queue's": len(m.consumers) - 1, "blocks": len(m.ids.blocks) / 2,
			"capacity for timers": cap(m.timers) / 200, "bands": len(m.bands) / (spareBands + 1),
		} {
			require.Zero(t, n, what)
		}
		for _, b := range m.bands {
			require.LessOrEqual(t, len(b.kinds), spareKinds+1)
			require.LessOrEqual(t, b.lines, len(m.idle))
		}
	})
}

// deaf is a Notifier that never has Tick called.
type deaf struct{ driver.Notifier }

func (deaf) InMemory() reflect.Type { return reflect.TypeFor[int]() }
func (deaf) Ready(int, string)      {}
func (deaf) Look()                  {}
func (deaf) Room(string)            {}
func (deaf) WantsExpired() bool     { return false }
func (deaf) Ended(driver.ID, error) {}
func (deaf) Due(time.Time)          {}

func (deaf) Interest() *driver.Interest { return new(driver.Interest) }
func (deaf) Admit(func(context.Context, driver.New) (driver.ID, *driver.Record, error)) {
}

// tested is a queue without a Queue.
type tested struct{ *backend }

func openBackend(t *testing.T, n driver.Notifier) tested {
	b, err := new(Store).Open(t.Context(), "q", driver.Settings{
		Capacity: fairq.MaxLen, KeyCapacity: fairq.MaxLen, Retention: time.Minute, Grace: time.Minute,
	}, n)
	require.NoError(t, err)
	return tested{b.(*backend)}
}

func (b tested) put(t *testing.T, n driver.New) {
	n.Weight, n.Cost = 1, 1
	_, _, err := b.PutOne(t.Context(), n)
	assert.NoError(t, err)
}

// by is who takes.
var by = &driver.Taker{Handle: driver.Handle{ID: "c"}}

func (b tested) take(t *testing.T) driver.Attempt {
	a, err := b.TakeOne(t.Context(), by)
	require.NoError(t, err)
	return a
}

// An empty queue gives back what its backlog took, but for 1.5 MB.
func TestEmptyQueueIsSmall(t *testing.T) {
	ctx := t.Context()
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	q, err := task.Open[int](ctx, new(Store), "q", nil)
	require.NoError(t, err)
	before := heap()
	for i := range 150_000 {
		_, err := q.Put(ctx, fmt.Sprint(i/3), i, task.PutOptions{})
		require.NoError(t, err)
	}
	require.Greater(t, heap(), before+10_000_000)
	for one, ok, err := q.TryTake(ctx); ok; one, ok, err = q.TryTake(ctx) {
		require.NoError(t, err)
		require.NoError(t, one.Ack(ctx))
	}
	require.Less(t, heap(), before+1_500_000)
	require.NoError(t, q.Close(ctx))
}

// A key whose wait is over, and that TakeID finds before advance has come to it, has another task:
// a waiting taker gets it.
func TestTakeIDEndsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, w := t.Context(), new(watching)
		b := openBackend(t, w)
		b.put(t, driver.New{Key: "a"})
		b.put(t, driver.New{Key: "a"})
		for i := range timersPerCall {
			require.NoError(t, b.HoldKey(ctx, fmt.Sprint(i), time.Second))
		}
		require.NoError(t, b.HoldKey(ctx, "a", time.Second+1))
		w.interest.Waiting.Add(1)
		time.Sleep(time.Second + 1)
		_, err := b.TakeID(ctx, by.Handle, 1)
		require.NoError(t, err)
		require.NotZero(t, w.ready.Load(), "nobody is told of the other task")
	})
}

// When more timers are due than one call handles, the call still brings the tasks that it concerns
// up to date.
func TestMuchIsDue(t *testing.T) {
	const n = 3 * timersPerCall
	synctest.Test(t, func(t *testing.T) {
		ctx, b, last := t.Context(), openBackend(t, deaf{}), driver.Lease{}
		for range n {
			b.put(t, driver.New{Key: "a"})
			r := b.take(t)
			last = driver.Lease{ID: r.ID, Number: r.Lease}
		}
		for range n {
			b.put(t, driver.New{Key: "b", TTL: time.Hour})
		}
		b.put(t, driver.New{Key: "b", TTL: 2*time.Hour - time.Second, UniqueKey: "x"})
		require.NoError(t, b.Leave(ctx, by.Handle, time.Second))
		time.Sleep(2 * time.Hour) // and nobody calls Tick

		_, err := b.Settle(ctx, last, driver.Settlement{})
		require.ErrorIs(t, err, driver.ErrLeaseLost)
		_, _, err = b.Rejoin(ctx, by.ID)
		require.ErrorIs(t, err, driver.ErrNotFound)
		o, err := b.Outcome(ctx, "x")
		require.NoError(t, err)
		require.True(t, o.Done)
		require.ErrorIs(t, o.Err, driver.ErrExpired)
		b.put(t, driver.New{Key: "c", UniqueKey: "x"})
	})
}

// A consumer that has left and takes again holds its new task, although it was the last taker.
func TestTakerComesBack(t *testing.T) {
	b := openBackend(t, deaf{})
	b.put(t, driver.New{Key: "a"})
	for range 3 {
		require.EqualValues(t, 1, b.take(t).ID)
		b.check(t)
		require.NoError(t, b.Leave(t.Context(), by.Handle, 0))
		b.check(t)
	}
}

// Other calls go on while List reads a long queue. It may leave out tasks that they delete.
func TestListLetsOthersGoOn(t *testing.T) {
	ctx, store := t.Context(), new(Store)
	q, err := task.Open[int](ctx, store, "q", nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, q.Close(context.Background())) }()
	const n = 20_000
	for range n {
		_, err := q.Put(ctx, "a", 0, task.PutOptions{})
		require.NoError(t, err)
	}
	m := store.queues["q"]
	for range 20 {
		last, err := q.Put(ctx, "b", 0, task.PutOptions{})
		require.NoError(t, err)
		deleted := make(chan error)
		listed, end := context.WithCancel(ctx)
		go func() {
			for m.mu.TryLock() { // until it is being listed
				m.mu.Unlock()
				if listed.Err() != nil {
					break // too late
				}
			}
			deleted <- q.Delete(ctx, last)
		}()
		all, err := q.List(ctx, task.ListOptions{Limit: 2 * n})
		end()
		require.NoError(t, err)
		require.NoError(t, <-deleted)
		if len(all) == n {
			return
		}
	}
	require.Fail(t, "a call that was made while the queue was listed never came before its end")
}
