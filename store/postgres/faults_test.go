package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/fairq/fairq/internal/pgtest"
	"github.com/fairq/fairq/store/internal/faulttest"
	"github.com/fairq/fairq/store/postgres"
)

// TestChild is what the processes run that other tests start.
func TestChild(*testing.T) { faulttest.Child(openFaulty, roles) }

func openFaulty(ctx context.Context, url string) (faulttest.Store, error) {
	return postgres.Open(ctx, url, &postgres.Options{History: time.Hour})
}

func TestKill(t *testing.T) {
	t.Parallel()
	faulttest.Kill(t, openFaulty, newDatabase(t))
}

func newDatabase(t *testing.T) string { return pgtest.Shared(t).Database(t) }

func TestShare(t *testing.T) { faulttest.Share(t, openFaulty, newDatabase) }

// Two processes may not see each other's tasks, so each of them gives a key a turn in a round.
func TestFair(t *testing.T) { faulttest.Fair(t, openFaulty, newDatabase(t), 2) }

func TestWake(t *testing.T) { faulttest.Wake(t, openFaulty, newDatabase(t), 200*time.Millisecond) }
