package faulttest

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/task"
)

// InTx calls f with the context of a transaction of the caller's, and commits it unless f returns
// an error.
type InTx func(ctx context.Context, f func(context.Context) error) error

// WakesAfterCommit checks that a Take in this process, and one in another, gets a task put in a
// caller's transaction: at its commit, not before. A Take that is not woken waits for a Poll,
// which should be longer than the test may take.
func WakesAfterCommit(t *testing.T, open Opener, where string, in InTx) {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	waiting := openTwo(t, open, where, "plain")
	rollback := errors.New("rollback")
	for i := range 20 {
		woken := make(chan error, len(waiting))
		for _, q := range waiting {
			go func() {
				taken, err := q.Take(ctx)
				if err == nil {
					err = taken.Ack(ctx)
				}
				woken <- err
			}()
			awaitCall(t, ctx, q)
		}
		for _, end := range [][]error{{nil}, {rollback, nil}}[i%2] {
			require.ErrorIs(t, in(ctx, func(own context.Context) error {
				for range waiting {
					_, err := waiting[0].Put(own, "key", "in a transaction", task.PutOptions{})
					require.NoError(t, err)
				}
				require.Empty(t, woken, "it was taken before the commit")
				return end
			}), end)
		}
		for range waiting {
			require.NoError(t, <-woken)
		}
	}
}
