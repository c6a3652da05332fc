package postgres

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/internal/pgtest"
	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/store/internal/rows/rowstest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var (
	schemas atomic.Int64

	sharedURL  string
	sharedOnce sync.Once
)

// sharedDatabase returns the URL of a database that all tests share.
func sharedDatabase(tb testing.TB) string {
	tb.Helper()
	server := pgtest.Shared(tb)
	sharedOnce.Do(func() { sharedURL = server.URL("postgres") })
	return sharedURL
}

// testDB is a database with a schema of its own.
type testDB struct{ *database }

func openTest(tb testing.TB, change ...func(*config)) testDB {
	tb.Helper()
	n := schemas.Add(1)
	c := config{
		url: sharedDatabase(tb), schema: fmt.Sprintf("test %d", n), maxConns: 8,
		copyFrom: 1 + 63*int(n%2),
	}
	for _, f := range change {
		f(&c)
	}
	db, err := open(context.Background(), c)
	require.NoError(tb, err)
	require.NoError(tb, db.Migrate(context.Background()))
	tb.Cleanup(func() {
		_, _ = db.pool.Exec(context.Background(), "DROP SCHEMA "+db.schema+" CASCADE")
		db.Close()
	})
	return testDB{db}
}

// Reopen returns the database as another process would open it.
func (db testDB) Reopen(t *testing.T) rows.DB { return db.again(t) }

// Tells says that Changed may return true without a change.
func (testDB) ReportsChanges() bool { return true }

func (db testDB) again(tb testing.TB) testDB {
	tb.Helper()
	other, err := open(context.Background(), db.config)
	require.NoError(tb, err)
	tb.Cleanup(other.Close)
	return testDB{other}
}

func TestRows(t *testing.T) {
	rowstest.Run(t, func(t *testing.T) rows.DB { return openTest(t, atMarks) })
}
