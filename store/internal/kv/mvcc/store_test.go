package mvcc_test

import (
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/store/internal/kv"
	"github.com/fairq/fairq/store/internal/kv/mvcc"
	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/store/internal/rows/rowstest"
	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/storetest"
)

// TestMain has less time go to what is no part of the tests: to free memory, and to count in which
// calls it was allocated, of which there are very many where a tree is gone down.
func TestMain(m *testing.M) {
	runtime.MemProfileRate = 0
	debug.SetGCPercent(400)
	m.Run()
}

// handle is what one process has of a database.
type handle struct {
	*kv.DB
	client *mvcc.Client
}

// openDB opens one in which who takes gets the very first tasks.
func openDB(t *testing.T, db *mvcc.DB) handle {
	client := db.Client()
	h, err := kv.Open(t.Context(), "mvcc", client, kv.Options{Taking: kv.Strict, MarkStep: 1})
	require.NoError(t, err)
	return handle{h, client}
}

// Again is that of the DB, but there is no pause, in which time would pass.
func (h handle) Again(err error) (time.Duration, bool) {
	_, again := h.DB.Again(err)
	return 0, again
}

// Faults implements what rowstest looks for. Where two fail in a row there is a pause, too.
func (h handle) Faults(seed uint64) { h.client.Fault = faults(seed, 1, mvcc.Lost) }

// Reopen implements what rowstest looks for.
func (h handle) Reopen(t *testing.T) rows.DB { return openDB(t, h.client.DB) }

// faults returns a function that makes a commit in ten fail in some way, up to the last one, but
// not more than so many in a row.
func faults(seed uint64, most int, last mvcc.Fault) func() mvcc.Fault {
	var mu sync.Mutex
	rnd, failed := rand.New(rand.NewPCG(seed, 0)), 0
	return func() mvcc.Fault {
		mu.Lock()
		defer mu.Unlock()
		if failed == most || rnd.IntN(10) > 0 {
			failed = 0
			return mvcc.None
		}
		failed++
		return mvcc.Fault(1 + rnd.IntN(int(last)))
	}
}

// fullOnly skips a test in short, which is how CI looks for races. "make nightly" runs it.
func fullOnly(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes many seconds with the race detector")
	}
}

func TestRows(t *testing.T) {
	rowstest.Run(t, func(t *testing.T) rows.DB { return openDB(t, &mvcc.DB{MaxValue: 4 << 20, Patience: time.Minute}) })
}

func TestModel(t *testing.T) {
	seeds := 6
	if testing.Short() {
		seeds = 3
	}
	rowstest.Model(t, seeds, func(t *testing.T) rows.DB { return openDB(t, &mvcc.DB{MaxValue: 4 << 20}) })
}

// store is what one process has.
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

// TestUnknown does the same where one commit in ten fails, or is not known to be done.
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
		return newStore(openDB(t, &mvcc.DB{MaxValue: 4 << 20}))
	})
}
