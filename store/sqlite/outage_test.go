package sqlite_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/store/internal/faulttest"
)

func TestOutages(t *testing.T) {
	path := filepath.Join(t.TempDir(), impatient)
	faulttest.Outages(t, openFaulty, path, []faulttest.Outage{
		{Name: "locked", Run: func(t *testing.T) { lock(t, path) }},
		{Name: "renamed", Run: func(t *testing.T) {
			move(t, path, path+".away", "", "-wal", "-shm")
			time.Sleep(busyTimeout)
			move(t, path+".away", path, "-shm", "-wal", "")
		}},
	})
}

// lock locks a database from another connection, for longer than any call waits.
func lock(t *testing.T, path string) {
	ctx := context.Background()
	db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(20000)")
	require.NoError(t, err)
	defer db.Close()
	c, err := db.Conn(ctx)
	require.NoError(t, err)
	defer c.Close()
	_, err = c.ExecContext(ctx, "BEGIN IMMEDIATE")
	require.NoError(t, err)
	time.Sleep(5 * busyTimeout)
	_, err = c.ExecContext(ctx, "ROLLBACK")
	require.NoError(t, err)
}

// move renames a database, with its log.
func move(t *testing.T, from, to string, suffixes ...string) {
	for _, suffix := range suffixes {
		require.NoError(t, os.Rename(from+suffix, to+suffix))
	}
}
