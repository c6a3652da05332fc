package sqlite_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/store/internal/faulttest"
	"github.com/fairq/fairq/store/sqlite"
)

func init() {
	roles["tx"] = func(s *faulttest.Self) error {
		c, err := openCaller(s.Where)
		if err != nil {
			return err
		}
		return s.Own(c)
	}
}

// caller implements faulttest.Caller.
type caller struct{ *sql.DB }

func openCaller(path string) (caller, error) {
	db, err := sql.Open("sqlite",
		path+"?_txlock=immediate&_pragma=busy_timeout(20000)&_pragma=synchronous(normal)")
	return caller{db}, err
}

func newCaller(t *testing.T, path string) caller {
	s, err := openFaulty(t.Context(), path)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	c, err := openCaller(path)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	_, err = c.Exec("CREATE TABLE orders (name TEXT); CREATE TABLE shipped (name TEXT)")
	require.NoError(t, err)
	return c
}

func (c caller) Close() { c.DB.Close() }

func (c caller) Begin(ctx context.Context) (faulttest.Tx, error) {
	tx, err := c.BeginTx(ctx, nil)
	return callerTx{tx}, err
}

func (c caller) Names(table string) (names []string, err error) {
	rows, err := c.Query("SELECT name FROM " + table)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, rows.Err()
}

type callerTx struct{ *sql.Tx }

func (tx callerTx) Context(ctx context.Context) context.Context {
	return sqlite.WithTx(ctx, tx.Tx)
}

func (tx callerTx) Exec(statement string) error {
	_, err := tx.Tx.Exec(statement)
	return err
}

func TestTransactions(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	faulttest.Transactions(t, openFaulty, path, newCaller(t, path))
}

func TestWakesAfterCommit(t *testing.T) {
	path := newFile(t)
	faulttest.WakesAfterCommit(t, openFaulty, path, newCaller(t, path))
}
