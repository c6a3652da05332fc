package postgres

import (
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/fairq/fairq/store/internal/rows"
)

const (
	sqlLineKeys = "SELECT k.* FROM unnest($2::bytea[]) u CROSS JOIN LATERAL (SELECT " + keyColumns +
		" FROM fairq.keys WHERE queue = $1 AND key = u OFFSET 0) k"

	// The priorities that a key has are looked up one after the other, and so are the priorities and kinds of its parked tasks.
	// OFFSET 0 is so that all is looked up for one of them at a time.
	inLines = `
FROM unnest($2::bytea[]) u (key) CROSS JOIN LATERAL (
	WITH RECURSIVE p (priority) AS (
		SELECT (SELECT priority FROM fairq.tasks WHERE queue = $1 AND key = u.key ORDER BY priority LIMIT 1)
		UNION ALL
		SELECT (SELECT priority FROM fairq.tasks WHERE queue = $1 AND key = u.key AND priority > p.priority ORDER BY priority LIMIT 1)
		FROM p WHERE p.priority IS NOT NULL
	)
	SELECT priority FROM p WHERE priority IS NOT NULL OFFSET 0
) l CROSS JOIN LATERAL (`

	isParked = "queue = $1 AND key = u.key AND state = 1 AND NOT takeable AND round = 0"
	inSorts  = `
FROM unnest($2::bytea[]) u (key) CROSS JOIN LATERAL (
	WITH RECURSIVE s (priority, kind) AS (
		(SELECT priority, kind FROM fairq.tasks WHERE ` + isParked + ` ORDER BY priority, kind LIMIT 1)
		UNION ALL
		SELECT next.* FROM s CROSS JOIN LATERAL (
			SELECT priority, kind FROM fairq.tasks WHERE ` + isParked + ` AND (priority, kind) > (s.priority, s.kind)
			ORDER BY priority, kind LIMIT 1
		) next
	)
	SELECT priority, kind FROM s OFFSET 0
) s CROSS JOIN LATERAL (`
)

// sqlFronted and sqlParked return statements that find the tasks of lines.
func sqlFronted(payload bool) string {
	return "SELECT t.*" + inLines + selectRows(payload) +
		"WHERE queue = $1 AND key = u.key AND priority = l.priority AND round > 0 AND state = 1 OFFSET 0) t"
}

func sqlParked(payload bool) string {
	return "SELECT t.*" + inSorts + selectRows(payload) + "WHERE " + isParked +
		" AND priority = s.priority AND kind = s.kind ORDER BY place LIMIT $3) t"
}

// lines is what Lines returns.
type lines struct {
	keys   []string // that were asked for
	parked int
	found  []rows.Key
	ready  []*rows.Row
}

// queueLines has lines looked up.
func (v *view) queueLines(keys []string, parked int, payload bool) *lines {
	l := &lines{keys: slices.Clone(keys), parked: parked}
	names := make([][]byte, len(keys))
	for i, key := range keys {
		names[i] = []byte(key)
	}
	v.tx.queue(sqlLineKeys, v.queue, names).Query(func(r pgx.Rows) (err error) {
		l.found, err = readKeys(r)
		return err
	})
	if parked > 0 {
		add := v.scanner(payload, func(r *rows.Row) { l.ready = append(l.ready, r) })
		v.tx.queue(sqlFronted(payload), v.queue, names).Query(add)
		v.tx.queue(sqlParked(payload), v.queue, names, parked).Query(add)
	}
	return l
}

// Lines implements rows.View.
func (v *view) Lines(keys []string, parked int, payload bool) ([]rows.Key, []*rows.Row, error) {
	l := v.lines
	v.lines = nil // what is returned is the caller's
	if l == nil || payload || l.parked != parked || !slices.Equal(l.keys, keys) {
		v.tx.flush()
		l = v.queueLines(keys, parked, payload)
		if err := v.tx.send("lines"); err != nil {
			return nil, nil, err
		}
	}
	return l.found, l.ready, nil
}
