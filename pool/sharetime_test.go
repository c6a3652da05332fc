package pool_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/pool"
)

// TestShareTime: an item is in hand until its handler returns, in whatever way.
func TestShareTime(t *testing.T) {
	q := fairq.New(func(n int) int { return n }, &fairq.Options[int, int]{ShareTime: true})
	held, goOn := make(chan int), make(chan struct{})
	w := pool.NewWorkers(q, func(_ context.Context, n int) error {
		held <- n
		<-goOn
		switch n {
		case 0:
			panic("this item")
		case 1:
			runtime.Goexit()
		case 2:
			return errNo
		}
		return nil
	}, &pool.WorkersOptions[int]{Workers: 1, Logger: quiet})
	for key := range 4 {
		require.NoError(t, q.Push(key))
		require.Equal(t, key, <-held)
		require.NoError(t, q.Push(key))
		require.NoError(t, q.Push(100+key))
		require.Equal(t, 100+key, q.Upcoming(1)[0].Key, "key %d has an item in hand", key)
		goOn <- struct{}{}
		require.Equal(t, 100+key, <-held)
		goOn <- struct{}{}
		require.Equal(t, key, <-held)
		goOn <- struct{}{}
	}
	q.Close()
	require.NoError(t, w.Wait(t.Context()))
	require.NoError(t, w.Shutdown(t.Context()))
	for _, key := range []int{0, 1, 2, 3, 100, 101, 102, 103} {
		require.ErrorContains(t, q.Done(key), "no item of key")
	}
}
