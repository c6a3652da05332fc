package rowstest

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/fairq/fairq/store/internal/rows"
)

const (
	seeds    = 20  // with -short a fifth
	seedCall = 300 // calls of each
	seedEnv  = "ROWSTEST_SEED"
)

// reopener may be implemented by a DB. Reopen returns another handle on the same database, like
// the handle of another process. Both handles can be used.
type reopener interface {
	Reopen(t *testing.T) rows.DB
}

// reporter may be implemented by a DB. If ReportsChanges returns true, the DB calls a function
// when others have committed, and Changed need not report these changes.
type reporter interface {
	ReportsChanges() bool
}

// Run checks that a driver does what the comments of package rows say. open opens an empty
// database.
//
// The test Random makes the same random calls to the driver and to a [DB], and compares what they
// return. If it fails it prints its seed. With that seed in the environment variable
// ROWSTEST_SEED, it makes the same calls again.
func Run(t *testing.T, open func(t *testing.T) rows.DB) {
	t.Run("Random", func(t *testing.T) { random(t, open) })
	for _, c := range []struct {
		name string
		test func(t *testing.T, db rows.DB)
	}{
		{"Many", testMany},
		{"Again", testAgain},
		{"Cancelled", testCancelled},
		{"CancelledLater", testCancelledLater},
		{"Changed", testChanged},
		{"Ended", testEnded},
		{"Locked", testLocked},
		{"LocksKeys", testLocksKeys},
		{"Concurrent", testConcurrent},
		{"Exclusive", testExclusive},
		{"Head", testHead},
		{"Limits", testLimits},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, open(t)) })
	}
}

func random(t *testing.T, open func(t *testing.T) rows.DB) {
	if s := os.Getenv(seedEnv); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", seedEnv, err)
		}
		newPair(t, open(t), seed).run()
		return
	}
	n := seeds
	if testing.Short() {
		n /= 5
	}
	for range n {
		seed := rand.Uint64()
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) { newPair(t, open(t), seed).run() })
		if t.Failed() {
			return
		}
	}
}

// begin begins a transaction that is rolled back at the end of the test, if it has not ended by
// then.
func begin(t *testing.T, db rows.DB) rows.Tx {
	t.Helper()
	tx, err := db.Begin(context.Background())
	ok(t, "Begin", err)
	t.Cleanup(tx.Rollback)
	return tx
}

func ok(t testing.TB, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}
