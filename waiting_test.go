package fairq_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
)

func TestPopWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := fairq.New(letter, nil)
		got := make(chan string, 10)
		for i := range 3 {
			go func() {
				item, err := q.PopWait(t.Context())
				got <- fmt.Sprint(i, item, err)
			}()
			synctest.Wait()
		}
		require.Equal(t, 3, q.Stats().WaitingPop)
		require.NoError(t, q.Push("A1"))
		synctest.Wait()
		require.Equal(t, "0A1<nil>", <-got, "first come, first served")
		n, err := q.PushBatch([]string{"A2", "A3", "A4"})
		require.NoError(t, err)
		require.Equal(t, 3, n)
		synctest.Wait()
		require.ElementsMatch(t, []string{"1A2<nil>", "2A3<nil>"}, []string{<-got, <-got})
		require.Equal(t, 1, q.Len())
		q.Pop()

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		_, err = q.PopWait(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Minute, time.Since(start))
		_, err = q.PopWait(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Zero(t, q.Stats().WaitingPop, "a cancelled waiter leaves nothing behind")
		require.NoError(t, q.Push("A5"))
		_, err = q.PopWait(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded, "ctx was done before the call")
		item, err := q.PopWait(t.Context())
		require.NoError(t, err)
		require.Equal(t, "A5", item)

		go func() {
			_, err := q.PopWait(t.Context())
			got <- fmt.Sprint(err)
		}()
		synctest.Wait()
		q.Close()
		require.Equal(t, fairq.ErrClosed.Error(), <-got)
	})
}

func TestPushWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := fairq.New(letter, &options{Capacity: 1})
		require.NoError(t, q.PushWait(t.Context(), "X"))
		results := make(chan string, 10)
		for _, item := range []string{"A1", "A2", "A3", "B4", "C5"} {
			go func() {
				err := q.PushWait(t.Context(), item)
				results <- fmt.Sprint(item, " ", err)
			}()
			synctest.Wait()
		}
		require.Equal(t, 5, q.Stats().WaitingPush)
		require.ErrorIs(t, q.Push("D6"), fairq.ErrFull)
		var order []string
		for range 4 {
			item, ok := q.Pop()
			require.True(t, ok)
			order = append(order, item)
			synctest.Wait()
		}
		require.Equal(t, []string{"X", "A1", "B4", "C5"}, order,
			"producers are admitted in rounds by key")

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, q.PushWait(ctx, "E7"), context.DeadlineExceeded)
		require.ErrorIs(t, q.PushWait(ctx, "E7"), context.DeadlineExceeded)
		require.Equal(t, 1, q.Stats().WaitingPush)
		q.Close()
		synctest.Wait()
		require.Len(t, results, 5)
		close(results)
		var all []string
		for r := range results {
			all = append(all, r)
		}
		require.Equal(t,
			[]string{"A1 <nil>", "B4 <nil>", "C5 <nil>", "A2 <nil>", "A3 " + fairq.ErrClosed.Error()}, all)
		require.Equal(t, []string{"A2"}, q.Drain())
		require.NoError(t, q.Check())
	})
}

// A producer whose key is at its capacity does not block the others, and is not forgotten.
func TestPushWaitKeyCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := fairq.New(letter, &options{Capacity: 3, KeyCapacity: 2})
		push := func(ctx context.Context, item string) <-chan error {
			done := make(chan error, 1)
			go func() { done <- q.PushWait(ctx, item) }()
			synctest.Wait()
			return done
		}
		pop := func(want string) {
			item, _ := q.Pop()
			require.Equal(t, want, item)
			synctest.Wait()
		}
		ctx, cancel := context.WithCancel(t.Context())
		require.NoError(t, <-push(t.Context(), "A1"))
		require.NoError(t, <-push(t.Context(), "A2"))
		a3, a4, a5 := push(ctx, "A3"), push(t.Context(), "A4"), push(t.Context(), "A5")
		require.NoError(t, <-push(t.Context(), "B6"), "there is room for B")
		b7 := push(t.Context(), "B7")
		require.Equal(t, 4, q.Stats().WaitingPush)
		pop("A1") // B7 has waited for room, A3 takes a turn behind it
		require.NoError(t, <-b7)
		cancel()
		require.ErrorIs(t, <-a3, context.Canceled)
		synctest.Wait()
		require.NoError(t, q.Check())
		pop("B6") // the turn that A3 gave up is A4's
		require.NoError(t, <-a4)
		require.Equal(t, 1, q.Stats().WaitingPush)
		pop("A2")
		require.NoError(t, <-a5)
		require.Equal(t, []string{"B7", "A4", "A5"}, q.Drain())

		// A producer whose key is full again when its turn comes lets the others pass.
		require.NoError(t, <-push(t.Context(), "A1"))
		require.NoError(t, <-push(t.Context(), "B2"))
		require.NoError(t, <-push(t.Context(), "C3"))
		a6, a7, d8 := push(t.Context(), "A6"), push(t.Context(), "A7"), push(t.Context(), "D8")
		pop("A1")
		require.NoError(t, <-a6)
		pop("B2")
		require.NoError(t, <-d8)
		pop("C3")
		require.NoError(t, <-a7)
		require.Equal(t, []string{"A6", "D8", "A7"}, q.Drain())

		// An open queue that is drained has room for all.
		require.NoError(t, <-push(t.Context(), "C1"))
		require.NoError(t, <-push(t.Context(), "C2"))
		c3 := push(t.Context(), "C3")
		require.Equal(t, []string{"C1", "C2"}, q.Drain())
		require.NoError(t, <-c3)
		c4, c5 := push(t.Context(), "C4"), push(t.Context(), "C5")
		require.NoError(t, <-c4)
		require.Equal(t, []string{"C3", "C4"}, q.RemoveKey("C"))
		require.NoError(t, <-c5)
		require.Equal(t, 1, q.Len())
	})
}

