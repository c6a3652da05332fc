package bolt

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
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

// A span is scanned both ways, also when the transaction has deleted all of some pages.
func TestScan(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 1))
		e := openDB(t).engine
		key := func(i int) []byte { return fmt.Appendf(nil, "%0*d", 3+997*int(seed%2), i) } // some or many of a page
		var keys [][]byte
		begin := func() *txn {
			x, err := e.begin(t.Context())
			require.NoError(t, err)
			return x
		}
		x := begin()
		require.NoError(t, x.tx.DeleteBucket(bucket))
		x.bucket, _ = x.tx.CreateBucket(bucket)
		for i := range 1 + random.IntN(60) {
			keys = append(keys, key(i))
			require.NoError(t, x.Put(key(i), nil))
		}
		require.NoError(t, x.Commit())
		x = begin()
		t.Cleanup(x.Rollback)
		for len(keys) > 0 && random.IntN(20) > 0 {
			from := random.IntN(len(keys))
			to := min(len(keys), from+1+random.IntN(12))
			for _, k := range keys[from:to] {
				require.NoError(t, x.Delete(k))
			}
			keys = slices.Delete(keys, from, to)
			s := kv.Span{From: key(random.IntN(60)), To: key(random.IntN(61)), Desc: random.IntN(2) == 0}
			var want, got [][]byte
			for _, k := range keys {
				if bytes.Compare(k, s.From) >= 0 && bytes.Compare(k, s.To) < 0 {
					want = append(want, k)
				}
			}
			if s.Desc {
				slices.Reverse(want)
			}
			for e, err := range x.Scan(s) {
				require.NoError(t, err)
				got = append(got, e.Key)
			}
			require.Equal(t, want, got, "seed %d", seed)
		}
		x.Rollback()
	}
}

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
