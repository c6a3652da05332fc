package postgres

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/task"
)

// batch is how many tasks settleAll takes at a time.
const batch = 10

// countBlocks returns the number of blocks of tables and indexes of tasks that the server has read
// in this transaction, from a disk or from memory.
const countBlocks = "SELECT sum(pg_stat_get_xact_blocks_fetched(oid))::bigint " +
	"FROM pg_class, pg_stat_force_next_flush() WHERE relname LIKE '%tasks%'"

// settleAll takes tasks in several processes and deletes them like acks. It returns the number of
// blocks that the server has read.
func settleAll(t *testing.T, dbs []testDB, queue uint64, batches int) (blocks int64) {
	t.Helper()
	for i := range batches {
		err := in(dbs[i%len(dbs)].database, queue, rows.Plan{
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
				require.NoError(t, v.Save())
				return v.View.(*view).tx.query("count", countBlocks, nil, func(r pgx.Rows) error {
					var n int64
					r.Next()
					err := r.Scan(&n)
					blocks += n
					return err
				})
			})
		require.NoError(t, err)
	}
	return blocks
}

// A long transaction keeps all rows deleted since its begin from being cleaned up.
func TestOldSnapshotDoesNotSlowDownTakes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	db := openTest(t, atMarks)
	q := makeQueue(t, db.database)
	const batches, many = 100, 30
	for i := range uint64(many + 2) {
		put(t, db.database, q, 1+i*batch*batches, batch*batches)
	}
	old, err := db.pool.BeginTx(context.Background(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	defer func() { require.NoError(t, old.Rollback(context.Background())) }()
	_, err = old.Exec(context.Background(), db.text("SELECT FROM fairq.tasks LIMIT 1"))
	require.NoError(t, err)

	dbs := []testDB{db, db.again(t)}
	settleAll(t, dbs, q, batches/10) // the statements are prepared
	first := settleAll(t, dbs, q, batches)
	for range many - 1 {
		settleAll(t, dbs, q, batches)
	}
	last := settleAll(t, dbs, q, batches)
	t.Logf("%d tasks need %d blocks at first, %d after %d", batch*batches, first, last,
		batch*batches*many)
	require.Less(t, last, 2*first)
}

// atMarks makes every search slow.
func atMarks(c *config) { c.slow, c.markStep = 1, 1 }

// A process finds what another one hands back, before the tasks that it has taken last.
func TestHandedBackBeforeTheMark(t *testing.T) {
	type entry = task.Entry[string]
	for name, entries := range map[string][]entry{
		"another priority": {
			{Key: "k", Payload: "x"},
			{Key: "k", Payload: "y"},
			{Key: "z", Payload: "z", Options: task.PutOptions{Priority: 1}},
		},
		"the same round": {
			{Key: "x", Payload: "x"},
			{Key: "y", Payload: "y"},
			{Key: "z", Payload: "z"},
			{Key: "w", Payload: "w"},
		},
	} {
		db := openTest(t, atMarks)
		open := func(db testDB) *task.Queue[string] {
			q, err := task.Open[string](t.Context(), newTestStore(db), name, nil)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, q.Close(context.Background())) })
			return q
		}
		a, b := open(db), open(db.again(t))
		take := func(q *task.Queue[string], want string) *task.Task[string] {
			t.Helper()
			one, err := q.Take(t.Context())
			require.NoError(t, err)
			require.Equal(t, want, one.Payload, name)
			return one
		}
		for range 3 { // first the process finds out that searches are slow
			_, err := a.PutBatch(t.Context(), entries)
			require.NoError(t, err)
			x := take(b, "x")
			y := take(a, "y")
			require.NoError(t, x.Return(t.Context()))
			for _, one := range []*task.Task[string]{take(a, "x"), y, take(a, "z")} {
				require.NoError(t, one.Ack(t.Context()))
			}
			if len(entries) > 3 {
				require.NoError(t, take(a, "w").Ack(t.Context()))
			}
		}
	}
}

