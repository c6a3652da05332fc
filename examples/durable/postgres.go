package main

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairq/fairq/store/postgres"
	"github.com/fairq/fairq/task"
)

// inPostgres is orders in the database of the tasks.
type inPostgres struct {
	tasks *postgres.Store
	db    *pgxpool.Pool
}

// If several processes make the table at once, one does and the others wait.
const makeOrders = `
BEGIN;
SELECT pg_advisory_xact_lock(hashtext('orders'));
CREATE TABLE IF NOT EXISTS orders (
	tenant text, job text, text bytea NOT NULL, rounds bigint NOT NULL, ordered timestamptz NOT NULL,
	finished timestamptz, digest text NOT NULL DEFAULT '', PRIMARY KEY (tenant, job)
);
COMMIT`

func openPostgres(ctx context.Context, connection string) (_ orders, err error) {
	d := &inPostgres{}
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	if d.tasks, err = postgres.Open(ctx, connection, nil); err != nil {
		return nil, err
	}
	if d.db, err = pgxpool.New(ctx, connection); err != nil {
		return nil, err
	}
	_, err = d.db.Exec(ctx, makeOrders, pgx.QueryExecModeSimpleProtocol)
	return d, err
}

func (d *inPostgres) place(ctx context.Context, n name, o order,
	put func(context.Context) error,
) (added bool, err error) {
	err = d.tasks.InTx(ctx, d.db, func(ctx context.Context, tx pgx.Tx) error {
		result, err := tx.Exec(ctx,
			"INSERT INTO orders (tenant, job, text, rounds, ordered) VALUES ($1, $2, $3, $4, $5) "+
				"ON CONFLICT DO NOTHING",
			n.Tenant, n.Job, o.Text, o.Rounds, o.Ordered)
		if added = result.RowsAffected() > 0; err != nil || !added {
			return err
		}
		return put(ctx)
	})
	return added && err == nil, err
}

func (d *inPostgres) find(ctx context.Context, n name) (*order, error) {
	var found order
	var finished *time.Time
	err := d.db.QueryRow(ctx,
		"SELECT text, rounds, ordered, finished, digest FROM orders WHERE tenant = $1 AND job = $2",
		n.Tenant, n.Job).
		Scan(&found.Text, &found.Rounds, &found.Ordered, &finished, &found.Digest)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, nil //nolint:nilnil // that is how it says none
	case err != nil:
		return nil, err
	case finished != nil:
		found.Finished = *finished
	}
	return &found, nil
}

func (d *inPostgres) finish(ctx context.Context, n name, digest string) error {
	_, err := d.db.Exec(ctx,
		"UPDATE orders SET digest = $3, finished = clock_timestamp() WHERE tenant = $1 AND job = $2",
		n.Tenant, n.Job, digest)
	return err
}

func (d *inPostgres) store() task.Store { return d.tasks }

func (d *inPostgres) close() error {
	if d.db != nil {
		d.db.Close()
	}
	if d.tasks == nil {
		return nil
	}
	return d.tasks.Close()
}
