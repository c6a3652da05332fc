package rows_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/store/internal/rows/rowstest"
	"github.com/fairq/fairq/task"
)

// A process that only looks at a queue writes nothing: tasks expire when a process opens the queue
// to work on it, and that process calls OnExpire. A looking process does not keep others from
// opening the queue with other options.
func TestLookingChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := rowstest.NewDB(time.Now)
		in := func(db *rowstest.DB) *rows.Store { return rows.New(db, rows.Options{MaxPayload: 100}) }
		var expired []string
		o := task.Options[string]{
			Capacity: 10, OnExpire: func(t *task.Task[string]) { expired = append(expired, t.Payload) },
		}
		q := openQueue(t, in(db), o)
		for name, options := range map[string]task.PutOptions{
			"a1": {TTL: time.Second}, "b1": {Delay: time.Second}, "c1": {TTL: time.Second, UniqueKey: "c"},
		} {
			_, err := q.Put(t.Context(), name[:1], name, options)
			require.NoError(t, err)
		}
		require.NoError(t, q.Close(t.Context()))
		time.Sleep(time.Minute)

		witness := db.Reopen()
		looker, err := task.Open(t.Context(), in(db.Reopen()), "q", &task.Options[string]{AsIs: true})
		require.NoError(t, err)
		for range 3 {
			time.Sleep(time.Hour)
			stats, err := looker.Stats(t.Context())
			require.NoError(t, err)
			require.Equal(t, 2, stats.Ready)
			require.Equal(t, 1, stats.Delayed)
			_, err = looker.Upcoming(t.Context(), 10)
			require.NoError(t, err)
			_, err = looker.List(t.Context(), task.ListOptions{})
			require.NoError(t, err)
			found, err := looker.Find(t.Context(), "c")
			require.NoError(t, err)
			require.Equal(t, "c1", found.Payload)
		}
		changed, err := witness.Changed(t.Context())
		require.NoError(t, err)
		require.False(t, changed)

		o.Capacity, o.MaxInFlightPerKey = 20, 1
		q = openQueue(t, in(db), o)
		synctest.Wait()
		require.ElementsMatch(t, []string{"a1", "c1"}, expired)
		q.order("b1")
		stats, err := looker.Stats(t.Context())
		require.NoError(t, err)
		require.Equal(t, 20, stats.Capacity)
		require.NoError(t, looker.Close(t.Context()))
	})
}
