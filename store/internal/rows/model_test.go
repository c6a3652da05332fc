package rows_test

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/store/internal/rows/rowstest"
)

// inMemory is a rowstest.DB with the Reopen that rowstest.Model asks for.
type inMemory struct{ *rowstest.DB }

func (m inMemory) Reopen(*testing.T) rows.DB { return inMemory{m.DB.Reopen()} }

// Faults lets transactions fail at random, but no five in a row, because after ten a call returns
// the error. rowstest.Model asks for it.
func (m inMemory) Faults(seed uint64) {
	var mu sync.Mutex
	rnd, failed := rand.New(rand.NewPCG(seed, 0)), 0
	m.Fail(func(op string) error {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case op == "Begin" || op == "Queue":
		case failed < 4 && rnd.IntN(100) == 0:
			failed++
			return rowstest.ErrAgain
		case op == "Commit":
			failed = 0
		}
		return nil
	})
}

func TestModel(t *testing.T) {
	seeds := 12
	if testing.Short() {
		seeds = 3 // a third of them has transactions of callers, another one faults
	}
	for name, db := range map[string]func() *rowstest.DB{
		"Exclusive": func() *rowstest.DB { return limitedDB(0, false) },
		"Shared":    func() *rowstest.DB { return limitedDB(0, true) },
		"Steps":     func() *rowstest.DB { return limitedDB(90, false) },
	} {
		t.Run(name, func(t *testing.T) {
			rowstest.Model(t, seeds, func(*testing.T) rows.DB { return inMemory{db()} })
		})
	}
}

// Seeds that once failed: turns that were handed back and left to other tasks; a task that was
// taken by its id before the queue had kinds; a key that was paused while its line was served; a
// key whose tasks had turns of one round against their order; a task of a further kind that shared
// a turn after its line had lost it; an empty queue with debts in two priorities.
func TestModelSeeds(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes many seconds with the race detector")
	}
	for _, seed := range []string{"274", "337", "60", "32", "146", "87", "175"} {
		t.Setenv("STORETEST_SEED", seed)
		rowstest.Model(t, 1, func(*testing.T) rows.DB { return inMemory{limitedDB(0, false)} })
	}
}
