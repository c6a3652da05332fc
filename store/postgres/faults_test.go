package postgres_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/fairq/fairq/internal/pgtest"
	"github.com/fairq/fairq/store/internal/faulttest"
	"github.com/fairq/fairq/store/postgres"
)

// TestChild is the main function of processes that other tests start.
func TestChild(*testing.T) { faulttest.Child(openFaulty, nil) }

func openFaulty(ctx context.Context, url string) (faulttest.Store, error) {
	o := &postgres.Options{History: time.Hour}
	if strings.HasSuffix(url, seldom) {
		o.Poll = time.Hour
	}
	return postgres.Open(ctx, url, o)
}

// seldom ends the URL of a database in which waiting calls do not poll.
const seldom = " application_name=seldom"

func TestKill(t *testing.T) {
	t.Parallel()
	faulttest.Kill(t, openFaulty, newDatabase(t))
}

func newDatabase(t *testing.T) string { return pgtest.Shared(t).Database(t) }

// Two processes may not see each other's tasks, so each of them gives a key a turn in a round.
func TestFair(t *testing.T) { faulttest.Fair(t, openFaulty, newDatabase(t), 2) }

func TestWake(t *testing.T) { faulttest.Wake(t, openFaulty, newDatabase(t)+seldom) }
