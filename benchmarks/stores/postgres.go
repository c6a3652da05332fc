package main

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairq/fairq/internal/pgtest"
)

// serverSettings replace defaults for machines of twenty years ago. Writes to disk are as safe as
// by default; the settings say so explicitly.
var serverSettings = []string{
	"fsync=on", "synchronous_commit=on", "full_page_writes=on",
	"shared_buffers=512MB", "max_wal_size=4GB", "max_connections=200", "min_wal_size=1GB",
}

// server is a PostgreSQL server of our own.
type server struct{ *pgtest.Server }

// makeWAL lets the server make files of its log ahead, like a server that has run for some time.
// Filling a new file with zeros stops all commits, for hundreds of milliseconds if the disk is
// busy.
func (s server) makeWAL(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	for range 40 {
		if _, err := conn.Exec(ctx,
			"SELECT pg_logical_emit_message(false, '', ''), pg_switch_wal()"); err != nil {
			return err
		}
	}
	_, err = conn.Exec(ctx, "CHECKPOINT") // now all but the last one can be reused
	return err
}

// database makes a database, and returns its URL.
func (s server) database(ctx context.Context, name string) (dsn string, err error) {
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()); err != nil {
		return "", err
	}
	return s.URL(name) + " pool_max_conns=20", nil
}

// version returns the version of the server.
func (s server) version(ctx context.Context) (version string, err error) {
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close(ctx) }()
	err = conn.QueryRow(ctx, "SHOW server_version").Scan(&version)
	version, _, _ = strings.Cut(version, " ")
	return version, err
}

func openPool(ctx context.Context, dsn string) (*pgxpool.Pool, error) {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return nil, err
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

// settlePostgres runs the vacuum and the checkpoint that would come soon.
func settlePostgres(ctx context.Context, dsn string) error {
	pool, err := openPool(ctx, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	for _, command := range []string{"VACUUM ANALYZE", "CHECKPOINT"} {
		if _, err := pool.Exec(ctx, command); err != nil {
			return err
		}
	}
	return nil
}
