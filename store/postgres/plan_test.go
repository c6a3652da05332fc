package postgres

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/internal/life"
	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/store/internal/rows/rowstest"
)

// statements records the statements that are sent.
type statements struct {
	trips
	args map[string][]any
}

func (s *statements) TraceBatchQuery(_ context.Context, _ *pgx.Conn, q pgx.TraceBatchQueryData) {
	if s.args != nil {
		s.args[q.SQL] = q.Args
	}
}

// fillQueue puts many tasks of all sorts into a queue, by SQL.
func fillQueue(tb testing.TB, db *database, queue uint64, n int) {
	tb.Helper()
	_, err := db.pool.Exec(context.Background(), db.text(`
INSERT INTO fairq.tasks (queue, id, created, round, place, since, weight, cost, used, attempts,
	priority, state, role, takeable, gap, returned, untried, in_line,
	key, kind, unique_key, grp, wake, consumer, payload)
SELECT $1, nextval('fairq.numbers'), 0, CASE WHEN i % 4 < 2 THEN i ELSE 0 END, i, i, 1, 1, 0, 0,
	i % 2, CASE i % 8 WHEN 2 THEN 3 WHEN 3 THEN 4 ELSE 1 END, 0,
	i % 4 < 2, false, false, false, i % 4 >= 2,
	convert_to('key' || i % 1000, 'UTF8'),
	CASE i % 16 WHEN 0 THEN '' ELSE convert_to('kind' || i % 5, 'UTF8') END,
	convert_to('unique key' || i, 'UTF8'), convert_to('group' || i % 5000, 'UTF8'),
	CASE i % 8 WHEN 2 THEN i END, CASE i % 8 WHEN 2 THEN i % 100 END,
	repeat('payload', 20)::bytea
FROM generate_series(1, $2::int) i`), int64(queue), n)
	require.NoError(tb, err)
	_, err = db.pool.Exec(context.Background(), db.text(`
INSERT INTO fairq.turns (queue, task, round, used, place, priority, leads, takeable, key, kind)
SELECT $1, 0, i, 0, i, i % 2, i % 3 > 0, i % 4 < 2, convert_to('key' || i, 'UTF8'),
	CASE i % 16 WHEN 0 THEN '' ELSE convert_to('kind' || i % 5, 'UTF8') END
FROM generate_series(1, $2::int) i`), int64(queue), n)
	require.NoError(tb, err)
	_, err = db.pool.Exec(context.Background(),
		db.text("INSERT INTO fairq.counts (queue, ready, delayed, taken, buried, held) "+
			"SELECT $1, count(*) FILTER (WHERE state = 1), 0, count(*) FILTER (WHERE state = 3), "+
			"count(*) FILTER (WHERE state = 4), 0 "+
			"FROM fairq.tasks WHERE queue = $1"), int64(queue))
	require.NoError(tb, err)
}

var (
	noIndex = regexp.MustCompile(`Seq Scan on`)
	scans   = regexp.MustCompile(`Index (?:Only )?Scan.* using (\w+).*\n(?: +Index Cond: (.*))?`)
	removed = regexp.MustCompile(`Rows Removed by (?:Filter|Index Recheck|Join Filter): (\d+)`)
	// List and KeyStats may read more rows than they return. So may Kick of a key or kind. List of
	// a state (see isIndexed) may do so only for a key or kind, or for delayed tasks in the order
	// of time.
	isListed = regexp.MustCompile(`ORDER BY id LIMIT|GROUP BY key|` +
		`kind = \$\d .*ORDER BY since|state = \$\d ORDER BY wake`)
	isIndexed = regexp.MustCompile(`state <> 3 ORDER BY`)
)

// Every statement works through an index, and reads hardly more than it returns. It is planned
// once, perhaps on an empty table, and must use the same indexes then.
func TestPlans(t *testing.T) {
	s := &statements{args: map[string][]any{}}
	db := openTest(t, atMarks, func(c *config) { c.tracer, c.copyFrom = s, 64 })
	exec := func(sql string) {
		_, err := db.pool.Exec(t.Context(), db.text(sql))
		require.NoError(t, err)
	}
	exec("ALTER TABLE fairq.tasks SET (autovacuum_enabled = false)")
	exec("ALTER TABLE fairq.turns SET (autovacuum_enabled = false)")
	q := makeQueue(t, db.database)
	fillQueue(t, db.database, q, 20_000)
	for range 3 {
		require.NotEmpty(t, take(t, db.database, q, 3))
	}
	put(t, db.database, q, 1, 1) // before a mark
	errBack := errors.New("so that it can all be done again")
	for _, locks := range []bool{false, true} {
		require.ErrorIs(t, in(db.database, q, rows.Plan{
			LocksKeys: locks, Numbers: 5, Ranges: []rows.Range{
				rows.RowRange(false, rows.ForUpdate, 1, 2, 3),
				rows.ReadyRange(everything, 5),
				rows.LastRange(5, rows.Line{Key: "key1", Priority: 1}),
			}, Counts: true,
		}, func(v rows.Calls) error {
			callAll(t, v)
			return errBack
		}), errBack)
	}
	require.Greater(t, len(s.args), 50)
	for _, sql := range []rowsSQL{sqlInsert, sqlUpdate, sqlTake} {
		require.NotNil(t, s.args[db.text(sql.one)], sql.one)
		require.NotNil(t, s.args[db.text(sql.many)], sql.many)
	}
	for _, sql := range []string{sqlMarkBack.many, sqlSetMark.one} {
		require.NotNil(t, s.args[db.text(sql)], sql)
	}
	seen := s.args
	s.args = nil

	unknown := plans(t, db.database, seen)
	same := func(when string) {
		for sql, indexes := range plans(t, db.database, seen) {
			if !isListed.MatchString(sql) {
				require.Equal(t, unknown[sql], indexes, "%s: %s", when, sql)
			}
		}
	}
	exec("VACUUM ANALYZE fairq.tasks, fairq.turns")
	same("once the planner knows how many tasks there are")
	exec("DELETE FROM fairq.tasks; DELETE FROM fairq.turns")
	exec("VACUUM ANALYZE fairq.tasks, fairq.turns")
	same("when there are none")
}

