package rows_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/store/internal/rows/rowstest"
	"github.com/fairq/fairq/task"
)

// countedKeys returns how many tasks keys have.
func countedKeys(t *testing.T, db *rowstest.DB) map[string]int {
	tx, err := db.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback()
	row, err := tx.Queue("q", nil)
	require.NoError(t, err)
	v, err := tx.Enter(row.ID, &rows.Plan{Exclusive: true})
	require.NoError(t, err)
	found, err := v.Keys().Scan(rows.KeyRange([]string{"a", "b", "c"}))
	require.NoError(t, err)
	all := map[string]int{}
	for _, k := range found {
		all[k.Key] = k.Tasks[0]
	}
	return all
}

// A task that becomes ready alone makes the queue forget the accounts of its priority.
func TestLoneTaskForgetsAccounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := rowstest.NewDB(time.Now)
		q := openQueue(t, open(db), task.Options[string]{Quantum: 1})
		for i := range 20 {
			require.NoError(t, second(q.Put(t.Context(), fmt.Sprint(i), "", task.PutOptions{Cost: 1000})))
		}
		served := func() int {
			tx, err := db.Begin(t.Context())
			require.NoError(t, err)
			defer tx.Rollback()
			row, err := tx.Queue("q", nil)
			require.NoError(t, err)
			v, err := tx.Enter(row.ID, &rows.Plan{Exclusive: true})
			require.NoError(t, err)
			all, err := v.Served().Scan(rows.Range{Index: rows.ServedLine})
			require.NoError(t, err)
			return len(all)
		}
		for range 20 {
			one, err := q.Take(t.Context())
			require.NoError(t, err)
			require.NoError(t, one.Ack(t.Context()))
		}
		require.Positive(t, served())
		require.NoError(t, second(q.Put(t.Context(), "lone", "", task.PutOptions{})))
		time.Sleep(time.Minute)
		require.Zero(t, served())
	})
}

// A queue counts the tasks of its keys from the time that a key may be over its share until the
// queue is half as full.
func TestCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := rowstest.NewDB(time.Now)
		q := openQueue(t, open(db), task.Options[string]{
			Capacity: 8, WhenFull: fairq.RejectOverShare,
			Weight: func(key string) int { return map[string]int{"a": 2}[key] + 1 },
		})
		counted := func() map[string]int { return countedKeys(t, db) }
		q.put("a1 b1 a2 b2")
		require.Empty(t, counted())
		q.put("b3")
		require.Equal(t, map[string]int{"a": 2, "b": 3}, counted())
		require.NoError(t, q.take("a1").Ack(t.Context()))
		require.NoError(t, q.take("b1").Ack(t.Context()))
		q.put("c1")
		require.Equal(t, map[string]int{"a": 1, "b": 2, "c": 1}, counted())
		for _, name := range []string{"a2", "b2", "c1"} {
			require.NoError(t, q.take(name).Ack(t.Context()))
		}
		q.put("c2")
		require.Empty(t, counted())
	})
}

// Keys that are counted anyway stay so when the queue is not so full any more.
func TestCrowdCountedAnyway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := rowstest.NewDB(time.Now)
		q := openQueue(t, open(db), task.Options[string]{
			Capacity: 8, KeyCapacity: 7, WhenFull: fairq.RejectOverShare, Weight: func(string) int {
				return 3
			},
		})
		q.put("a1 b1 a2 b2 a3")
		q.takeAll(4)
		q.put("c1")
		require.Equal(t, map[string]int{"a": 1, "c": 1}, countedKeys(t, db))
	})
}
