package bolt

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/store/internal/kv"
	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/store/internal/rows/rowstest"
	"github.com/fairq/fairq/task/driver"
	"github.com/fairq/fairq/task/storetest"
)

// empty returns a file with an empty database, so that tests need not wait until one is made.
var empty = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "fairq")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "tasks.db")
	s, err := Open(context.Background(), path, nil)
	if err != nil {
		return nil, err
	}
	if err := s.Close(); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

// testDB is a database whose commits do not wait for the disk.
type testDB struct {
	*kv.DB
	*engine
}

func openDB(t *testing.T) *testDB {
	data, err := empty()
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "a b?c#d%20é.db")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	e, err := openEngine(path, false)
	require.NoError(t, err)
	e.db.NoSync, e.db.NoGrowSync = true, true
	t.Cleanup(func() { require.NoError(t, e.close()) })
	db, err := kv.Open(t.Context(), "bolt", e, kv.Options{})
	require.NoError(t, err)
	return &testDB{db, e}
}

func (db *testDB) Traits() rows.Traits { return db.DB.Traits() }

func (db *testDB) Changed(ctx context.Context) (bool, error) { return db.DB.Changed(ctx) }

func (db *testDB) Begin(ctx context.Context) (rows.Tx, error)  { return db.DB.Begin(ctx) }
func (db *testDB) Joined(ctx context.Context) (rows.Tx, error) { return db.DB.Joined(ctx) }

// Join begins a transaction of the caller's own.
func (db *testDB) Join(ctx context.Context) (context.Context, rows.Tx, error) {
	t, err := db.begin(ctx)
	return context.WithValue(ctx, txKey{}, t), joined{nil, t}, err
}

// joined is a caller's own transaction, of which only the end is used.
type joined struct {
	rows.Tx
	*txn
}

func (j joined) Commit() error { return j.txn.Commit() }
func (j joined) Rollback()     { j.txn.Rollback() }

func TestRows(t *testing.T) {
	rowstest.Run(t, func(t *testing.T) rows.DB { return openDB(t) })
}

func TestModel(t *testing.T) {
	rowstest.Model(t, 3, func(t *testing.T) rows.DB { return openDB(t) })
}

// TestStore also shows that a database works in bubbles of testing/synctest.
func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) driver.Store {
		return rows.New(openDB(t), rows.Options{MaxPayload: 2 << 20, Poll: 10 * time.Second})
	})
}
