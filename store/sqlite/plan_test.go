package sqlite

import (
	"database/sql/driver"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/task"
)

// may says which statements may do what costs more than what they return. All others must find their rows by an index, in the
// order in which they return them.
var may = map[statement]string{
	selectTable: "SCAN",        // of the list of all tables, when a database is opened
	keyStats:    "TEMP B-TREE", // to order the keys by numbers that were just counted
	countKeys:   "SCAN",        // of the keys that it has just found, one by one

	// To order those that share a turn, which are few.
	frontedTasks: "TEMP B-TREE FOR LAST TERM",
	nextTask:     "TEMP B-TREE FOR LAST TERM",
}

// explain returns column n of what explain returns for a statement.
func explain(t *testing.T, d *db, how string, s statement, read func(c *cells)) {
	query, err := d.conn.Prepare(how + " " + s.text(d.options.prefix))
	require.NoError(t, err)
	args := make([]driver.NamedValue, maxArgs)
	for i := range args {
		args[i].Ordinal = i + 1
	}
	r, err := query.(driver.StmtQueryContext).QueryContext(t.Context(), args)
	require.NoError(t, err)
	require.NoError(t, (&cells{}).readAll(r, read))
	require.NoError(t, r.Close())
	require.NoError(t, query.Close())
}

func checkPlans(t *testing.T, d *db) {
	for s := range numStatements {
		text := s.text(d.options.prefix)
		require.NotEmpty(t, text, "statement %d", s)
		var plan []string
		explain(t, d, "EXPLAIN QUERY PLAN", s, func(c *cells) { plan = append(plan, c.values[3].(string)) })
		t.Logf("%s\n\t%s", text, strings.Join(plan, "\n\t"))
		for _, step := range plan {
			for _, bad := range []string{"SCAN", "TEMP B-TREE"} {
				if strings.Contains(step, bad) && (may[s] == "" || !strings.Contains(step, may[s])) {
					t.Errorf("%s\n\t%s", text, step)
				}
			}
			if n := strings.Count(step, "(queue=?)"); n > 0 && strings.Contains(step, "fairq_tasks") && s != buriedTasks && s != keyStats && s != countKeys {
				t.Errorf("this goes through all rows of the queue: %s\n\t%s", text, step)
			}
		}
	}
}

func TestPlans(t *testing.T) {
	d := openHandle(t, file(t), options{}).db
	checkPlans(t, d)
}

// TestPlansAnalyzed checks the plans that SQLite makes once somebody has had it collect statistics, over rows that look alike.
func TestPlansAnalyzed(t *testing.T) {
	d := openHandle(t, file(t), options{synchronous: "normal"}).db
	makeQueue(t, d)
	in(t, d, func(v rows.View) {
		for i := range 3000 {
			id, err := v.Number()
			require.NoError(t, err)
			r := &rows.Row{
				ID: id, Key: "k", Priority: i % 2, State: task.Ready, Takeable: i%2 == 0, Round: uint64(i) % 2, Seq: id, Place: id,
				Wake: 5, Counted: true,
			}
			require.NoError(t, v.Insert(r))
		}
	})
	require.NoError(t, d.conn.script("ANALYZE"))
	d = openHandle(t, d.path, options{}).db
	checkPlans(t, d)
}

// TestTakeLeavesKeys shows that to take a row leaves the index by keys alone.
func TestTakeLeavesKeys(t *testing.T) {
	d := openHandle(t, file(t), options{}).db
	opened := func(s statement) map[int64]bool {
		roots := make(map[int64]bool)
		explain(t, d, "EXPLAIN", s, func(c *cells) {
			if c.values[1] == "OpenWrite" {
				roots[c.values[3].(int64)] = true
			}
		})
		return roots
	}
	root := make(map[string]int64)
	r, err := d.conn.Conn.(driver.QueryerContext).QueryContext(t.Context(), "SELECT name, rootpage FROM sqlite_master", nil)
	require.NoError(t, err)
	require.NoError(t, d.session.cells.readAll(r, func(c *cells) { root[c.text()] = c.int() }))
	require.NoError(t, r.Close())

	require.True(t, opened(takeTask)[root["fairq_tasks_ready"]])
	require.True(t, opened(updateTask)[root["fairq_tasks_key"]])
	require.False(t, opened(takeTask)[root["fairq_tasks_key"]])
	require.False(t, opened(takeTask)[root["fairq_tasks_group"]])
}

// TestPreparedOnce shows that SQLite does not make a new plan each time that a statement is run. It does so if the plan may
// depend on the value of a parameter, as for LIMIT ?, and that takes longer than all else. So each is run, with values that
// find nothing, in a part of the time that it takes to prepare it.
func TestPreparedOnce(t *testing.T) {
	d := openHandle(t, file(t), options{}).db
	x, err := d.Begin(t.Context())
	require.NoError(t, err)
	defer x.Rollback()
	args := make([]driver.Value, maxArgs)
	for i := range args {
		args[i] = int64(1_000_000 + i)
	}
	for s := selectMeta; s < numStatements; s++ {
		if strings.HasPrefix(statements[s].sql, "INSERT") { // has no plan
			continue
		}
		prepare := fastest(func() {
			p, err := d.conn.Prepare(s.text(d.options.prefix))
			require.NoError(t, err)
			require.NoError(t, p.Close())
		})
		run := fastest(func() {
			_ = d.session.each(s, func(*cells) {}, args...) // it may be that there is such a row already
			d.session.failed = nil
		})
		require.Less(t, run, prepare*2/3, s.text(d.options.prefix))
	}
}

// fastest returns the least time that f takes.
func fastest(f func()) time.Duration {
	least := time.Hour
	for range 50 {
		start := time.Now()
		f()
		least = min(least, time.Since(start))
	}
	return least
}

// TestArguments shows that there is room for the arguments of each statement.
func TestArguments(t *testing.T) {
	for s := range numStatements {
		require.LessOrEqual(t, strings.Count(statements[s].sql, "?"), maxArgs, fmt.Sprint(statements[s].name))
	}
}
