package task

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
)

// bubble runs f with a queue in memory, in virtual time.
func bubble(t *testing.T, o *Options[int], f func(ctx context.Context, q *Queue[int])) {
	synctest.Test(t, func(t *testing.T) {
		q, err := Open(t.Context(), new(Memory), "q", o)
		require.NoError(t, err)
		defer func() { require.NoError(t, q.Close(t.Context())) }()
		f(t.Context(), q)
	})
}

func fill(t *testing.T, q *Queue[int], key string, n int, o PutOptions) {
	for i := range n {
		_, err := q.Put(t.Context(), key, i, o)
		require.NoError(t, err)
	}
}

// After a spike of everything there can be many of, next to nothing is kept.
func TestNothingStays(t *testing.T) {
	const n = 3000
	bubble(t, &Options[int]{MaxInFlightPerKey: 1}, func(ctx context.Context, q *Queue[int]) {
		for i := range n {
			name := fmt.Sprint(i)
			fill(t, q, name, 1, PutOptions{Kind: name, Priority: i, Address: name, Group: name, TTL: time.Hour})
			fill(t, q, "k", 1, PutOptions{Kind: name, Priority: i, Delay: time.Second})
			require.NoError(t, q.StartGroup(ctx, name))
		}
		time.Sleep(time.Second)
		consumers := make([]*Consumer[int], n)
		for i := range consumers {
			consumers[i] = q.NewConsumer(Filter{})
			_, err := consumers[i].Take(ctx)
			require.NoError(t, err)
		}
		_, err := q.Truncate(ctx)
		require.NoError(t, err)
		for _, c := range consumers {
			require.NoError(t, c.Disconnect(ctx))
		}
		time.Sleep(2 * time.Minute)
		fill(t, q, "k", 1000, PutOptions{})
		for range 1000 {
			one, err := q.Take(ctx)
			require.NoError(t, err)
			require.NoError(t, one.Ack(ctx))
		}
		synctest.Wait()
		m := q.memory
		m.mu.Lock()
		defer m.mu.Unlock()
		require.Empty(t, m.keys)
		require.Empty(t, m.timers)
		require.Empty(t, m.addresses)
		require.Empty(t, m.groups)
		require.Empty(t, m.outcomes.by)
		require.Empty(t, m.leaving)
		require.Len(t, m.consumers, 1)
		require.LessOrEqual(t, len(m.ids.blocks), 1)
		require.LessOrEqual(t, len(m.bands), spareBands)
		for _, b := range m.bands {
			require.LessOrEqual(t, len(b.kinds), spareKinds+1)
			require.Zero(t, b.turns.Len())
		}
		require.Less(t, cap(m.timers), 200)
	})
}

// A hook that panics, also while its caller waits in line, harms only that call.
func TestHooksThatPanic(t *testing.T) {
	oops := errors.New("oops")
	panics := true
	weight := func(string) int {
		if panics {
			panic(oops)
		}
		return 1
	}
	evict := func(*Task[int]) { panic(oops) }
	bubble(t, &Options[int]{Capacity: 2, WhenFull: fairq.EvictHeaviest, OnEvict: evict, Weight: weight}, func(ctx context.Context, q *Queue[int]) {
		id, err := q.Put(ctx, "a", 1, PutOptions{})
		require.ErrorIs(t, err, ErrPanic)
		require.ErrorIs(t, err, oops)
		require.Zero(t, id)
		panics = false
		fill(t, q, "a", 2, PutOptions{})
		id, err = q.Put(ctx, "b", 1, PutOptions{}) // evicts an a
		var p *PanicError
		require.ErrorAs(t, err, &p)
		require.Equal(t, "Options.OnEvict", p.Func)
		require.NoError(t, q.Delete(ctx, id))
		fill(t, q, "a", 1, PutOptions{})
		waiting := make(chan error)
		go func() {
			_, err := q.PutWait(ctx, "a", 1, PutOptions{})
			waiting <- err
		}()
		synctest.Wait()
		one, err := q.Take(ctx)
		require.NoError(t, err)
		require.NoError(t, one.Ack(ctx))
		require.NoError(t, <-waiting)
		s, err := q.Stats(ctx)
		require.NoError(t, err)
		require.Equal(t, 2, s.Len())
	})
}

// faulty is a backend of which some calls fail or panic.
type faulty struct {
	Backend
	leave, take func() error
}

func (f *faulty) Leave(ctx context.Context, consumer string, after time.Duration) error {
	if err := f.leave(); err != nil {
		return err
	}
	return f.Backend.Leave(ctx, consumer, after)
}

