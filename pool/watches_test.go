package pool

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

// A source claims to watch only while it does: otherwise a worker would stay idle.
func TestWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		queue := fairq.New(func(n int) int { return n }, &fairq.Options[int, int]{})
		quiet := &WorkersOptions[int]{Workers: 1, Logger: slog.New(slog.DiscardHandler)}
		w := NewWorkers(queue, func(context.Context, int) error { return nil }, quiet)
		require.True(t, w.source.watches())
		queue.Close()
		require.NoError(t, w.Wait(ctx))
		_, err := w.source.takeOrWatch()
		require.ErrorIs(t, err, fairq.ErrClosed)
		require.False(t, w.source.watches())
		require.NoError(t, w.Shutdown(ctx))

		p := Func(func(context.Context, *task.Task[int]) error { return nil },
			&Options[int]{Workers: 1, Logger: quiet.Logger})
		require.True(t, p.source.watches())
		require.NoError(t, p.Queue("").Close(ctx))
		synctest.Wait()
		_, err = p.source.takeOrWatch()
		require.ErrorIs(t, err, task.ErrClosed)
		require.False(t, p.source.watches())
		require.NoError(t, p.Shutdown(ctx))
	})
}
