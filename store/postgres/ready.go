package postgres

import (
	"reflect"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fairq/fairq/store/internal/columns"
	"github.com/fairq/fairq/store/internal/rows"
)

var (
	// The segments of a search: from each mark to the next one. $4 says whether to use the marks.
	sqlSegments = `
(SELECT name, priority, round, place, lead(priority, 1, $3::bigint)
	OVER (PARTITION BY name ORDER BY priority, round, place) AS below
FROM unnest($2::bytea[]) n (name) CROSS JOIN LATERAL (
	SELECT 0::bigint AS priority, 0::bigint AS round, 0::bigint AS place
	UNION ALL
	SELECT priority, round, place FROM fairq.marks
	WHERE $4 AND queue = $1 AND marks.name = n.name AND priority < $3
) m) s`

	// Each segment is searched along the index, and the next one only if there are too few tasks.
	sqlReady = `
SELECT t.* FROM ` + sqlSegments + ` CROSS JOIN LATERAL (
	SELECT ` + taskColumns + ` FROM fairq.tasks
	WHERE queue = $1 AND takeable AND front <> 1
		AND (priority, round, place) >= (s.priority, s.round, s.place) AND priority < s.below
		/* free */
	ORDER BY priority, round, place LIMIT $5 FOR UPDATE SKIP LOCKED
) t LIMIT $5`

	// The first $6 tasks of each kind are merged, then locked in order, so that only returned tasks
	// are locked. Tasks without a kind are in two indexes: those with a shared turn in the index of
	// kinds, the others in the index of takeable tasks. In the last SELECT, takeable::int keeps the
	// planner from using the second index.
	sqlReadyKinds = `
SELECT t.* FROM (
	SELECT c.id FROM ` + sqlSegments + ` CROSS JOIN LATERAL (
		(SELECT id, priority, round, place FROM fairq.tasks
		WHERE queue = $1 AND kind = substr(s.name, 2) AND takeable AND (kind <> '' OR front = 1)
			AND (priority, round, place) >= (s.priority, s.round, s.place) AND priority < s.below
		ORDER BY priority, round, place LIMIT $6)
		UNION ALL
		(SELECT id, priority, round, place FROM fairq.tasks
		WHERE s.name = '=' AND queue = $1 AND kind = '' AND takeable AND front <> 1
			AND (priority, round, place) >= (s.priority, s.round, s.place) AND priority < s.below
		ORDER BY priority, round, place LIMIT $6)
	) c
	ORDER BY c.priority, c.round, c.place
) c CROSS JOIN LATERAL (
	SELECT ` + taskColumns + ` FROM fairq.tasks
		WHERE queue = $1 AND id = c.id AND takeable::int = 1 /* free */ FOR UPDATE SKIP LOCKED
) t LIMIT $5`
)

// search looks for the ready tasks of a range.
type search struct {
	rows.Range
	below int      // the first priority that it does not look at
	names []string // of the marks that it uses: see nameOf
	// how many more of each kind are read than wanted, because others may have locked some
	extra    int
	locks    bool        // it passes over tasks of locked keys
	marked   bool        // it begins at the marks
	whole    bool        // it passes over no locked tasks, which a user may have locked
	found    []*rows.Row // rows not written since
	complete bool        // there are no others
}

// newSearch returns the search for the tasks of a range.
func (v *view) newSearch(r *rows.Range, extra int) *search {
	s := &search{Range: *r, below: int(r.To[0].(int64)), names: []string{""}, extra: extra}
	if r.Index == rows.TaskKind {
		s.names = nil
		for _, p := range r.Prefixes {
			s.names = append(s.names, nameOf(p[0].(string)))
		}
	}
	s.locks = v.locksKeys && r.Lock == rows.SkipLocked
	s.marked = v.tx.db.marks.uses(uint64(v.queue))
	return s
}

// nameOf returns the name of the marks of a kind. The marks of all tasks have the name "".
func nameOf(kind string) string { return "=" + kind }

// statement returns the query of a search.
func (s *search) statement(queue int64) (string, []any) {
	names := make([][]byte, len(s.names))
	for i, name := range s.names {
		names[i] = []byte(name)
	}
	sql, args := sqlReady, []any{queue, names, s.below, s.marked, s.Limit}
	if s.Index == rows.TaskKind {
		sql, args = sqlReadyKinds, append(args, s.Limit+s.extra)
	}
	if s.locks {
		sql = strings.Replace(sql, "/* free */", "AND "+sqlTryKey, 1)
	}
	if s.whole {
		sql = strings.Replace(sql, "SKIP LOCKED", "", 1)
	}
	return sql, args
}

// someExtra is the extra of a search that is tried first.
const someExtra = 16

// addSearch adds a search to the batch, and keeps its result.
func (v *view) addSearch(s *search) {
	v.ready = s
	sql, args := s.statement(v.queue)
	read := reader(columns.Tasks, columns.Tasks.All,
		func(r *rows.Row) { s.found = append(s.found, r) })
	v.tx.add(sql, args...).Query(func(r pgx.Rows) error {
		s.found = nil
		err := read(r)
		s.complete = s.Index == rows.TaskReady && len(s.found) < s.Limit
		return err
	})
}

// isSearch reports whether a range is a search: the first ready tasks.
func isSearch(r rows.Range) bool {
	return (r.Index == rows.TaskReady || r.Index == rows.TaskKind) && !r.Desc
}

// readyTasks returns the tasks of a range that no other transaction has locked.
func (v *view) readyTasks(r *rows.Range) ([]*rows.Row, error) {
	s := v.ready
	if v.ready = nil; s != nil && reflect.DeepEqual(s.Range, *r) &&
		(len(s.found) == r.Limit || s.complete) {
		return s.found, nil
	}
	for _, extra := range [...]int{someExtra, 2000} {
		v.tx.flush()
		v.addSearch(v.newSearch(r, extra))
		if err := v.tx.send("ready"); err != nil {
			return nil, err
		}
		if len(v.ready.found) > 0 || v.ready.complete {
			break
		}
	}
	found := v.ready.found
	v.ready = nil
	return found, nil
}
