package sqlite_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/store/internal/faulttest"
	"github.com/fairq/fairq/store/sqlite"
)

func TestWakesAfterCommit(t *testing.T) {
	path := newFile(t)
	db, err := sql.Open("sqlite", path+"?_txlock=immediate&_pragma=busy_timeout(20000)")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	faulttest.WakesAfterCommit(t, openFaulty, path,
		func(ctx context.Context, f func(context.Context) error) error {
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			if err := f(sqlite.WithTx(ctx, tx)); err != nil {
				require.NoError(t, tx.Rollback())
				return err
			}
			return tx.Commit()
		})
}
