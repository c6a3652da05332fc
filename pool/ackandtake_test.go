package pool_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/memory"
)

// counted is a Store in memory that counts calls.
type counted struct {
	memory.Store
	settles, takes, both atomic.Int32
}

type countedBackend struct {
	driver.Backend
	*counted
}

func (c *counted) Open(
	ctx context.Context, name string, s driver.Settings, n driver.Notifier,
) (driver.Backend, error) {
	b, err := c.Store.Open(ctx, name, s, n)
	return countedBackend{b, c}, err
}

func (b countedBackend) Settle(ctx context.Context, l driver.Lease,
	how driver.Settlement,
) (task.State, error) {
	b.settles.Add(1)
	return b.Backend.Settle(ctx, l, how)
}

func (b countedBackend) TakeOne(ctx context.Context, by *driver.Taker) (driver.Attempt, error) {
	b.takes.Add(1)
	return b.Backend.TakeOne(ctx, by)
}

func (b countedBackend) SettleAndTakeOne(
	ctx context.Context, l driver.Lease, how driver.Settlement, by *driver.Taker,
) (task.State, driver.Attempt, error) {
	b.both.Add(1)
	return b.Backend.SettleAndTakeOne(ctx, l, how, by)
}

// A worker acks a task and takes the next one by one call of a store in memory.
func TestAckAndTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, s := t.Context(), new(counted)
		q, err := task.Open[int](ctx, s, "q", nil)
		require.NoError(t, err)
		for i := range 100 {
			_, err := q.Put(ctx, fmt.Sprint(i%3), i, task.PutOptions{})
			require.NoError(t, err)
		}
		p := pool.New(q, func(context.Context, *task.Task[int]) error { return nil },
			&pool.Options[int]{Workers: 1})
		require.NoError(t, p.Wait(ctx))
		require.EqualValues(t, 100, s.both.Load())
		require.Zero(t, s.settles.Load())
		require.LessOrEqual(t, s.takes.Load(), int32(3), "for the first one, and when there is no other")
		require.NoError(t, p.Shutdown(ctx))
		require.NoError(t, q.Close(ctx))
	})
}

// The context of a handler is done when it has returned, even if nothing has used it before.
func TestContextKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		type key struct{}
		var kept []context.Context
		p := pool.Func(func(ctx context.Context, t *task.Task[bool]) error {
			if t.Payload {
				<-context.WithValue(ctx, key{}, 1).Done()
			}
			kept = append(kept, ctx)
			return nil
		}, &pool.Options[bool]{Workers: 1, Policy: pool.Policy{Timeout: time.Second}})
		for _, asks := range []bool{false, true} {
			require.NoError(t, p.Submit(ctx, "a", asks))
			require.NoError(t, p.Wait(ctx))
		}
		for i, err := range []error{context.Canceled, context.DeadlineExceeded} {
			<-kept[i].Done()
			require.Equal(t, err, kept[i].Err())
			child, cancel := context.WithCancel(kept[i])
			require.Equal(t, err, child.Err())
			cancel()
			require.Nil(t, kept[i].Value(key{}))
		}
		require.Equal(t, context.Canceled, context.Cause(kept[0]))
		require.Equal(t, pool.ErrTimeout, context.Cause(kept[1]))
		require.NoError(t, p.Shutdown(ctx))
	})
}
