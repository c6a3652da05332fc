package rowstest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/store/internal/rows/rowstest"
)

// put puts a row into the queue q, and returns the first error.
func put(db *rowstest.DB) error {
	tx, err := db.Begin(context.Background())
	if err != nil {
		return err
	}
	defer tx.Rollback()
	q, err := tx.Queue("q", []byte("{}"))
	if err != nil {
		return err
	}
	v, err := tx.Enter(q.ID, &rows.Plan{})
	if err != nil {
		return err
	}
	n, err := v.Number()
	if err != nil {
		return err
	}
	if err := v.Tasks().Put(&rows.Row{ID: n, State: driver.Ready}); err != nil {
		return err
	}
	return tx.Commit()
}

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

func tasks(t *testing.T, db *rowstest.DB) int {
	tx, v := open(t, db, true)
	n, err := v.Counts()
	require.NoError(t, err)
	tx.Rollback()
	return n[0]
}

// Each call of a transaction can fail. Then nothing has happened.
func TestFail(t *testing.T) {
	db, failure := rowstest.NewDB(time.Now), errors.New("as told")
	for _, op := range []string{"Begin", "Queue", "Enter", "Number", "Tasks.Put", "Commit"} {
		db.Fail(func(called string) error {
			if called == op {
				return failure
			}
			return nil
		})
		require.ErrorIs(t, put(db), failure)
		db.Fail(nil)
		require.Zero(t, tasks(t, db), "after a failed %s", op)
	}
	require.NoError(t, put(db))
	require.Equal(t, 1, tasks(t, db))
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
	tx.Rollback()
	require.Zero(t, tasks(t, db))
}

func TestKill(t *testing.T) {
	db := rowstest.NewDB(time.Now)
	require.NoError(t, put(db))
	other := db.Reopen()
	tx, v := open(t, db, true)
	n, err := v.Number()
	require.NoError(t, err)
	require.NoError(t, v.Put(&rows.Row{ID: n, State: driver.Ready}))
	db.Kill()
	_, _, err = v.CountKeys("", 1)
	require.ErrorIs(t, err, rowstest.ErrKilled)
	require.ErrorIs(t, tx.Commit(), rowstest.ErrKilled)
	tx.Rollback()
	require.ErrorIs(t, put(db), rowstest.ErrKilled)
	_, err = db.Changed(context.Background())
	require.ErrorIs(t, err, rowstest.ErrKilled)
	require.Equal(t, 1, tasks(t, other))
}

// While there is a transaction, another one waits for it, until its context is over.
func TestTurns(t *testing.T) {
	db := rowstest.NewDB(time.Now)
	tx, _ := open(t, db, true)
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	_, err := db.Reopen().Begin(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, tx.Commit())
	require.NoError(t, put(db))
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
	require.NoError(t, put(db))
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

// What a part of a caller's transaction has done is undone if it is rolled back, and happens when
// the transaction is committed.
func TestJoin(t *testing.T) {
	db := rowstest.NewDB(time.Now)
	require.NoError(t, put(db))
	ctx, whole, err := db.Join(context.Background())
	require.NoError(t, err)
	for i := range 4 {
		tx, err := db.Joined(ctx)
		require.NoError(t, err)
		v, err := tx.Enter(1, &rows.Plan{})
		require.NoError(t, err)
		n, err := v.Number()
		require.NoError(t, err)
		require.NoError(t, v.Tasks().Put(&rows.Row{ID: n, State: driver.Ready}))
		all, err := v.Counts()
		require.NoError(t, err)
		require.Equal(t, 2+i/2, all[0])
		if i%2 == 0 {
			tx.Rollback()
		} else {
			require.NoError(t, tx.Commit())
		}
	}
	require.NoError(t, whole.Commit())
	require.Equal(t, 3, tasks(t, db))
	changed, err := db.Changed(context.Background())
	require.NoError(t, err)
	require.True(t, changed)
}
