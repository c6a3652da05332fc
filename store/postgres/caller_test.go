package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/store/internal/faulttest"
	"github.com/fairq/fairq/store/postgres"
)

// roles are the roles of such a process besides those of faulttest.
var roles = map[string]func(*faulttest.Self) error{
	"tx": func(s *faulttest.Self) error {
		c, err := openCaller(s.Where)
		if err != nil {
			return err
		}
		return s.Own(c)
	},
}

// caller implements faulttest.Caller.
type caller struct{ *pgxpool.Pool }

func openCaller(url string) (caller, error) {
	p, err := pgxpool.New(context.Background(), url)
	return caller{p}, err
}

func newCaller(t *testing.T, url string) caller {
	c, err := openCaller(url)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	_, err = c.Exec(t.Context(), "CREATE TABLE orders (name text); CREATE TABLE shipped (name text)")
	require.NoError(t, err)
	return c
}

func (c caller) Begin(ctx context.Context) (faulttest.Tx, error) {
	tx, err := c.Pool.Begin(ctx)
	return callerTx{tx}, err
}

func (c caller) Names(table string) ([]string, error) {
	rows, err := c.Query(context.Background(), "SELECT name FROM "+table)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

type callerTx struct{ pgx.Tx }

func (tx callerTx) Context(ctx context.Context) context.Context {
	return postgres.WithTx(ctx, tx.Tx)
}

func (tx callerTx) Exec(statement string) error {
	_, err := tx.Tx.Exec(context.Background(), statement)
	return err
}

func (tx callerTx) Commit() error   { return tx.Tx.Commit(context.Background()) }
func (tx callerTx) Rollback() error { return tx.Tx.Rollback(context.Background()) }

func TestTransactions(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	faulttest.Transactions(t, openFaulty, url, newCaller(t, url))
}

func TestWakesAfterCommit(t *testing.T) {
	url := newDatabase(t)
	faulttest.WakesAfterCommit(t, openFaulty, url, newCaller(t, url))
}
