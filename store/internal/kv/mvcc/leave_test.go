package mvcc_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/store/internal/kv"
	"github.com/fairq/fairq/store/internal/kv/mvcc"
	"github.com/fairq/fairq/task"
)

// TestLeave ends the context of a call while its transaction runs: the other calls in the
// transaction succeed.
func TestLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		put := new(atomic.Pointer[func()])
		engine := counted{
			Client: new(mvcc.DB).Client(), entries: new(atomic.Int64), slow: time.Second, beforePut: put,
		}
		c := clients(t, 1, func() kv.Engine { return engine }, kv.Options{})[0]
		ctx, cancel := context.WithCancel(t.Context())
		var errs [3]error
		var done sync.WaitGroup
		for i, ctx := range []context.Context{t.Context(), ctx, t.Context()} {
			done.Go(func() { _, errs[i] = c.Put(ctx, "key", i, task.PutOptions{}) })
			synctest.Wait() // the first call begins alone, the others share the next transaction
		}
		time.Sleep(1500 * time.Millisecond)
		leave := func() {
			cancel()
			synctest.Wait()
		}
		put.Store(&leave)
		done.Wait()
		require.Equal(t, []error{nil, context.Canceled, nil}, errs[:])
		for _, payload := range []int{0, 2} {
			one, err := c.Take(t.Context())
			require.NoError(t, err)
			require.Equal(t, payload, one.Payload)
		}
		_, found, err := c.TryTake(t.Context())
		require.NoError(t, err)
		require.False(t, found)
	})
}