// Producers of one key are admitted in the order of their calls, wherever they wait. Producers
// that cannot be admitted do not make a Pop slow.
func TestPushWaitOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := fairq.New(letter, &options{Capacity: 4, KeyCapacity: 2})
		_, err := q.PushBatch([]string{"A1", "A2", "B1", "B2"})
		require.NoError(t, err)
		admitted := ""
		wait := func(item string) {
			go func() {
				if q.PushWait(t.Context(), item) == nil {
					admitted += item
				}
			}()
			synctest.Wait()
			require.NoError(t, q.Check())
		}
		pop := func() {
			q.Pop()
			synctest.Wait()
			require.NoError(t, q.Check())
		}
		wait("A3")
		wait("A4")
		wait("C1")
		pop()
		wait("A5")
		for range 6 {
			pop()
		}
		require.Equal(t, "C1A3A4A5", admitted)
	})
}

// Every call that makes room admits waiting producers.
func TestRoomIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var evicted string
		q := fairq.New(letter, &options{
			Capacity: 3, KeyCapacity: 2, WhenFull: fairq.EvictHeaviest,
			OnEvict: func(_, item string) { evicted += item },
		})
		push := func(item string) <-chan error {
			done := make(chan error, 1)
			go func() { done <- q.PushWait(t.Context(), item) }()
			synctest.Wait()
			return done
		}
		ticket, err := q.Add("B1")
		require.NoError(t, err)
		require.NoError(t, q.Push("A2"))
		require.NoError(t, q.Push("A3"))
		a4 := push("A4")
		require.NoError(t, q.Push("C5"))
		require.Equal(t, "A3", evicted)
		require.NoError(t, q.Check())
		require.Empty(t, a4, "there is room for A, but none in the queue")
		_, ok := q.Remove(ticket)
		require.True(t, ok)
		require.NoError(t, <-a4)
		require.Equal(t, []string{"A2", "C5", "A4"}, q.Drain())
	})
}

// With EvictOldest no producer waits for the Capacity, not even after waiting for the capacity of
// its key.
func TestEvictOldestDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var evicted string
		q := fairq.New(letter, &options{
			Capacity: 3, KeyCapacity: 2, WhenFull: fairq.EvictOldest,
			OnEvict: func(_, item string) { evicted += item },
		})
		push := func(item string) <-chan error {
			done := make(chan error, 1)
			go func() { done <- q.PushWait(t.Context(), item) }()
			synctest.Wait()
			return done
		}
		n, err := q.PushBatch([]string{"A1", "B2", "A3"})
		require.NoError(t, err)
		require.Equal(t, 3, n)
		a4, a5 := push("A4"), push("A5")
		require.Empty(t, a4, "the key is full")
		require.NoError(t, <-push("C6"))
		require.Equal(t, "A1A3A4", evicted,
			"A1 for C6, and then A is not full any more, and the furthest still")
		require.NoError(t, <-a4)
		require.NoError(t, <-a5)
		require.NoError(t, q.Check())
		require.Equal(t, []string{"B2", "C6", "A5"}, q.Drain())

		require.NoError(t, q.Push("A1"))
		require.NoError(t, q.Push("A2"))
		var waiting []<-chan error
		for _, item := range []string{"A3", "A4", "A5"} {
			waiting = append(waiting, push(item))
		}
		evicted = ""
		require.Equal(t, []string{"A1", "A2"}, q.Drain())
		require.NoError(t, <-waiting[0])
		require.NoError(t, <-waiting[1])
		require.Empty(t, waiting[2])
		item, ok := q.Pop()
		require.True(t, ok)
		require.Equal(t, "A3", item)
		require.NoError(t, <-waiting[2])
		require.Empty(t, evicted)
		require.NoError(t, q.Check())
	})
}

