package sqlite_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairq/fairq/store/internal/faulttest"
	"github.com/fairq/fairq/store/sqlite"
)

// TestChild is the main function of processes that other tests start.
func TestChild(*testing.T) { faulttest.Child(openFaulty, roles) }

// roles are roles of killed processes, beside the roles of faulttest.
var roles = map[string]func(*faulttest.Self) error{}

// openFaulty opens a database. Its path says whether it is patient.
func openFaulty(ctx context.Context, path string) (faulttest.Store, error) {
	o := &sqlite.Options{Synchronous: sqlite.Normal, History: time.Hour}
	if filepath.Base(path) == impatient {
		o.BusyTimeout = busyTimeout
	}
	return sqlite.Open(ctx, path, o)
}

const (
	impatient   = "impatient.db"
	busyTimeout = 100 * time.Millisecond
)

func TestKill(t *testing.T) {
	t.Parallel()
	faulttest.Kill(t, openFaulty, newFile(t))
}

func newFile(t testing.TB) string { return filepath.Join(t.TempDir(), "tasks.db") }

// No two transactions run at the same time, so each key has one turn in a round, from whichever
// process.
func TestFair(t *testing.T) { faulttest.Fair(t, openFaulty, newFile(t), 1) }

func TestWake(t *testing.T) { faulttest.Wake(t, openFaulty, newFile(t)) }
