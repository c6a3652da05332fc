package main

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fairq/fairq/internal/pgtest"
)

// serverSettings replace defaults for machines of twenty years ago. Writes to disk are as safe as
// by default; the settings say so explicitly.
var serverSettings = []string{
	"fsync=on", "synchronous_commit=on", "full_page_writes=on",
	"shared_buffers=512MB", "max_wal_size=4GB", "max_connections=200", "min_wal_size=1GB",
}

// connections limits those of a contestant.
const connections = " pool_max_conns=20"

// startPostgres starts a PostgreSQL server of our own. If the load is that of -fair, it makes
// files of the server's log in advance, as a server has them that has run for some time. Otherwise
// filling a new file with zeros would stop all commits, for hundreds of milliseconds if the disk
// is busy.
func startPostgres(ctx context.Context, fair bool) (*server, error) {
	p, err := pgtest.New(serverSettings...)
	if err != nil {
		return nil, err
	}
	var ahead []string
	if fair {
		ahead = slices.Repeat(
			[]string{"SELECT pg_logical_emit_message(false, '', ''), pg_switch_wal()"}, 40)
		ahead = append(ahead, "CHECKPOINT") // now all but the last one can be reused
	}
	version, err := execute(ctx, p.URL("postgres"), ahead...)
	return &server{
		version: "PostgreSQL " + version,
		create: func(ctx context.Context, name string) (string, error) {
			_, err := execute(ctx, p.URL("postgres"), "CREATE DATABASE "+name)
			return p.URL(name), err
		},
		// the vacuum and the checkpoint that would come soon
		settle: func(ctx context.Context, dsn string) error {
			_, err := execute(ctx, dsn, "VACUUM ANALYZE", "CHECKPOINT")
			return err
		},
		stop: p.Remove,
	}, err
}

// execute runs statements, each in a transaction of its own, and returns the server's version.
func execute(ctx context.Context, dsn string, statements ...string) (version string, err error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	for _, s := range statements {
		if _, err := conn.Exec(ctx, s); err != nil {
			return "", err
		}
	}
	version, _, _ = strings.Cut(conn.PgConn().ParameterStatus("server_version"), " ")
	return version, nil
}
