//go:build unix

package postgres_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/internal/pgtest"
	"github.com/fairq/fairq/store/internal/faulttest"
	"github.com/fairq/fairq/store/postgres"
	"github.com/fairq/fairq/task"
)

// ownServer starts a server whose commits survive everything except a crash of the machine.
func ownServer(t *testing.T) *pgtest.Server {
	return pgtest.Own(t, "fsync=off", "log_min_messages=fatal")
}

func TestOutages(t *testing.T) {
	if testing.Short() {
		t.Skip("servers take their time to start")
	}
	server := ownServer(t)
	url := server.URL("postgres")
	faulttest.Outages(t, openFaulty, url, []faulttest.Outage{
		{Name: "restart", Run: func(t *testing.T) { require.NoError(t, server.Restart()) }},
		{Name: "all processes killed", Run: func(t *testing.T) {
			server.Kill()
			require.NoError(t, server.Start())
		}},
		{Name: "main process killed", Run: func(t *testing.T) {
			server.Crash()
			require.NoError(t, server.StartAgain())
		}},
		{Name: "connections cut", Run: func(t *testing.T) { cutAll(t, url, 20) }},
	})
}

// cutAll ends all connections but its own, again and again.
func cutAll(t *testing.T, url string, times int) {
	t.Helper()
	ctx := context.Background()
	c, err := pgx.Connect(ctx, url)
	require.NoError(t, err)
	defer c.Close(ctx)
	for range times {
		_, err := c.Exec(ctx,
			"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND "+
				"backend_type = 'client backend'")
		require.NoError(t, err)
	}
}

// TestListensAgain cuts all connections. Waiting calls poll so rarely that only notifications wake
// them.
func TestListensAgain(t *testing.T) {
	server := ownServer(t)
	url := server.URL("postgres")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
	defer cancel()
	queue := func() *task.Queue[string] {
		s, err := postgres.Open(ctx, url, &postgres.Options{Poll: time.Hour})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		q, err := task.Open[string](ctx, s, "queue", nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, q.Close(context.Background())) })
		return q
	}
	here, there := queue(), queue()
	for _, cut := range []func(){
		func() {},
		func() { cutAll(t, url, 1) },
		func() { require.NoError(t, server.Restart()) },
	} {
		cut()
		for range 3 {
			took := make(chan error)
			go func() {
				taken, err := there.Take(ctx)
				if err == nil {
					err = taken.Ack(ctx)
				}
				took <- err
			}()
			for waits := false; !waits; {
				stats, err := there.Stats(ctx)
				require.NoError(t, err)
				waits = stats.WaitingTake > 0
			}
			begun := time.Now()
			_, err := here.Put(ctx, "key", "", task.PutOptions{})
			require.NoError(t, err)
			require.NoError(t, <-took)
			t.Logf("heard after %v", time.Since(begun))
		}
	}
}

// TestNoDatabase opens a missing database.
func TestNoDatabase(t *testing.T) {
	server := ownServer(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err := postgres.Open(ctx, server.URL("missing"), nil)
	require.ErrorContains(t, err, `database "missing" does not exist`)
	url := server.URL("postgres")
	server.Stop()
	_, err = postgres.Open(ctx, url, nil)
	require.ErrorContains(t, err, "postgres: ")
	require.ErrorContains(t, err, "connect")
	t.Log(err)
	_, err = postgres.Open(ctx, "postgres://localhost:1:2/", nil)
	require.ErrorContains(t, err, "postgres: ")
	require.NoError(t, server.Start())
	s, err := postgres.Open(ctx, url, nil)
	require.NoError(t, err)
	require.NoError(t, s.Close())
}

// TestWrongPassword opens with a wrong password.
func TestWrongPassword(t *testing.T) {
	server := ownServer(t)
	ctx := t.Context()
	c, err := pgx.Connect(ctx, server.URL("postgres"))
	require.NoError(t, err)
	for _, sql := range []string{
		"CREATE ROLE guest LOGIN SUPERUSER PASSWORD 'right'",
		`DO $$ BEGIN EXECUTE format('COPY (VALUES (%L), (%L)) TO %L',
			'local all postgres trust', 'local all all scram-sha-256',
			current_setting('hba_file')); END $$`,
	} {
		_, err = c.Exec(ctx, sql)
		require.NoError(t, err)
	}
	require.NoError(t, c.Close(ctx))
	require.NoError(t, server.Restart())
	url := func(password string) string {
		return strings.Replace(server.URL("postgres"), "user=postgres", "user=guest password="+password,
			1)
	}
	_, err = postgres.Open(ctx, url("wrong"), nil)
	require.ErrorContains(t, err, "password authentication failed")
	s, err := postgres.Open(ctx, url("right"), nil)
	require.NoError(t, err)
	require.NoError(t, s.Close())
}
