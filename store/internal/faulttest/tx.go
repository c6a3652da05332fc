package faulttest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/task"
)

// InTx calls f with the context of a transaction of the caller's, and commits it unless f returns
// an error.
type InTx func(ctx context.Context, f func(context.Context) error) error

// WakesAfterCommit lets a call wait in this process, and one as if in another process, while a
// task is put in a transaction whose end the Store does not see. As for Wake, a Poll should be
// longer than the test may take.
func WakesAfterCommit(t *testing.T, open Opener, where string, in InTx) {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	waiting := openTwo(t, open, where, "plain")
	for _, commits := range []bool{true, false, true} {
		var committed atomic.Bool
		woken := make(chan error, len(waiting))
		for _, q := range waiting {
			go func() {
				taken, err := q.Take(ctx)
				if err == nil && !committed.Load() {
					err = errors.New("it was taken before the commit")
				}
				if err == nil {
					err = taken.Ack(ctx)
				}
				woken <- err
			}()
			awaitCall(t, ctx, q)
		}
		rollback := errors.New("rollback")
		err := in(ctx, func(own context.Context) error {
			for range waiting {
				_, err := waiting[0].Put(own, "key", "in a transaction", task.PutOptions{})
				require.NoError(t, err)
			}
			time.Sleep(50 * time.Millisecond) // so that a mistake can be seen
			require.Empty(t, woken)
			if !commits {
				return rollback
			}
			committed.Store(true)
			return nil
		})
		if commits {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, rollback)
			time.Sleep(50 * time.Millisecond)
			require.Empty(t, woken)
			committed.Store(true)
			for range waiting {
				_, err = waiting[0].Put(ctx, "key", "after it", task.PutOptions{})
				require.NoError(t, err)
			}
		}
		for range waiting {
			require.NoError(t, <-woken)
		}
	}
}
