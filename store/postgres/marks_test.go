package postgres

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/task/driver"
)

// batch is how many tasks settleAll takes at a time.
const batch = 10

// settleAll takes tasks and deletes them like acks, and returns how long that took.
func settleAll(t *testing.T, db *database, queue uint64, batches int) time.Duration {
	t.Helper()
	start := time.Now()
	for range batches {
		err := in(db, queue, rows.Plan{
			Numbers: batch,
			Ranges:  []rows.Range{rows.ReadyRange(everything, batch)}, Counts: true,
		},
			func(v rows.Calls) error {
				list, err := v.Ready(everything, batch)
				require.NoError(t, err)
				require.Len(t, list, batch)
				for _, r := range list {
					v.Head().Rounds[0] = r.Round
					require.NoError(t, takeRow(v, r))
					require.NoError(t, v.Delete(r))
				}
				_, err = v.Counts()
				require.NoError(t, err)
				return v.Save()
			})
		require.NoError(t, err)
	}
	return time.Since(start)
}

// A long transaction keeps all rows deleted since its begin from being cleaned up.
func TestOldSnapshotDoesNotSlowDownTakes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	db := openTest(t)
	q := makeQueue(t, db.database)
	const batches, many = 100, 30
	for i := range uint64(many + 4) {
		put(t, db.database, q, 1+i*batch*batches, batch*batches)
	}
	old, err := db.pool.BeginTx(context.Background(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	defer func() { require.NoError(t, old.Rollback(context.Background())) }()
	_, err = old.Exec(context.Background(), db.text("SELECT FROM fairq.tasks LIMIT 1"))
	require.NoError(t, err)

	settleAll(t, db.database, q, batches/10) // the statements are prepared
	first := settleAll(t, db.database, q, batches)
	for range many - 1 {
		settleAll(t, db.database, q, batches)
	}
	last := settleAll(t, db.database, q, batches)
	for range 2 { // other work of the machine may have slowed one of them
		last = min(last, settleAll(t, db.database, q, batches))
	}
	t.Logf("%d tasks in %v at first, %v after %d", batch*batches, first, last, batch*batches*many)
	require.Less(t, last, 3*first+300*time.Millisecond)
}

// alwaysSlow makes searches use marks from the start.
func alwaysSlow(c *config) { c.slow = -time.Hour }

func TestTasksBeforeTheMark(t *testing.T) {
	db := openTest(t, alwaysSlow)
	other := openTest(t).database // without notifications
	other.schema = db.schema
	q := makeQueue(t, db.database)
	put(t, db.database, q, 10, 20)
	require.Equal(t, []uint64{10, 11}, take(t, db.database, q, 2))
	require.Equal(t, []uint64{12, 13}, take(t, db.database, q, 2))

	// A search finds a task of this process immediately.
	put(t, db.database, q, 3, 1)
	require.Equal(t, []uint64{3}, take(t, db.database, q, 1))
	require.Equal(t, []uint64{14}, take(t, db.database, q, 1))
	require.Equal(t, []uint64{15}, take(t, db.database, q, 1))

	// A search finds a task of another process within a second.
	put(t, other, q, 4, 1)
	start := time.Now()
	rounds := take(t, db.database, q, 1)
	for n := 1; rounds[0] != 4; n++ {
		require.Less(t, time.Since(start), 30*time.Second)
		require.Less(t, n, 10, "if it found nothing else it would look everywhere")
		time.Sleep(300 * time.Millisecond)
		rounds = take(t, db.database, q, 1)
		require.Len(t, rounds, 1)
	}

	// It finds it immediately if there is no other task. Another kind has a mark of its own.
	for len(take(t, db.database, q, 5)) > 0 {
	}
	put(t, other, q, 5, 1)
	require.Equal(t, []uint64{5}, take(t, db.database, q, 1))
	require.Empty(t, take(t, db.database, q, 1))
	f := rows.Filter{MaxPriority: driver.MaxPriority, Kinds: []string{"b", "a", "b", ""}}
	add := func(db *database, r rows.Row) {
		require.NoError(t, in(db, q, rows.Plan{}, func(v rows.Calls) (err error) {
			r.State, r.Band = driver.Ready, 1+r.Priority
			if r.ID, err = v.Number(); err != nil {
				return err
			}
			return v.Put(&r)
		}))
	}
	for _, kind := range []string{"a", "b"} {
		for i := range 3 {
			add(db.database, rows.Row{Kind: kind, Priority: i % 2, Round: uint64(20 + i)})
		}
	}
	takeOne := func() (found rows.Row) {
		require.NoError(t, in(db.database, q,
			rows.Plan{Numbers: 1, Ranges: []rows.Range{rows.ReadyRange(f, 1)}}, func(v rows.Calls) error {
				list, err := v.Ready(f, 1)
				if err != nil || len(list) == 0 {
					return err
				}
				found = *list[0]
				return takeRow(v, list[0])
			}))
		return found
	}
	require.EqualValues(t, 20, takeOne().Round)
	require.EqualValues(t, 20, takeOne().Round)
	require.EqualValues(t, 22, takeOne().Round)
	add(db.database, rows.Row{Kind: "a", Round: 1})
	add(other, rows.Row{Kind: "c", Round: 1})
	require.EqualValues(t, 1, takeOne().Round)
	require.EqualValues(t, 22, takeOne().Round)
	require.Equal(t, 1, takeOne().Priority)
	require.Equal(t, 1, takeOne().Priority)
	require.Zero(t, takeOne().Round)
}

// Locked tasks are skipped, and a row is checked again after a wait for its lock.
func TestTakersDoNotWait(t *testing.T) {
	t.Parallel()
	for _, change := range []func(*config){alwaysSlow, func(*config) {}} {
		db := openTest(t, change)
		q := makeQueue(t, db.database)
		put(t, db.database, q, 1, 1000)
		var mu sync.Mutex
		seen := map[uint64]int{}
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() {
				for range 100 {
					rounds := take(t, db.database, q, 2)
					mu.Lock()
					for _, r := range rounds {
						seen[r]++
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		for len(seen) < 1000 {
			rounds := take(t, db.database, q, 10)
			require.NotEmpty(t, rounds)
			for _, r := range rounds {
				seen[r]++
			}
		}
		for round, n := range seen {
			require.Equal(t, 1, n, round)
		}
		require.NoError(t, in(db.database, q, rows.Plan{}, func(v rows.Calls) error {
			n, err := v.Counts()
			require.Equal(t, byState{1000, 0, 0, 1000, 0, 0}, n)
			return err
		}))
	}
}
