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

// misuse is a transaction in which a call breaks a rule.
type misuse struct {
	*testing.T
	db *rowstest.DB
	tx rows.Tx
	rows.Calls
}

// task puts a task.
func (m misuse) task() *rows.Row {
	n, err := m.Number()
	require.NoError(m.T, err)
	r := &rows.Row{ID: n, UniqueKey: "x", State: driver.Ready}
	require.NoError(m.T, m.Put(r))
	return r
}

// A call that breaks a rule panics with the rule.
func TestMisuse(t *testing.T) {
	for rule, call := range map[string]func(m misuse){
		"an ID that is no Number": func(m misuse) {
			_ = m.Put(&rows.Row{ID: 1 << 40, State: driver.Ready})
		},
		"an ID is used twice": func(m misuse) {
			_ = m.Put(&rows.Row{ID: m.task().ID, State: driver.Ready})
		},
		"a unique field of Tasks is used twice": func(m misuse) {
			m.task()
			m.task()
		},
		"not as it was read or written last": func(m misuse) {
			r := m.task()
			old := *r
			r.State = driver.Buried
			require.NoError(m.T, m.Put(r))
			_ = m.Put(&old)
		},
		"a row is changed that is gone": func(m misuse) {
			r := m.task()
			require.NoError(m.T, m.Delete(r))
			_ = m.Put(r)
		},
		"a row is changed that was not read, or not in a way that locks it": func(m misuse) {
			m.task()
			require.NoError(m.T, m.tx.Commit())
			_, v := open(m.T, m.db, false)
			list, err := v.List(driver.ListOptions{})
			require.NoError(m.T, err)
			_ = v.Put(list[0])
		},
		"a row that is Takeable but not Ready": func(m misuse) {
			r := m.task()
			r.State, r.Takeable = driver.Taken, true
			_ = m.Put(r)
		},
		"CountKeys after Drop": func(m misuse) {
			_, err := m.Drop()
			require.NoError(m.T, err)
			_, _, _ = m.CountKeys("", 1)
		},
		"CountKeys after the end of the transaction": func(m misuse) {
			require.NoError(m.T, m.tx.Commit())
			_, _, _ = m.CountKeys("", 1)
		},
		"queues are entered in the order of their IDs": func(m misuse) {
			_, _ = m.tx.Enter(1, &rows.Plan{})
		},
	} {
		t.Run(rule, func(t *testing.T) {
			db := rowstest.NewDB(time.Now)
			tx, v := open(t, db, true)
			defer func() { require.Contains(t, recover(), rule) }()
			call(misuse{t, db, tx, v})
		})
	}
}
