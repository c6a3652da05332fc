package sqlite_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/internal/storetest"
	"github.com/fairq/fairq/store/sqlite"
)

func TestLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	s, err := sqlite.Open(t.Context(), path, nil)
	require.NoError(t, err)
	defer s.Close()
	db, err := sql.Open("sqlite", path+"?_txlock=immediate&_pragma=busy_timeout(20000)")
	require.NoError(t, err)
	defer db.Close()
	storetest.Locked(t, s, func() func() {
		tx, err := db.Begin()
		require.NoError(t, err)
		return func() { require.NoError(t, tx.Rollback()) }
	})
}
