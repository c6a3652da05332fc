package postgres

import (
	"reflect"

	"github.com/jackc/pgx/v5"

	"github.com/fairq/fairq/store/internal/rows"
)

var (
	// Each segment is searched along the index, and the next one only if there are too few tasks.
	sqlReady = `
SELECT t.* FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])
	s (band, round, place, below)
CROSS JOIN LATERAL (
	SELECT ` + columns + `, payload FROM fairq.tasks
	WHERE queue = $1 AND band > 0 AND front <> 1
		AND (band, round, place) >= (s.band, s.round, s.place) AND band < s.below
	ORDER BY band, round, place LIMIT $6 FOR UPDATE SKIP LOCKED
) t LIMIT $6`

	// The first tasks of each kind are merged, and then locked in order, so that only returned
	// tasks are locked. $7 is how many of each are read. Of tasks without a kind only tasks
	// with a shared turn are in the index of kinds. band <> 0 keeps the planner from using the
	// index of ready tasks there.
	sqlReadyKinds = `
SELECT t.* FROM (
	SELECT c.id FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $8::bytea[])
		s (band, round, place, below, kind)
	CROSS JOIN LATERAL (
		(SELECT id, band, round, place FROM fairq.tasks
		WHERE queue = $1 AND kind = s.kind AND band > 0 AND (kind <> '' OR front = 1)
			AND (band, round, place) >= (s.band, s.round, s.place) AND band < s.below
		ORDER BY band, round, place LIMIT $7)
		UNION ALL
		(SELECT id, band, round, place FROM fairq.tasks
		WHERE s.kind = '' AND queue = $1 AND kind = '' AND band > 0 AND front <> 1
			AND (band, round, place) >= (s.band, s.round, s.place) AND band < s.below
		ORDER BY band, round, place LIMIT $7)
	) c
	ORDER BY c.band, c.round, c.place
) c CROSS JOIN LATERAL (
	SELECT ` + columns + `, payload FROM fairq.tasks
		WHERE queue = $1 AND id = c.id AND band <> 0 FOR UPDATE SKIP LOCKED
) t LIMIT $6`
)

// statement returns the query of a search.
func (s *search) statement(queue int64) (string, []any) {
	sql, args := sqlReady, []any{queue, s.from, s.round, s.place, s.below, s.Limit}
	if s.Index == rows.TaskKind {
		sql, args = sqlReadyKinds, append(args, s.Limit+s.extra, s.kinds)
	}
	return sql, args
}

// addSearch adds a search to the batch, and keeps its result.
func (v *view) addSearch(s *search) {
	v.ready = s
	sql, args := s.statement(v.queue)
	var row scannedRow
	into := append(row.columns(), &row.Payload)
	read := row.reader(into, func(r *rows.Row) { s.found = append(s.found, r) })
	v.tx.add(sql, args...).Query(func(r pgx.Rows) error {
		s.found = nil
		err := read(r)
		s.complete = !s.marked && s.Index == rows.TaskReady && len(s.found) < s.Limit
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
	for _, s := range []*search{v.tx.db.marks.search(uint64(v.queue), r), wholeSearch(r)} {
		v.tx.flush()
		v.addSearch(s)
		if err := v.tx.send("ready"); err != nil {
			return nil, err
		}
		if len(s.found) > 0 || s.complete {
			break
		}
	}
	found := v.ready.found
	v.ready = nil
	return found, nil
}
