package main

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"path/filepath"
	"time"

	"github.com/fairq/fairq/store/sqlite"
	"github.com/fairq/fairq/task"
)

// inSQLite is orders in the file of the tasks, with the driver that package sqlite has registered.
type inSQLite struct {
	tasks *sqlite.Store
	db    *sql.DB
}

// The options of the driver. A connection that reads may have to wait for a moment too.
const sqliteOptions = "?_pragma=busy_timeout(10000)&_pragma=synchronous(full)"

func openSQLite(ctx context.Context, path string) (_ orders, err error) {
	d := &inSQLite{}
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	if d.tasks, err = sqlite.Open(ctx, path, nil); err != nil {
		return nil, err
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	dsn := "file://" + (&url.URL{Path: filepath.ToSlash(path)}).EscapedPath() + sqliteOptions
	if d.db, err = sql.Open("sqlite", dsn); err != nil {
		return nil, err
	}
	_, err = d.db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS orders (
		tenant TEXT, job TEXT, text BLOB NOT NULL, rounds INTEGER NOT NULL, ordered INTEGER NOT NULL,
		finished INTEGER NOT NULL DEFAULT 0, digest TEXT NOT NULL DEFAULT '', PRIMARY KEY (tenant, job)
	)`)
	return d, err
}

func (d *inSQLite) place(ctx context.Context, n name, o order,
	put func(context.Context) error,
) (added bool, err error) {
	err = d.tasks.InTx(ctx, d.db, func(ctx context.Context, tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx,
			"INSERT INTO orders (tenant, job, text, rounds, ordered) VALUES (?, ?, ?, ?, ?) "+
				"ON CONFLICT DO NOTHING",
			n.Tenant, n.Job, o.Text, o.Rounds, o.Ordered.UnixNano())
		if err != nil {
			return err
		}
		if rows, err := result.RowsAffected(); err != nil || rows == 0 {
			return err
		}
		added = true
		return put(ctx)
	})
	return added && err == nil, err
}

func (d *inSQLite) find(ctx context.Context, n name) (*order, error) {
	var found order
	var ordered, finished int64
	err := d.db.QueryRowContext(ctx,
		"SELECT text, rounds, ordered, finished, digest FROM orders WHERE tenant = ? AND job = ?",
		n.Tenant, n.Job).
		Scan(&found.Text, &found.Rounds, &ordered, &finished, &found.Digest)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, nil //nolint:nilnil // that is how it says none
	case err != nil:
		return nil, err
	}
	found.Ordered, found.Finished = fromNanoseconds(ordered), fromNanoseconds(finished)
	return &found, nil
}

func (d *inSQLite) finish(ctx context.Context, n name, digest string) error {
	return d.tasks.InTx(ctx, d.db, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx,
			"UPDATE orders SET digest = ?, finished = ? WHERE tenant = ? AND job = ?",
			digest, time.Now().UnixNano(), n.Tenant, n.Job)
		return err
	})
}

func (d *inSQLite) store() task.Store { return d.tasks }

func (d *inSQLite) close() error {
	var errs []error
	if d.db != nil {
		errs = append(errs, d.db.Close())
	}
	if d.tasks != nil {
		errs = append(errs, d.tasks.Close())
	}
	return errors.Join(errs...)
}

func fromNanoseconds(t int64) time.Time {
	if t == 0 {
		return time.Time{}
	}
	return time.Unix(0, t)
}
