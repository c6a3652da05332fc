package rowstest

import (
	"context"
	"errors"
	"testing"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/store/internal/rows"
)

// in makes one transaction in the queue q, which is made if it is not there, and commits it.
func in(t *testing.T, db rows.DB, plan *rows.Plan, f func(v rows.Calls)) {
	t.Helper()
	tx, v := enter(t, db, plan)
	f(v)
	ok(t, "Commit", tx.Commit())
}

// enter begins a transaction and enters the queue q.
func enter(t *testing.T, db rows.DB, plan *rows.Plan) (rows.Tx, rows.Calls) {
	t.Helper()
	tx := begin(t, db)
	q, err := tx.Queue("q", []byte("{}"))
	ok(t, "Queue", err)
	v, err := tx.Enter(q.ID, plan)
	ok(t, "Enter", err)
	return tx, rows.Calls{View: v}
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s is %v; it should be %v", what, got, want)
	}
}

// everything passes all tasks that can be taken.
var everything = rows.Filter{MaxPriority: driver.MaxPriority}

// exclusively returns a new Plan that promises nothing.
func exclusively() *rows.Plan { return &rows.Plan{Exclusive: true} }

// insert inserts a row that is Ready, and returns its number.
func insert(t *testing.T, v rows.Calls, r rows.Row) uint64 {
	t.Helper()
	n, err := v.Number()
	ok(t, "Number", err)
	r.ID, r.Place, r.State, r.Weight = n, n, driver.Ready, 1
	ok(t, "Insert", v.Put(&r))
	return n
}

func testAgain(t *testing.T, db rows.DB) {
	for _, err := range []error{
		nil, context.Canceled, context.DeadlineExceeded, errors.New("no"), driver.ErrDropped,
	} {
		if _, again := db.Again(err); again {
			t.Errorf("Again(%v) is true", err)
		}
	}
}
