package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fairq/fairq/internal/driver"
)

// identity identifies a database. Connections may reach a server by several addresses, but it has
// one start time.
type identity struct{ database, server, started string }

func (p *identity) String() string {
	return fmt.Sprintf("%q of the server at %s that was started at %s", p.database, p.server,
		p.started)
}

// same reports whether both are one database.
func (p *identity) same(other *identity) bool {
	return p != nil && p.database == other.database && p.started == other.started
}

const sqlIdentity = `
SELECT current_database(),
	coalesce(host(inet_server_addr()), 'localhost') || ':' || current_setting('port'),
	pg_postmaster_start_time()::text, current_setting('transaction_isolation')`

func readIdentity(r pgx.Row) (p *identity, level string, err error) {
	p = &identity{}
	err = r.Scan(&p.database, &p.server, &p.started, &level)
	return p, level, err
}

// joins returns an error if calls cannot be part of a transaction of the user's. It may be of
// another database, where a queue may have the same number. Or it may have another isolation
// level, at which it would not see later commits and could not change such rows.
func (db *database) joins(ctx context.Context, user pgx.Tx) error {
	theirs, level, err := readIdentity(user.QueryRow(ctx, sqlIdentity))
	if err != nil {
		return db.failed("join", err)
	}
	if level != "read committed" {
		return &driver.FieldError{
			Field: "the isolation level of the transaction", Value: level,
			Limit: "read committed",
		}
	}
	if !db.identity.Load().same(theirs) { // the server may have been started again
		if err := db.identify(ctx); err != nil {
			return err
		}
	}
	if ours := db.identity.Load(); !ours.same(theirs) {
		return &driver.FieldError{
			Field: "the database of the transaction given to WithTx",
			Value: theirs, Limit: "that of the queue: " + ours.String(),
		}
	}
	return nil
}

// identify finds out the identity of the database.
func (db *database) identify(ctx context.Context) error {
	t := &tx{db: db, ctx: ctx, batch: &pgx.Batch{}}
	defer t.release()
	t.add(sqlIdentity).QueryRow(func(r pgx.Row) error {
		here, _, err := readIdentity(r)
		if err == nil {
			db.identity.Store(here)
		}
		return err
	})
	return t.send("find the database")
}
