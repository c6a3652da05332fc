package postgres

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/internal/storetest"
	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/memory"
)

// testStore is a rows.Store over a schema of its own.
type testStore struct {
	*rows.Store
	db *mortal
}

// mortal is a database that can be killed.
type mortal struct {
	testDB
	dead atomic.Bool
}

func (db *mortal) Begin(ctx context.Context) (rows.Tx, error) {
	if db.dead.Load() {
		return nil, errors.New("killed")
	}
	return db.testDB.Begin(ctx)
}

func newTestStore(db testDB) *testStore {
	m := &mortal{testDB: db}
	return &testStore{rows.New(m, rows.Options{MaxPayload: 2 << 20, Poll: 10 * time.Second}), m}
}

// InTx makes it a [storetest.Transactor].
func (s *testStore) InTx(ctx context.Context, f func(context.Context) error) error {
	return (*Store)(nil).InTx(ctx, s.db.pool,
		func(ctx context.Context, _ pgx.Tx) error { return f(ctx) })
}

func (s *testStore) Reopen(t *testing.T) driver.Store { return newTestStore(s.db.again(t)) }
func (s *testStore) Kill(*testing.T)                  { s.db.dead.Store(true) }

// inBubble uses the time of the bubble, and lets no goroutine wait for the network.
func inBubble(c *config) { c.now = time.Now }

// TestStore also shows that a database works in bubbles of testing/synctest: without calls none of
// its goroutines waits for the network.
func TestStore(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes minutes")
	}
	sharedDatabase(t) // so that the server is not part of a bubble
	storetest.Run(t, func(t *testing.T) driver.Store { return newTestStore(openTest(t, inBubble)) })
}

// TestProcesses compares queues that two processes have open, and that search at the marks, with
// queues in memory.
func TestProcesses(t *testing.T) {
	sharedDatabase(t)
	seeds := 12
	if testing.Short() {
		seeds = 2
	}
	memory := func(*testing.T) driver.Store { return new(memory.Store) }
	storetest.Compare(t, seeds, memory, func(t *testing.T, _ uint64) storetest.Subject {
		one := newTestStore(openTest(t, inBubble, atMarks))
		return storetest.Subject{Store: one, Others: []task.Store{one.Reopen(t)}}
	})
}

// forgetful is the database of a process that remembers no queue, as if others worked with it too.
type forgetful struct{ testDB }

func (db forgetful) Begin(ctx context.Context) (rows.Tx, error) {
	db.heads.Clear()
	return db.testDB.Begin(ctx)
}

func TestBacklog(t *testing.T) {
	t.Run("alone", func(t *testing.T) {
		storetest.Backlog(t, func(t *testing.T) driver.Store { return newTestStore(openTest(t)) })
	})
	t.Run("beside others", func(t *testing.T) {
		storetest.Backlog(t, func(t *testing.T) driver.Store {
			return rows.New(forgetful{openTest(t)},
				rows.Options{MaxPayload: 2 << 20, Poll: 10 * time.Second})
		})
	})
}
