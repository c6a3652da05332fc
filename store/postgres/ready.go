package postgres

import (
	"strings"

	"github.com/fairq/fairq/store/internal/columns"
	"github.com/fairq/fairq/store/internal/rows"
)

// sqlSegments are the segments of a search: from each mark to the next one. $4 says whether to use
// the marks.
const sqlSegments = `
(SELECT name, priority, round, place, lead(priority, 1, $3::bigint)
	OVER (PARTITION BY name ORDER BY priority, round, place) AS below
FROM unnest($2::bytea[]) n (name) CROSS JOIN LATERAL (
	SELECT 0::bigint AS priority, 0::bigint AS round, 0::bigint AS place
	UNION ALL
	SELECT priority, round, place FROM fairq.marks
	WHERE $4 AND queue = $1 AND marks.name = n.name AND priority < $3
) m) s`

// search looks for the first rows of a range that can be taken: ready tasks, or turns.
type search struct {
	rows.Range
	below  int      // the first priority that it does not look at
	names  []string // of the marks that it uses: see moveMarksBack
	extra  int      // see statement
	marked bool     // it begins at the marks
	locks  bool     // it passes over locked keys, and locks those of the rows that it finds
	whole  bool     // it passes over no locked tasks, which a user may have locked

	places func() []rows.Tuple // of the rows that it has found, if these are not written yet
}

// isSearch reports whether a range is a search.
func isSearch(r rows.Range) bool {
	is := r.Index == rows.TaskReady || r.Index == rows.TurnReady || r.Index == rows.TurnKind
	return is && r.Lock == rows.SkipLocked && r.From == nil && len(r.To) == 1 && r.Limit > 0 &&
		!r.Desc
}

// newSearch returns the search for the rows of a range.
func (v *view) newSearch(r *rows.Range, extra int) *search {
	s := &search{
		Range: *r, below: int(r.To[0].(int64)), names: []string{columns.Indexes[r.Index].Table},
		extra: extra, marked: v.tx.db.marks.uses(uint64(v.queue)), locks: v.locksKeys,
	}
	if r.Index == rows.TurnKind {
		s.names = nil
		for _, p := range r.Prefixes {
			s.names = append(s.names, nameOf(p[0].(string)))
		}
	}
	return s
}

// nameOf returns the name of the marks of the turns of a kind.
func nameOf(kind string) string { return "=" + kind }

// someExtra is the extra of a search that is tried first, and manyExtra that of the next one.
const someExtra, manyExtra = 16, 2000

// statement returns the query of a search. It searches each segment along the index, and the next
// one only if there are too few rows. The first turns of several kinds are merged, and their keys
// are locked after that, so that only keys of returned turns are locked. So extra more turns of
// each kind are read than wanted: others may have locked the keys of the first ones.
func (s *search) statement(queue int64, selected string) (string, []any) {
	names := make([][]byte, len(s.names))
	for i, name := range s.names {
		names[i] = []byte(name)
	}
	free, lock := "true", lockOf(&s.Range)
	if s.locks {
		free = sqlTryKey
	}
	if s.whole {
		lock = strings.TrimSuffix(lock, " SKIP LOCKED")
	}
	in, which := &columns.Indexes[s.Index], free
	if s.Index == rows.TurnKind {
		which = "kind = substr(s.name, 2)"
	}
	sql := "SELECT t.* FROM " + sqlSegments + ` CROSS JOIN LATERAL (
	SELECT ` + selected + " FROM fairq." + in.Table + `
	WHERE queue = $1 AND ` + in.Where + " AND " + which + `
		AND (priority, round, place) >= (s.priority, s.round, s.place) AND priority < s.below
	ORDER BY priority, round, place LIMIT $5::bigint + $6::bigint` + lock + `
) t`
	if s.Index == rows.TurnKind { // OFFSET 0 keeps the planner from locking keys before
		sql = "SELECT * FROM (" + sql + `
ORDER BY t.priority, t.round, t.place OFFSET 0) t WHERE ` + free
	}
	return sql + " LIMIT $5", []any{queue, names, s.below, s.marked, s.Limit, s.extra}
}

// addSearch adds a search to the batch. A later Scan returns its rows.
func (v *view) addSearch(s *search) {
	found := tables[columns.Indexes[s.Index].Table].search(v, s)
	v.fetched = append(v.fetched, fetched{s.Range, found})
}

func (t *tableOps[R]) search(v *view, s *search) any {
	sql, args := s.statement(v.queue, t.names)
	found := addRows(v, t.Table, t.All, sql, args)
	s.places = func() (all []rows.Tuple) {
		for _, r := range *found {
			all = append(all, t.Schema.Place(s.Index, r))
		}
		return all
	}
	return found
}
