package postgres

import (
	"slices"

	"github.com/fairq/fairq/store/internal/rows"
)

var (
	// Each segment is searched along the index, and the next one only if there were not enough.
	sqlReady = `
SELECT t.* FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[]) s (priority, round, seq, below)
CROSS JOIN LATERAL (
	SELECT ` + columns + `, payload FROM fairq.tasks
	WHERE queue = $1 AND takeable AND (priority, round, seq) >= (s.priority, s.round, s.seq) AND priority < s.below
	ORDER BY priority, round, seq, place LIMIT $6 FOR UPDATE SKIP LOCKED
) t LIMIT $6`

	// The first ones of each kind are merged, and then locked in order; so none is locked that is
	// not returned. $7 is how many of each are looked at. Those without a kind are not in the index
	// of kinds. takeable::int is for the planner, which is not to use the index of takeable tasks
	// there.
	sqlReadyKinds = `
SELECT t.* FROM (
	SELECT c.id FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $8::bytea[]) s (priority, round, seq, below, kind)
	CROSS JOIN LATERAL (
		(SELECT id, priority, round, seq, place FROM fairq.tasks
		WHERE queue = $1 AND kind = s.kind AND takeable AND kind <> ''
			AND (priority, round, seq) >= (s.priority, s.round, s.seq) AND priority < s.below
		ORDER BY priority, round, seq, place LIMIT $7)
		UNION ALL
		(SELECT id, priority, round, seq, place FROM fairq.tasks
		WHERE s.kind = '' AND queue = $1 AND kind = '' AND takeable
			AND (priority, round, seq) >= (s.priority, s.round, s.seq) AND priority < s.below
		ORDER BY priority, round, seq, place LIMIT $7)
	) c
	ORDER BY c.priority, c.round, c.seq, c.place
) c CROSS JOIN LATERAL (
	SELECT ` + columns + `, payload FROM fairq.tasks WHERE queue = $1 AND id = c.id AND takeable::int = 1 FOR UPDATE SKIP LOCKED
) t LIMIT $6`
)

// statement returns the query of a search.
func (s *search) statement(queue int64) (string, []any) {
	sql, args := sqlReady, []any{queue, s.from, s.round, s.seq, s.below, s.wanted}
	if s.filter.Kinds != nil {
		sql, args = sqlReadyKinds, append(args, s.wanted+s.extra, s.kinds)
	}
	return sql, args
}

// addReady adds a search to the batch.
func (v *view) addReady(s *search) {
	sql, args := s.statement(v.queue)
	v.ready = nil
	v.tx.add(sql, args...).Query(v.scanner(true, func(r *rows.Row) { v.ready = append(v.ready, r) }))
}

// isSearch tells whether a range is one of those that search does: the first ready tasks.
func isSearch(r *rows.Range) bool {
	return (r.Index == rows.TaskReady || r.Index == rows.TaskKind) && !r.Desc
}

// filterOf returns what a range of ready tasks was made of.
func filterOf(r *rows.Range) rows.Filter {
	f := rows.Filter{MaxPriority: int(r.To[0].(int64)) - 1}
	if r.Index == rows.TaskKind {
		f.Kinds = make([]string, len(r.Prefixes))
		for i, p := range r.Prefixes {
			f.Kinds[i] = p[0].(string)
		}
	}
	return f
}

// readyTasks returns the first n tasks that pass a filter and that nobody else has locked.
func (v *view) readyTasks(f rows.Filter, n int) ([]*rows.Row, error) {
	same := v.readyValid && f.MaxPriority == v.readyFilter.MaxPriority && (f.Kinds == nil) == (v.readyFilter.Kinds == nil) &&
		slices.Equal(f.Kinds, v.readyFilter.Kinds)
	if !same || len(v.ready) < n && !v.readyComplete {
		if err := v.search(v.tx.db.marks.search(uint64(v.queue), f, n)); err != nil {
			return nil, err
		}
		if len(v.ready) == 0 && !v.readyComplete {
			if err := v.search(wholeSearch(f, n)); err != nil {
				return nil, err
			}
		}
	}
	return slices.Clone(v.ready[:min(n, len(v.ready))]), nil
}

func (v *view) search(s *search) error {
	v.readyValid, v.readyFilter = true, s.filter
	v.tx.flush()
	v.addReady(s)
	err := v.tx.send("ready")
	v.readyComplete = s.complete(v.ready)
	return err
}

// complete tells whether there are no more tasks than were found.
func (s *search) complete(found []*rows.Row) bool {
	return !s.marked && s.filter.Kinds == nil && len(found) < s.wanted
}