// A key that was served and has lost its only item has no item to evict for a push of its own.
func TestEvictOldestOfNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var evicted string
		q := fairq.New(letter, &options{
			Capacity: 2, KeyCapacity: 1, WhenFull: fairq.EvictOldest,
			Quantum: 1, Cost: func(string) int64 { return 1 }, // so it is remembered
			OnEvict: func(_, item string) { evicted += item },
		})
		require.NoError(t, q.Push("B1"))
		require.NoError(t, q.Push("A2"))
		q.Pop()
		require.NoError(t, q.Push("B3"))
		done := make(chan error)
		go func() { done <- q.PushWait(t.Context(), "B4") }()
		synctest.Wait()
		require.NoError(t, q.Push("C5"))
		require.NoError(t, <-done)
		require.Equal(t, "B3C5", evicted)
		require.NoError(t, q.Check())
		require.Equal(t, []string{"A2", "B4"}, q.Drain())
	})
}

// When an item is handed to a waiter at the moment at which its context ends, either the waiter
// gets the item, or it gets the error and the item stays. A producer gets an error only if its
// item is not queued.
func TestHandOverWinsOverCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		won := 0
		for i := range 400 {
			q := fairq.New(letter, &options{Capacity: 1})
			ctx, cancel := context.WithCancel(t.Context())
			var item string
			var err error
			go func() { item, err = q.PopWait(ctx) }()
			synctest.Wait()
			atOnce(i, cancel, func() { require.NoError(t, q.Push("A1")) })
			synctest.Wait()
			if err == nil {
				require.Equal(t, "A1", item)
				require.Zero(t, q.Len())
				won++
			} else {
				require.ErrorIs(t, err, context.Canceled)
				require.Equal(t, []string{"A1"}, q.Drain(), "%d", i)
			}

			require.NoError(t, q.Push("A2"))
			ctx, cancel = context.WithCancel(t.Context())
			go func() { err = q.PushWait(ctx, "A3") }()
			synctest.Wait()
			atOnce(i, cancel, func() { q.Pop() })
			synctest.Wait()
			if err == nil {
				require.Equal(t, []string{"A3"}, q.Drain(), "%d", i)
				won++
			} else {
				require.ErrorIs(t, err, context.Canceled)
				require.Zero(t, q.Len(), "%d", i)
			}
		}
		require.NotZero(t, won)
	})
}

// atOnce makes two calls in either order, mostly before another goroutine notices the first.
func atOnce(i int, a, b func()) {
	if i%2 == 0 {
		a, b = b, a
	}
	a()
	b()
}

func TestTrackWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := fairq.New(letter, &options{TrackWait: true})
		require.NoError(t, q.Push("A1"))
		time.Sleep(time.Second)
		ticket, err := q.Add("B2")
		require.NoError(t, err)
		require.NoError(t, q.Push("A3"))
		time.Sleep(time.Second)
		require.NoError(t, q.Push("A4"))
		require.Equal(t, 2*time.Second, q.Stats().OldestAge)
		q.Pop() // A1
		s := q.Stats()
		require.Equal(t, time.Second, s.OldestAge)
		require.EqualValues(t, 1, s.Wait.Count)
		require.InDelta(t, 2, s.Wait.Sum, 1e-9)
		require.Equal(t, s.Wait.Quantile(0.5), s.Wait.Quantile(1))
		require.InDelta(t, 2, s.Wait.Quantile(1).Seconds(), 0.1)
		q.Remove(ticket)
		keys := q.KeyStats(10, fairq.ByBacklog)
		require.Len(t, keys, 1)
		require.Equal(t, "A", keys[0].Key)
		require.Equal(t, 2, keys[0].Backlog)
		require.Equal(t, 2, keys[0].Rounds)
		require.Equal(t, time.Second, keys[0].OldestAge)
		require.EqualValues(t, 1, keys[0].Wait.Count)
		q.Pop() // A3
		q.Pop() // A4
		s = q.Stats()
		require.Zero(t, s.OldestAge)
		require.EqualValues(t, 3, s.Wait.Count, "what is removed is not counted")
		require.InDelta(t, 3, s.Wait.Sum, 1e-9)
		require.NoError(t, q.Push("A5"))
		require.Zero(t, q.KeyStats(1, fairq.ByBacklog)[0].Wait.Count, "the key begins anew")
		time.Sleep(time.Hour)
		require.Equal(t, time.Hour, q.Stats().OldestAge)
		q.Drain()
		require.Zero(t, q.Stats().OldestAge)
		require.EqualValues(t, 3, q.Stats().Wait.Count)
	})
}

// A producer who waits allocates nothing.
func TestWaitingDoesNotAllocate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, o := range []options{{Capacity: 1}, {Capacity: 2, KeyCapacity: 1}} {
			q := fairq.New(letter, &o)
			go func() {
				for q.PushWait(context.Background(), "A1") == nil {
				}
			}()
			require.Zero(t, testing.AllocsPerRun(1000, func() {
				synctest.Wait() // it waits for room
				q.Pop()
			}))
			q.Close()
		}
	})
}
