package sqlite

import (
	sqldriver "database/sql/driver"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/internal/life"
	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/store/internal/rows/rowstest"
)

// may lists the statements that may read more than they return. All others must find their rows by
// an index, in the order in which they return them.
var may = map[*statement]string{
	selectTable: "SCAN",        // the list of all tables, at the open
	keyStats:    "TEMP B-TREE", // orders the keys by fresh counts
	pausedStats: "TEMP B-TREE",
	countKeys:   "SCAN", // the keys that it has just found, one by one
}

// wholeQueue is the plan of a step through an index of all tasks or turns. The indexes of taken
// and buried tasks are short.
var wholeQueue = regexp.MustCompile(`fairq_(tasks|turns)` +
	`(_(ready|kind|line|place|wake|state|group|unique_key))? \(queue=\?\)`)

// runAll runs every statement, so that it is known.
func runAll(t *testing.T, d *db) {
	makeQueue(t, d)
	in(t, d, func(v rows.Calls) {
		rowstest.ReadAll(t, v)
		add(t, v, rows.Row{UniqueKey: "a", Key: "k", Group: "g", Round: 1, Takeable: true})
		r, err := v.Get(add(t, v, rows.Row{}), false)
		require.NoError(t, err)
		v.Head().Paused, v.Head().Rounds[1], v.Head().Settings = true, 5, []byte("other")
		for i, err := range []error{
			v.Put(r), v.Save(), v.SetKey(&rows.Key{Key: "k", Paused: true}), v.SetKey(&rows.Key{Key: "l"}),
			v.Turns().Put(&rows.Turn{Round: 1}), v.Turns().Delete(&rows.Turn{}),
			v.Served().Put(&rows.Served{Round: 1}), v.SweepServed(1, 5, 5),
			v.SetGroup(&rows.Group{Group: life.Group{Tasks: 1}}), v.SetGroup(&rows.Group{}),
			v.SetOutcome(&rows.Outcome{Until: 5}), v.SetOutcome(&rows.Outcome{}), v.SweepOutcomes(5, 5),
			v.DeleteConsumer(5),
			v.History().Put(&rows.Ended{ID: 5}), v.SweepHistory(5, 5),
		} {
			require.NoError(t, err, i)
		}
		r.State = driver.Taken
		require.NoError(t, v.Put(r))
		require.NoError(t, v.Delete(r))
		_, err = v.AddConsumer("c", 1, 1)
		require.NoError(t, err)
	})
	x, err := d.Begin(t.Context())
	require.NoError(t, err)
	v, err := enter(x, &rows.Plan{})
	require.NoError(t, err)
	delete(v.Head().Rounds, 1)
	require.NoError(t, v.Save())
	require.NoError(t, x.(*tx).views[0].flush())
	_, err = v.Drop()
	require.NoError(t, err)
	x.Rollback()
	require.Greater(t, len(d.conn.stmts), 60)
}

// explain returns column n of what explain returns for a statement.
func explain(t *testing.T, d *db, how string, s *statement, read func(c *cells)) {
	query, err := d.conn.Prepare(how + " " + s.text(d.options.prefix))
	require.NoError(t, err)
	args := make([]sqldriver.NamedValue, maxArgs)
	for i := range args {
		args[i].Ordinal = i + 1
	}
	r, err := query.(sqldriver.StmtQueryContext).QueryContext(t.Context(), args)
	require.NoError(t, err)
	require.NoError(t, (&cells{}).readAll(r, read))
	require.NoError(t, r.Close())
	require.NoError(t, query.Close())
}

func checkPlans(t *testing.T, d *db) {
	runAll(t, d)
	for s := range d.conn.stmts {
		text := s.text(d.options.prefix)
		var plan []string
		explain(t, d, "EXPLAIN QUERY PLAN", s,
			func(c *cells) { plan = append(plan, c.values[3].(string)) })
		t.Logf("%s\n\t%s", text, strings.Join(plan, "\n\t"))
		for _, step := range plan {
			for _, bad := range []string{"SCAN", "TEMP B-TREE"} {
				allowed := may[s]
				if strings.Contains(step, bad) && (allowed == "" || !strings.Contains(step, allowed)) {
					t.Errorf("%s\n\t%s", text, step)
				}
			}
			if wholeQueue.MatchString(step) && s != keyStats && s != countKeys {
				t.Errorf("this goes through all rows of the queue: %s\n\t%s", text, step)
			}
		}
	}
}

