package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/internal/storetest"
	"github.com/fairq/fairq/store/internal/rows"
)

// testStore is a rows.Store over a database.
type testStore struct {
	*rows.Store
	db  *mortal
	own *sql.DB // the caller's
}

// mortal is a DB that can be killed.
type mortal struct {
	handle
	dead atomic.Bool
}

func (m *mortal) Begin(ctx context.Context) (rows.Tx, error) {
	if m.dead.Load() {
		return nil, errors.New("killed")
	}
	return m.handle.Begin(ctx)
}

func openStore(t *testing.T, path string) *testStore {
	m := &mortal{handle: openHandle(t, path, options{synchronous: "normal"})}
	own := openCallers(t, path, "deferred").sql
	return &testStore{rows.New(m, rows.Options{MaxPayload: 2 << 20, Poll: 10 * time.Second}), m, own}
}

// InTx makes it a [storetest.Transactor].
func (s *testStore) InTx(ctx context.Context, f func(context.Context) error) error {
	return s.db.inTx(ctx, s.own, func(ctx context.Context, _ *sql.Tx) error { return f(ctx) })
}

func (s *testStore) Reopen(t *testing.T) driver.Store { return openStore(t, s.db.path) }
func (s *testStore) Kill(*testing.T)                  { s.db.dead.Store(true) }

// TestStore also shows that a database works in bubbles of testing/synctest.
func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) driver.Store { return openStore(t, file(t)) })
}

func TestBacklog(t *testing.T) {
	storetest.Backlog(t, func(t *testing.T) driver.Store { return openStore(t, file(t)) })
}
