package mvcc_test

import (
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/internal/storetest"
	"github.com/fairq/fairq/store/internal/kv"
	"github.com/fairq/fairq/store/internal/kv/mvcc"
	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/store/internal/rows/rowstest"
	"github.com/fairq/fairq/task"
)

// TestMain spends less time on memory. It collects garbage less often, and does not profile
// allocations, because the recursion into trees makes very many different call stacks.
func TestMain(m *testing.M) {
	runtime.MemProfileRate = 0
	debug.SetGCPercent(400)
	m.Run()
}

// handle is a database as one process has it open.
type handle struct {
	*kv.DB
	client *mvcc.Client
}

// ReportsChanges implements an interface of rowstest.
func (handle) ReportsChanges() bool { return true }

// openDB opens a database as another process. Each Take gets the very first tasks.
func openDB(t *testing.T, db *mvcc.DB) handle {
	client := db.Client()
	h, err := kv.Open(t.Context(), "mvcc", client, kv.Options{Strict: true, MarkStep: 1})
	require.NoError(t, err)
	return handle{h, client}
}

// Again is Again of the DB without a pause, because time would pass in it.
func (h handle) Again(err error) (time.Duration, bool) {
	_, again := h.DB.Again(err)
	return 0, again
}

// Faults implements an interface of rowstest. No two commits in a row fail, because the rules
// pause after two failures.
func (h handle) Faults(seed uint64) { h.client.Fault = faults(seed, 1, mvcc.Lost) }

// Reopen implements an interface of rowstest.
func (h handle) Reopen(t *testing.T) rows.DB { return openDB(t, h.client.DB) }

// faults returns a function that gives one commit in ten a random fault from Conflict to last, but
// no more than maxInRow commits in a row.
func faults(seed uint64, maxInRow int, last mvcc.Fault) func() mvcc.Fault {
	var mu sync.Mutex
	rnd, failed := rand.New(rand.NewPCG(seed, 0)), 0
	return func() mvcc.Fault {
		mu.Lock()
		defer mu.Unlock()
		if failed == maxInRow || rnd.IntN(10) > 0 {
			failed = 0
			return mvcc.None
		}
		failed++
		return mvcc.Fault(1 + rnd.IntN(int(last)))
	}
}

// fullOnly skips a test with -short, with which CI looks for races. "make nightly" runs it.
func fullOnly(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes many seconds with the race detector")
	}
}

func TestRows(t *testing.T) {
	rowstest.Run(t, func(t *testing.T) rows.DB {
		return openDB(t, &mvcc.DB{MaxValue: 4 << 20, Patience: time.Minute})
	})
}

func TestModel(t *testing.T) {
	seeds := 6
	if testing.Short() {
		seeds = 3
	}
	rowstest.Model(t, seeds, func(t *testing.T) rows.DB {
		return openDB(t, &mvcc.DB{MaxValue: 4 << 20})
	})
}

// store is a store as one process has it open.
type store struct {
	*rows.Store
	handle
}

func newStore(h handle) *store {
	return &store{rows.New(h, rows.Options{MaxPayload: 2 << 20, Poll: 10 * time.Second}), h}
}

func (s *store) Reopen(t *testing.T) task.Store { return newStore(openDB(t, s.client.DB)) }
func (s *store) Kill(*testing.T)                { s.client.Kill() }

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) task.Store {
		return newStore(openDB(t, &mvcc.DB{MaxValue: 4 << 20}))
	})
}

// TestUnknown runs the tests of TestStore while one commit in ten fails, or has an unknown
// outcome.
func TestUnknown(t *testing.T) {
	fullOnly(t)
	storetest.Run(t, func(t *testing.T) task.Store {
		h := openDB(t, &mvcc.DB{MaxValue: 4 << 20})
		h.Faults(rand.Uint64())
		return newStore(h)
	})
}

func TestCost(t *testing.T) {
	storetest.Backlog(t, func(t *testing.T) task.Store {
		return newStore(openDB(t, &mvcc.DB{MaxValue: 4 << 20, MaxBytes: 1 << 30}))
	})
}