func TestPlans(t *testing.T) {
	d := openHandle(t, file(t), options{}).db
	checkPlans(t, d)
}

// TestPlansAnalyzed checks the plans that SQLite makes after ANALYZE over similar rows.
func TestPlansAnalyzed(t *testing.T) {
	d := openHandle(t, file(t), options{synchronous: "normal"}).db
	makeQueue(t, d)
	in(t, d, func(v rows.Calls) {
		for i := range 3000 {
			id, err := v.Number()
			require.NoError(t, err)
			r := &rows.Row{
				ID: id, Key: "k", Priority: i % 2, State: driver.Ready, Takeable: i%2 == 0,
				Round: uint64(i) % 2, Place: id,
				Wake: 5,
			}
			require.NoError(t, v.Put(r))
			require.NoError(t, v.Turns().Put(&rows.Turn{
				Line: rows.Line{Key: r.Key, Priority: r.Priority}, Task: id, Round: r.Round, Place: id,
				Leads: true, Takeable: r.Takeable,
			}))
		}
	})
	require.NoError(t, d.conn.script("ANALYZE"))
	d = openHandle(t, d.path, options{}).db
	checkPlans(t, d)
}

// TestTakeLeavesKeys shows that taking a row does not change the index by keys.
func TestTakeLeavesKeys(t *testing.T) {
	d := openHandle(t, file(t), options{}).db
	opened := func(s *statement) map[int64]bool {
		roots := make(map[int64]bool)
		explain(t, d, "EXPLAIN", s, func(c *cells) {
			if c.values[1] == "OpenWrite" {
				roots[c.values[3].(int64)] = true
			}
		})
		return roots
	}
	root := make(map[string]int64)
	r, err := d.conn.Conn.(sqldriver.QueryerContext).QueryContext(t.Context(),
		"SELECT name, rootpage FROM sqlite_master", nil)
	require.NoError(t, err)
	require.NoError(t, d.session.cells.readAll(r, func(c *cells) { root[c.text()] = c.int() }))
	require.NoError(t, r.Close())

	require.True(t, opened(takeTask)[root["fairq_tasks_ready"]])
	require.True(t, opened(updateTask)[root["fairq_tasks_line"]])
	require.False(t, opened(takeTask)[root["fairq_tasks_line"]])
	require.False(t, opened(takeTask)[root["fairq_tasks_group"]])
}

// TestPreparedOnce shows that SQLite does not make a new plan at each run of a statement. It would
// if the plan depended on the value of a parameter, as for LIMIT ?, and that takes longer than
// everything else. SQLite counts the plans that it makes after the first; the driver keeps its
// handle of a statement to itself.
func TestPreparedOnce(t *testing.T) {
	d := openHandle(t, file(t), options{}).db
	runAll(t, d)
	x, err := d.Begin(t.Context())
	require.NoError(t, err)
	defer x.Rollback()
	tls := libc.NewTLS()
	defer tls.Close()
	args := make([]sqldriver.Value, maxArgs)
	plans := func(s *statement) (runs, again int32) {
		for i := range args {
			args[i] = args[i].(int64) + 1_000_000 // finds nothing
		}
		_ = d.session.each(s, func(*cells) {}, args...) // such a row may exist already
		d.session.failed = nil
		handle := uintptr(reflect.ValueOf(d.conn.stmts[s]).Elem().FieldByName("pstmt").Uint())
		return sqlite3.Xsqlite3_stmt_status(tls, handle, sqlite3.SQLITE_STMTSTATUS_RUN, 0),
			sqlite3.Xsqlite3_stmt_status(tls, handle, sqlite3.SQLITE_STMTSTATUS_REPREPARE, 0)
	}
	for i := range args {
		args[i] = int64(i)
	}
	for s := range d.conn.stmts {
		_, before := plans(s)
		runs, again := plans(s)
		require.Positive(t, runs)
		// This one has a LIMIT ?, and runs seldom, for many keys.
		require.Equal(t, s == countKeys, again > before, s.text(d.options.prefix))
	}
}