// A process finds tasks that come before its last ones: its own and those of others, of each kind,
// and of transactions that end late.
func TestTasksBeforeTheMark(t *testing.T) {
	db := openTest(t, atMarks)
	other := db.again(t).database
	q := makeQueue(t, db.database)
	put(t, db.database, q, 10, 20)
	for n := range uint64(5) {
		require.Equal(t, []uint64{10 + 2*n, 11 + 2*n}, take(t, db.database, q, 2))
	}
	for _, by := range []*database{db.database, other} {
		put(t, by, q, 3, 2)
		require.Equal(t, []uint64{3}, take(t, db.database, q, 1))
		require.Equal(t, []uint64{4}, take(t, other, q, 1))
	}
	putting, err := other.Begin(t.Context())
	require.NoError(t, err)
	v, err := enter(putting, q, &rows.Plan{})
	require.NoError(t, err)
	require.NoError(t, insertSome(v, 21, 1))
	require.Equal(t, []uint64{20, 21, 22, 23}, take(t, db.database, q, 4))
	require.NoError(t, putting.Commit())
	require.Equal(t, []uint64{21}, take(t, db.database, q, 1))
	user, err := db.pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = user.Exec(t.Context(), db.text("SELECT FROM fairq.tasks WHERE round = 24 FOR UPDATE"))
	require.NoError(t, err)
	for round := range uint64(3) {
		require.Equal(t, []uint64{25 + round}, take(t, db.database, q, 1))
	}
	require.NoError(t, user.Rollback(t.Context()))
	require.Equal(t, []uint64{24, 28, 29}, take(t, db.database, q, 10))
}

// A process finds turns that come before its last ones, of all kinds or of some.
func TestTurnsBeforeTheMark(t *testing.T) {
	t.Parallel()
	for _, kinds := range [][]string{nil, {"b", "a", "b", ""}} {
		db := openTest(t, atMarks)
		other := db.again(t).database
		q := makeQueue(t, db.database)
		add := func(db *database, kind string, priority int, round uint64) {
			require.NoError(t, in(db, q, rows.Plan{}, func(v rows.Calls) error {
				line := rows.Line{Key: fmt.Sprint("key", round), Priority: priority}
				return v.Turns().Put(&rows.Turn{
					Line: line, Kind: kind, Round: round, Takeable: true, Leads: true,
				})
			}))
		}
		first := rows.TurnRange(rows.Filter{MaxPriority: driver.MaxPriority, Kinds: kinds}, 1)
		takes := func(rounds ...uint64) {
			for _, round := range rounds {
				repeat(t, db.database, q, first, func(v rows.Calls) error {
					found, err := v.Turns().Scan(first)
					require.NoError(t, err)
					require.Len(t, found, 1)
					require.Equal(t, round, found[0].Round)
					of := v.Head().Rounds
					of[found[0].Priority] = max(round, of[found[0].Priority])
					return cmp.Or(v.Turns().Delete(found[0]), v.Save())
				})
			}
		}
		for _, kind := range []string{"a", "b"} {
			for i := range 3 {
				add(db.database, kind, i%2, uint64(40+i))
			}
		}
		takes(40, 40, 42)
		add(db.database, "a", 0, 1)
		add(other, "b", 0, 2)
		if kinds != nil {
			add(other, "c", 0, 1)
		}
		takes(1, 2, 42, 41, 41)
	}
}

// A search of kinds locks the keys of the turns that it returns, and no others, and passes over
// any number of locked keys.
func TestTurnsOfFreeKeys(t *testing.T) {
	t.Parallel()
	db := openTest(t, func(c *config) { c.slow = time.Hour })
	q := makeQueue(t, db.database)
	const n = 3 * someExtra
	require.NoError(t, in(db.database, q, rows.Plan{}, func(v rows.Calls) (err error) {
		for i := range n {
			err = cmp.Or(err, v.Turns().Put(&rows.Turn{
				Line: rows.Line{Key: fmt.Sprint("key", i)}, Kind: fmt.Sprint(i % 2), Round: uint64(i),
				Takeable: true,
			}))
		}
		return err
	}))
	var takes func(round, limit int)
	takes = func(round, limit int) {
		r := rows.TurnRange(rows.Filter{Kinds: []string{"0", "1"}}, limit)
		require.NoError(t, in(db.database, q,
			rows.Plan{LocksKeys: true, Ranges: []rows.Range{r}}, func(v rows.Calls) error {
				found, err := v.Turns().Scan(r)
				require.Len(t, found, min(limit, n-round))
				for i, turn := range found {
					require.EqualValues(t, round+i, turn.Round)
				}
				if len(found) > 0 {
					takes(round+len(found), 1)
				}
				return err
			}))
	}
	takes(0, n-3)
}

// Locked tasks are skipped, and a row is checked again after a wait for its lock.
func TestTakersDoNotWait(t *testing.T) {
	t.Parallel()
	for _, change := range []func(*config){atMarks, func(*config) {}} {
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
