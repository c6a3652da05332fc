package rowstest_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/store/internal/rows/rowstest"
)

// open begins a transaction in the queue q.
func open(t *testing.T, db *rowstest.DB, exclusive bool) (rows.Tx, rows.Calls) {
	tx, err := db.Begin(context.Background())
	require.NoError(t, err)
	t.Cleanup(tx.Rollback)
	q, err := tx.Queue("q", []byte("{}"))
	require.NoError(t, err)
	v, err := tx.Enter(q.ID, &rows.Plan{Exclusive: exclusive})
	require.NoError(t, err)
	return tx, rows.Calls{View: v}
}

// After an error all calls fail.
func TestFailedTransaction(t *testing.T) {
	db := rowstest.NewDB(time.Now)
	tx, v := open(t, db, true)
	db.Fail(func(string) error { return rowstest.ErrAgain })
	_, _, err := v.CountKeys("", 1)
	_, again := db.Again(err)
	require.True(t, again)
	db.Fail(nil)
	_, err = v.Times(true)
	require.ErrorIs(t, err, rowstest.ErrAgain)
	require.ErrorIs(t, tx.Commit(), rowstest.ErrAgain)
}

// A call that breaks a rule panics with the rule.
func TestMisuse(t *testing.T) {
	tasks := func(t *testing.T, v rows.Calls) *rows.Row {
		n, err := v.Number()
		require.NoError(t, err)
		r := &rows.Row{ID: n, UniqueKey: "x", State: driver.Ready}
		require.NoError(t, v.Put(r))
		return r
	}
	for name, test := range map[string]struct {
		rule   string
		misuse func(t *testing.T, tx rows.Tx, v rows.Calls)
	}{
		"NoNumber": {"an ID that is no Number", func(_ *testing.T, _ rows.Tx, v rows.Calls) {
			_ = v.Put(&rows.Row{ID: 1 << 40, State: driver.Ready})
		}},
		"SameID": {"an ID is used twice", func(t *testing.T, _ rows.Tx, v rows.Calls) {
			_ = v.Put(&rows.Row{ID: tasks(t, v).ID, State: driver.Ready})
		}},
		"SameUniqueKey": {
			"a unique field of Tasks is used twice",
			func(t *testing.T, _ rows.Tx, v rows.Calls) {
				tasks(t, v)
				tasks(t, v)
			},
		},
		"Stale": {"not as it was read or written last", func(t *testing.T, _ rows.Tx, v rows.Calls) {
			r := tasks(t, v)
			old := *r
			r.State = driver.Buried
			require.NoError(t, v.Put(r))
			_ = v.Put(&old)
		}},
		"Gone": {"a row is changed that is gone", func(t *testing.T, _ rows.Tx, v rows.Calls) {
			r := tasks(t, v)
			require.NoError(t, v.Delete(r))
			_ = v.Put(r)
		}},
		"TakenTakeable": {
			"a row that is Takeable but not Ready",
			func(t *testing.T, _ rows.Tx, v rows.Calls) {
				r := tasks(t, v)
				r.State, r.Takeable = driver.Taken, true
				_ = v.Put(r)
			},
		},
		"AfterDrop": {"CountKeys after Drop", func(t *testing.T, _ rows.Tx, v rows.Calls) {
			_, err := v.Drop()
			require.NoError(t, err)
			_, _, _ = v.CountKeys("", 1)
		}},
		"AfterCommit": {
			"CountKeys after the end of the transaction",
			func(t *testing.T, tx rows.Tx, v rows.Calls) {
				require.NoError(t, tx.Commit())
				_, _, _ = v.CountKeys("", 1)
			},
		},
		"Order": {
			"queues are entered in the order of their IDs",
			func(_ *testing.T, tx rows.Tx, _ rows.Calls) {
				_, _ = tx.Enter(1, &rows.Plan{})
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tx, v := open(t, rowstest.NewDB(time.Now), true)
			defer func() { require.Contains(t, recover(), test.rule) }()
			test.misuse(t, tx, v)
		})
	}
}

// In a View that is not exclusive, only rows that are locked may be changed.
func TestUnlocked(t *testing.T) {
	db := rowstest.NewDB(time.Now)
	tx, v := open(t, db, true)
	n, err := v.Number()
	require.NoError(t, err)
	require.NoError(t, v.Put(&rows.Row{ID: n, State: driver.Ready}))
	require.NoError(t, tx.Commit())
	for _, exclusive := range []bool{true, false} {
		tx, v := open(t, db, exclusive)
		list, err := v.List(driver.ListOptions{})
		require.NoError(t, err)
		if exclusive {
			require.NoError(t, v.Put(list[0]))
		} else {
			require.Panics(t, func() { _ = v.Put(list[0]) })
		}
		tx.Rollback()
	}
}
