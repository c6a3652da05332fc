package pool_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// Each of these tests failed once.

// mistakenNil returns a nil pointer as an error. Its Error method panics.
func mistakenNil() error {
	var e *brokenError
	return e
}

// brokenError is an error whose nil pointer a handler returns by mistake.
type brokenError struct{ text string }

func (e *brokenError) Error() string { return e.text }

// After an invalid policy from ForTask no task stays with a worker that has ended its attempt.
func TestPolicyOfForTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		p := pool.Func(func(context.Context, *task.Task[int]) error { return errSink },
			&pool.Options[int]{Logger: quiet, ForTask: func(_ *task.Task[int], p pool.Policy) pool.Policy {
				p.Backoff = pool.Backoff{Base: 2 * task.MaxDuration, Max: 2 * task.MaxDuration}
				return p
			}})
		require.NoError(t, p.Submit(ctx, "a", 0))
		synctest.Wait()
		require.EqualValues(t, 1, p.Stats().Retried)
		requireLeft(t, p, p.Shutdown(ctx), 1)
	})
}