// plans returns the indexes of statements, with the number of their conditions.
func plans(t *testing.T, db *database, statements map[string][]any) map[string][]string {
	t.Helper()
	conn, err := db.pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	indexes := map[string][]string{}
	for sql, args := range statements {
		switch words := strings.Fields(sql); words[0] {
		case "SELECT", "INSERT", "UPDATE", "DELETE", "WITH":
		default:
			continue
		}
		tx, err := conn.Begin(t.Context())
		require.NoError(t, err)
		found, err := tx.Query(t.Context(), "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) "+sql, args...)
		require.NoError(t, err)
		lines, err := pgx.CollectRows(found, pgx.RowTo[string])
		require.NoError(t, err, sql)
		require.NoError(t, tx.Rollback(t.Context()))
		plan := strings.Join(lines, "\n") + "\n"
		what := fmt.Sprintf("%s\n%s", sql, plan)
		require.NotRegexp(t, noIndex, plan, what)
		for _, m := range scans.FindAllStringSubmatch(plan, -1) {
			require.NotEmpty(t, m[2], what)
			indexes[sql] = append(indexes[sql],
				fmt.Sprintf("%s with %d conditions", m[1], 1+strings.Count(m[2], " AND ")))
		}
		for _, m := range removed.FindAllStringSubmatch(plan, -1) {
			n, err := strconv.Atoi(m[1])
			require.NoError(t, err)
			if !isListed.MatchString(sql) || isIndexed.MatchString(sql) {
				require.LessOrEqual(t, n, 100, what)
			}
		}
		slices.Sort(indexes[sql])
	}
	return indexes
}

// writeFew inserts, updates and takes tasks, one and then two in a statement.
func writeFew(t *testing.T, v rows.Calls) {
	t.Helper()
	for n := 1; n <= 2; n++ {
		require.NoError(t, insertSome(v, 1<<41, n))
		found, err := v.Ready(everything, 2*n)
		require.NoError(t, err)
		require.Len(t, found, 2*n)
		for i, r := range found {
			if i%2 == 0 {
				require.NoError(t, takeRow(v, r))
				continue
			}
			r.Attempts++
			require.NoError(t, v.Put(r))
		}
	}
}

// callAll calls every method of a View.
func callAll(t *testing.T, v rows.Calls) {
	t.Helper()
	list, err := v.Ready(everything, 3)
	require.NoError(t, err)
	require.Len(t, list, 3)
	for _, r := range list {
		require.NoError(t, takeRow(v, r))
	}
	require.NoError(t, v.Delete(list[2]))
	none, err := v.Turns().Scan(rows.Range{Index: rows.TurnLine, Prefixes: []rows.Tuple{}})
	require.NoError(t, err)
	require.Empty(t, none)
	for _, kinds := range [][]string{nil, {"kind1", "kind2", ""}} {
		turns, err := v.Turns().Scan(
			rows.TurnRange(rows.Filter{MaxPriority: driver.MaxPriority, Kinds: kinds}, 3))
		require.NoError(t, err)
		require.Len(t, turns, 3)
		require.NoError(t, v.Turns().Put(turns[0]))
		require.NoError(t, v.Turns().Delete(turns[1]))
	}
	writeFew(t, v)
	require.NoError(t, insertSome(v, 1<<40, 3))
	v.Head().Rounds[0], v.Head().Rounds[1] = 5, 6
	line := rows.Line{Key: "key6", Priority: 0}
	v.Head().Paused = true
	calls := []func() error{
		v.Save,
		func() error { return v.SetKey(&rows.Key{Key: "k", Tasks: byState{0: 1}}) },
		func() error { return v.SetKey(&rows.Key{Key: "l"}) },
		func() error { return v.Served().Put(&rows.Served{Line: line, Round: 3, Used: 2}) },
		func() error { return v.SweepServed(0, 2, 10) },
		func() error { return v.DeleteConsumer(1 << 50) },
		func() error { return v.SetGroup(&rows.Group{Name: "g", Group: life.Group{Tasks: 1}}) },
		func() error { return v.SetGroup(&rows.Group{Name: "h"}) },
		func() error { return v.SetOutcome(&rows.Outcome{UniqueKey: "a", Until: 100}) },
		func() error { return v.SetOutcome(&rows.Outcome{UniqueKey: "b"}) },
		func() error { return v.SweepOutcomes(5, 10) },
		func() error { return v.History().Put(&rows.Ended{ID: 5, Until: 100}) },
		func() error { return v.SweepHistory(5, 10) },
		func() error { _, err := v.AddConsumer("c", 1, 5); return err },
	}
	for i, call := range calls {
		require.NoError(t, call(), i)
	}
	lines := rows.Range{Index: rows.TaskLine, Limit: 3} // as of a work, see rows
	lines.From = rows.Tuple{"key5", int64(0), int64(0), int64(0)}
	_, err = v.Rows(lines)
	require.NoError(t, err)
	rowstest.ReadAll(t, v)
}
