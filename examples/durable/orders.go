package main

import (
	"context"
	"database/sql"
	"errors"
	"net/url"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/fairq/fairq/store/postgres"
	"github.com/fairq/fairq/store/sqlite"
	"github.com/fairq/fairq/task"
)

// orders is a table of orders in the database of the tasks.
type orders struct {
	tasks task.Store
	db    *sql.DB

	// inTx calls f in a transaction. Calls of the queue with the context given to f are part of it.
	inTx func(ctx context.Context, f func(ctx context.Context, run statement) error) error

	close func() error
}

// statement runs one in a transaction, and returns how many rows it changed.
type statement func(sql string, args ...any) (rows int64, err error)

// makeOrders and all statements are such that both databases understand them.
const makeOrders = `CREATE TABLE IF NOT EXISTS orders (
	id text PRIMARY KEY, text bytea NOT NULL, digest text NOT NULL DEFAULT '',
	finished bigint NOT NULL DEFAULT 0)`

func openSQLite(ctx context.Context, file string) (*orders, error) {
	store, err := sqlite.Open(ctx, file, nil)
	if err != nil {
		return nil, err
	}
	// Package sqlite has registered the driver. A connection that reads may have to wait, too.
	db, err := sql.Open("sqlite", "file:"+url.PathEscape(file)+"?_pragma=busy_timeout(10000)")
	if err == nil {
		_, err = db.ExecContext(ctx, makeOrders)
	}
	inTx := func(ctx context.Context, f func(context.Context, statement) error) error {
		return store.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
			return f(ctx, func(text string, args ...any) (int64, error) {
				result, err := tx.ExecContext(ctx, text, args...)
				if err != nil {
					return 0, err
				}
				return result.RowsAffected()
			})
		})
	}
	closeAll := func() error { return errors.Join(db.Close(), store.Close()) }
	return &orders{store, db, inTx, closeAll}, err
}

func openPostgres(ctx context.Context, connection string) (*orders, error) {
	store, err := postgres.Open(ctx, connection, nil)
	if err != nil {
		return nil, err
	}
	connections, err := pgxpool.New(ctx, connection)
	if err == nil {
		// If several processes make the table at once, one does and the others wait.
		_, err = connections.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtext('orders'));"+makeOrders)
	}
	if err != nil {
		return nil, err
	}
	db := stdlib.OpenDBFromPool(connections)
	inTx := func(ctx context.Context, f func(context.Context, statement) error) error {
		return store.InTx(ctx, connections, func(ctx context.Context, tx pgx.Tx) error {
			return f(ctx, func(text string, args ...any) (int64, error) {
				result, err := tx.Exec(ctx, text, args...)
				return result.RowsAffected(), err
			})
		})
	}
	closeAll := func() error {
		err := db.Close()
		connections.Close()
		return errors.Join(err, store.Close())
	}
	return &orders{store, db, inTx, closeAll}, nil
}
