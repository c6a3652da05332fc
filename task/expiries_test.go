package task

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/task/memory"
)

// If several Queues have a queue in memory open, the first Queue that wants expired tasks gets
// them.
func TestWhoIsGivenExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, store := t.Context(), new(memory.Store)
		given := map[string]int{}
		open := func(name string) *Queue[int] {
			o := &Options[int]{}
			if name != "" {
				o.OnExpire = func(*Task[int]) { given[name]++ }
			}
			q, err := Open(ctx, store, "q", o)
			require.NoError(t, err)
			return q
		}
		none, first, second := open(""), open("first"), open("second")
		expire := func(q *Queue[int]) {
			_, err := q.Put(ctx, "a", 1, PutOptions{TTL: time.Second})
			require.NoError(t, err)
			time.Sleep(time.Second)
			synctest.Wait()
		}
		expire(none)
		expire(second)
		require.Equal(t, map[string]int{"first": 2}, given)
		require.NoError(t, first.Close(ctx))
		expire(none)
		require.Equal(t, map[string]int{"first": 2, "second": 1}, given)
		require.NoError(t, second.Close(ctx))
		expire(none)
		require.Equal(t, map[string]int{"first": 2, "second": 1}, given)
		require.NoError(t, none.Close(ctx))
	})
}

// The goroutine that hands out runs only as long as there is something to hand out. If OnExpire
// ends it, another one goes on.
func TestExpiriesGoroutine(t *testing.T) {
	given := 0
	o := &Options[int]{OnExpire: func(*Task[int]) {
		given++
		runtime.Goexit()
	}}
	bubble(t, o, func(ctx context.Context, q *Queue[int]) {
		x := &q.notifier.expiries
		idle := func() {
			x.mu.Lock()
			defer x.mu.Unlock()
			require.Nil(t, x.done)
			require.Nil(t, x.records)
		}
		for n := 1; n < 10; n += 3 {
			fill(t, q, "a", 3, PutOptions{TTL: time.Second})
			idle()
			time.Sleep(time.Second)
			synctest.Wait()
			require.Equal(t, n+2, given)
			idle()
		}
	})
}

// Tasks that expire while a backend is being opened are handed out when the queue is open.
func TestExpiredTooEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var given *Task[int]
		q, err := Open(t.Context(), new(hastyStore), "q",
			&Options[int]{OnExpire: func(t *Task[int]) { given = t }})
		require.NoError(t, err)
		require.NoError(t, q.Close(t.Context()))
		require.Equal(t, 7, given.Payload)
		require.ErrorIs(t, given.Ack(t.Context()), ErrLeaseLost)
		q, err = Open[int](t.Context(), new(hastyStore), "q", nil)
		require.NoError(t, err)
		require.Empty(t, q.notifier.expiries.records)
		require.NoError(t, q.Close(t.Context()))
	})
}

type hastyStore struct{ memory.Store }

func (*hastyStore) Open(
	ctx context.Context, name string, s driver.Settings, n driver.Notifier,
) (driver.Backend, error) {
	n.Expired(driver.Record{Details: driver.Details{Lease: 1}, Payload: []byte("7")})
	b, err := new(memory.Store).Open(ctx, name, s, encoding{n})
	return &hooked{Backend: b}, err
}
