package postgres

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/internal/pgtest"
	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/task/driver"
)

// BenchmarkView puts, takes and deletes batches of tasks, each in a transaction, on a server with
// Postgres's own settings: a commit is on the disk when it returns. ns/op is for a batch through
// all three.
func BenchmarkView(b *testing.B) {
	server := pgtest.Own(b, "max_wal_size=4GB")
	for _, backlog := range []int{0, 1_000_000} {
		db := openTest(b, func(c *config) { c.url = server.URL("postgres") })
		q := makeQueue(b, db.database)
		if backlog > 0 {
			fillQueue(b, db.database, q, backlog)
			_, err := db.pool.Exec(b.Context(), db.text("VACUUM ANALYZE fairq.tasks"))
			require.NoError(b, err)
		}
		for _, n := range []int{1, 16, 100} {
			b.Run(fmt.Sprintf("backlog=%d/batch=%d", backlog, n), func(b *testing.B) {
				for range b.N {
					benchBatch(b, db.database, q, n)
				}
				b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "tasks/s")
			})
		}
	}
}

func benchBatch(b *testing.B, db *database, q uint64, n int) {
	b.Helper()
	plan := rows.Plan{Numbers: n, Counts: true, LastRounds: []rows.Line{{Key: "key1"}}}
	require.NoError(b, in(db, q, plan, func(v rows.Calls) error {
		if _, _, err := v.LastRound(plan.LastRounds[0], v.Head().Rounds[0]); err != nil {
			return err
		}
		if _, err := v.Counts(); err != nil {
			return err
		}
		return insertSome(v, 1, n)
	}))
	ids := make([]uint64, 0, n)
	plan = rows.Plan{Numbers: n, Ranges: []rows.Range{rows.ReadyRange(everything, n)}}
	require.NoError(b, in(db, q, plan, func(v rows.Calls) error {
		list, err := v.Ready(everything, n)
		if err != nil {
			return err
		}
		for _, r := range list {
			ids = append(ids, r.ID)
			if err := takeRow(v, r); err != nil {
				return err
			}
		}
		v.Head().Rounds[0]++
		return v.Save()
	}))
	require.NoError(b, in(db, q, rows.Plan{Ranges: []rows.Range{rows.RowRange(false, rows.ForUpdate, ids...)}}, func(v rows.Calls) error {
		for _, id := range ids {
			r, err := v.Get(id, false)
			if err != nil {
				return err
			}
			require.Equal(b, driver.Taken, r.State)
			if err := v.Delete(r); err != nil {
				return err
			}
		}
		return nil
	}))
}
