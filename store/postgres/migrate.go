package postgres

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

//go:embed schema.sql
var schema1 string

// migration takes a database from the version before to the next.
type migration struct {
	sql string

	// minReader is the oldest version of the program that can still use the database, so that the
	// programs of a service can be replaced one by one.
	minReader int
}

// migrations never change after a release; new ones are added.
var migrations = []migration{{schema1, 1}}

// Migrate makes the tables, or updates those of an older version. Of several at the same time, one
// does it and the others wait.
func (db *database) Migrate(ctx context.Context) error {
	if err := db.migrate(ctx, migrations); err != nil {
		return db.failed("migrate", err)
	}
	return nil
}

func (db *database) migrate(ctx context.Context, steps []migration) error {
	return pgx.BeginFunc(ctx, db.pool, func(tx pgx.Tx) error {
		// CREATE IF NOT EXISTS can fail if two do it at the same time; hence the lock, which ends
		// with the transaction.
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", db.lock(0)); err != nil {
			return err
		}
		if err := db.makeSchema(ctx, tx); err != nil {
			return err
		}
		version, err := db.version(ctx, tx, len(steps))
		if err != nil || version >= len(steps) {
			return err
		}
		for _, step := range steps[version:] {
			if _, err := tx.Exec(ctx, db.text(step.sql)); err != nil {
				return err
			}
		}
		_, err = tx.Exec(ctx, db.text("INSERT INTO fairq.version VALUES ($1, $2)"), len(steps),
			steps[len(steps)-1].minReader)
		return err
	})
}

// makeSchema makes the schema and the table of versions, unless they exist, so that a user without
// the right to make them can use existing ones.
func (db *database) makeSchema(ctx context.Context, tx pgx.Tx) error {
	var schema, table bool
	err := tx.QueryRow(ctx, "SELECT to_regnamespace($1) IS NOT NULL, to_regclass($2) IS NOT NULL",
		db.schema, db.schema+".version").
		Scan(&schema, &table)
	if err == nil && !schema {
		_, err = tx.Exec(ctx, "CREATE SCHEMA "+db.schema)
	}
	if err == nil && !table {
		_, err = tx.Exec(ctx,
			db.text("CREATE TABLE fairq.version (version int NOT NULL, min_reader int NOT NULL)"))
	}
	return err
}

// version returns the version of the tables, 0 if there are none yet, or an error if a program of
// version mine cannot use them. It also records the address of the database.
func (db *database) version(ctx context.Context, tx pgx.Tx, mine int) (version int, err error) {
	here, _, err := readIdentity(tx.QueryRow(ctx, sqlIdentity))
	if err != nil {
		return 0, err
	}
	db.identity.Store(here)
	var minReader int
	var exists bool
	err = tx.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", db.schema+".version").Scan(&exists)
	if err == nil && exists {
		err = tx.QueryRow(ctx,
			db.text("SELECT coalesce(max(version), 0), coalesce(max(min_reader), 0) FROM fairq.version")).
			Scan(&version, &minReader)
		// it has other columns
		if e := (*pgconn.PgError)(nil); errors.As(err, &e) && strings.HasPrefix(e.Code, "42") {
			err = fmt.Errorf("the table %s.version is of another program: choose "+
				"another Options.Schema (%w)", db.schema, err)
		}
	}
	if err == nil && minReader > mine {
		err = fmt.Errorf("the tables have version %d, which programs from version %d on can use; "+
			"this one has version %d",
			version, minReader, mine)
	}
	return version, err
}
