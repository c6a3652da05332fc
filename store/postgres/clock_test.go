package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/store/postgres"
	"github.com/fairq/fairq/task"
)

// TestClocksDiffer lets the clocks of the database and of its users differ by an hour. A process
// cannot have a clock of its own, but the database can.
func TestClocksDiffer(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for many seconds")
	}
	t.Parallel()
	for _, shift := range []time.Duration{-time.Hour, time.Hour} {
		t.Run(shift.String(), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
			defer cancel()
			url := newDatabase(t)
			c, err := pgxpool.New(ctx, url)
			require.NoError(t, err)
			t.Cleanup(c.Close)
			_, err = c.Exec(ctx, fmt.Sprintf(`
				CREATE SCHEMA shifted;
				CREATE FUNCTION shifted.clock_timestamp() RETURNS timestamptz LANGUAGE SQL VOLATILE
				AS $$ SELECT pg_catalog.clock_timestamp() + interval '%d seconds' $$`, int(shift.Seconds())))
			require.NoError(t, err)
			url += " options='-c search_path=shifted,pg_catalog'"
			here, there := openShifted(t, url), openShifted(t, url)

			_, err = here.Put(ctx, "key", "", task.PutOptions{})
			require.NoError(t, err)
			held, err := here.Take(ctx)
			require.NoError(t, err)
			require.WithinDuration(t, time.Now().Add(shift), held.Info().Created, time.Minute,
				"the clock is not what the test has set")
			begun := time.Now()

			testDelays(t, here, there)

			// The lease is not lost, although its holder only renews it.
			time.Sleep(time.Until(begun.Add(5 * shiftedGrace / 2)))
			_, ok, err := there.TryTake(ctx)
			require.NoError(t, err)
			require.False(t, ok)
			require.NoError(t, held.Ack(ctx))
		})
	}
}

// shiftedGrace is long enough that a holder on a busy machine does not seem dead.
const shiftedGrace = 6 * time.Second

func openShifted(t *testing.T, url string) *task.Queue[string] {
	s, err := postgres.Open(t.Context(), url, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	q, err := task.Open(t.Context(), s, "queue", &task.Options[string]{Grace: shiftedGrace})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, q.Close(context.Background())) })
	return q
}

// testDelays lets tasks become ready after a while in several ways.
func testDelays(t *testing.T, here, there *task.Queue[string]) {
	const (
		delay = 300 * time.Millisecond
		ttr   = 5 * time.Second // tasks must be settled in time, even on a busy machine
		late  = 10 * time.Second
	)
	ctx := t.Context()
	begun := time.Now()
	next := func(what string, after time.Duration) *task.Task[string] {
		t.Helper()
		taken, err := there.Take(ctx)
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(begun), after, what)
		require.Less(t, time.Since(begun), after+late, what)
		t.Logf("%s: %v", what, time.Since(begun))
		return taken
	}
	_, err := here.Put(ctx, "key", "", task.PutOptions{Delay: delay, TTR: ttr})
	require.NoError(t, err)
	lost := next("put with a delay", delay)
	// since the put, because the begin of the lease is unknown here
	again := next("lease that ran out", delay+ttr)
	require.False(t, again.Info().ReadyAt.Before(lost.Info().Until), "it ran out at %v, not %v",
		again.Info().ReadyAt, lost.Info().Until)
	require.ErrorIs(t, lost.Ack(ctx), task.ErrLeaseLost)
	begun = time.Now()
	require.NoError(t, again.Release(ctx, delay))
	require.NoError(t, next("released with a delay", delay).Ack(ctx))
}