func (f *faulty) Take(ctx context.Context, consumer string, filter Filter, into []Record) (int, error) {
	if err := f.take(); err != nil {
		return 0, err
	}
	return f.Backend.Take(ctx, consumer, filter, into)
}

func TestFaultyBackend(t *testing.T) {
	bubble(t, &Options[int]{}, func(ctx context.Context, q *Queue[int]) {
		down := errors.New("down")
		var broken error
		f := &faulty{q.backend, func() error { return broken }, func() error {
			if broken != nil {
				panic(broken)
			}
			return nil
		}}
		m := q.memory
		q.backend, q.memory = f, nil
		n, _, err := m.Put(ctx, []New{{Key: "a", Weight: 1, Payload: []byte("1")}}, make([]ID, 1))
		require.NoError(t, err)
		require.Equal(t, 1, n)

		c := q.NewConsumer(Filter{})
		_, err = c.Take(ctx)
		require.NoError(t, err)
		broken = down
		require.ErrorIs(t, c.Close(ctx), down)
		require.ErrorIs(t, q.Close(ctx), down)
		broken = nil
		require.NoError(t, q.Close(ctx))
		s, err := m.Stats(ctx)
		require.NoError(t, err)
		require.Equal(t, 1, s.Ready)
	})
}

// lockingContext is a context of somebody whose methods do more than they should.
type lockingContext struct {
	context.Context
	call func()
}

func (c lockingContext) Value(key any) any {
	c.call()
	return c.Context.Value(key)
}

// Methods of a lease's parent context may use the queue.
func TestContextOfOthers(t *testing.T) {
	bubble(t, nil, func(ctx context.Context, q *Queue[int]) {
		fill(t, q, "a", 1, PutOptions{})
		one, err := q.Take(ctx)
		require.NoError(t, err)
		parent := lockingContext{ctx, func() {
			_, err := q.Stats(ctx)
			require.NoError(t, err)
		}}
		lease, cancel := one.Context(parent)
		defer cancel()
		require.NoError(t, one.Ack(ctx))
		<-lease.Done()
		require.ErrorIs(t, context.Cause(lease), ErrLeaseLost)
	})
}

// When more is due at once than one call handles, what a call is about is up to date all the same.
func TestMuchIsDue(t *testing.T) {
	const n = 3 * someTimers
	bubble(t, nil, func(ctx context.Context, q *Queue[int]) {
		c := q.NewConsumer(Filter{})
		fill(t, q, "a", n, PutOptions{})
		var last *Task[int]
		for range n {
			var err error
			last, err = c.Take(ctx)
			require.NoError(t, err)
		}
		fill(t, q, "b", n, PutOptions{TTL: time.Hour})
		_, err := q.Put(ctx, "b", 0, PutOptions{TTL: 2*time.Hour - time.Second, Address: "x"})
		require.NoError(t, err)
		q.notifier.mu.Lock() // so that nothing happens by itself
		q.notifier.due = time.Now().Add(-time.Hour)
		q.notifier.mu.Unlock()
		require.NoError(t, q.backend.Leave(ctx, c.id, time.Second))
		q.memory.mu.Lock()
		q.memory.epoch = q.memory.epoch.Add(-2 * time.Hour)
		q.memory.mu.Unlock()

		require.ErrorIs(t, last.Ack(ctx), ErrLeaseLost)
		_, _, err = q.ResumeConsumer(ctx, c.id, Filter{})
		require.ErrorIs(t, err, ErrNotFound)
		require.ErrorIs(t, q.Wait(ctx, "x"), ErrExpired)
		_, err = q.Put(ctx, "c", 0, PutOptions{Address: "x"})
		require.NoError(t, err)
	})
}

// Whoever waits for a task of a queue that is dropped is told so.
func TestWaitUntilDropped(t *testing.T) {
	bubble(t, nil, func(ctx context.Context, q *Queue[int]) {
		fill(t, q, "a", 1, PutOptions{Address: "x"})
		done := make(chan error)
		go func() { done <- q.Wait(ctx, "x") }()
		synctest.Wait()
		require.NoError(t, q.Drop(ctx))
		require.ErrorIs(t, <-done, ErrDropped)
		require.ErrorIs(t, q.Wait(ctx, "x"), ErrDropped)
	})
}

func TestNewError(t *testing.T) {
	require.Nil(t, newError(nil))
	inner := &Error{Code: 404, Message: "not found"}
	require.Equal(t, &Error{404, "fetching: not found"}, newError(fmt.Errorf("fetching: %w", inner)))
	require.Equal(t, inner, newError(inner))
	require.NotSame(t, inner, newError(inner))
	require.NotNil(t, newError((*Error)(nil)))
}
