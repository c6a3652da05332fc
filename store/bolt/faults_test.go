package bolt_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairq/fairq/store/bolt"
	"github.com/fairq/fairq/store/internal/faulttest"
)

// TestChild is what the processes run that other tests start.
func TestChild(*testing.T) { faulttest.Child(openFaulty, roles) }

// roles are what such a process can do besides what faulttest has.
var roles = map[string]func(*faulttest.Self) error{}

func openFaulty(ctx context.Context, path string) (faulttest.Store, error) {
	return bolt.Open(ctx, path, &bolt.Options{History: time.Hour})
}

func newFile(t testing.TB) string { return filepath.Join(t.TempDir(), "tasks.db") }

func TestKill(t *testing.T) {
	t.Parallel()
	faulttest.KillAlone(t, openFaulty, newFile(t))
}
