package postgres

import (
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fairq/fairq/store/internal/columns"
	"github.com/fairq/fairq/store/internal/rows"
)

const (
	sqlKeyStats = `
SELECT key, tasks, ready, delayed, taken, buried, held, paused, false, 0::bigint, oldest
FROM (SELECT *, row_number() OVER (ORDER BY tasks DESC, key) AS place FROM (
	SELECT key, count(*) AS tasks, count(*) FILTER (WHERE state = 1) AS ready,
		count(*) FILTER (WHERE state = 2) AS delayed, count(*) FILTER (WHERE state = 3) AS taken,
		count(*) FILTER (WHERE state = 4) AS buried, count(*) FILTER (WHERE state = 5) AS held,
		EXISTS (SELECT FROM fairq.keys k WHERE k.queue = $1 AND k.key = t.key AND paused) AS paused,
		coalesce(min(created) FILTER (WHERE state <= 2), 0) AS oldest
	FROM fairq.tasks t WHERE queue = $1 AND key IS NOT NULL GROUP BY key
	UNION ALL
	SELECT key, 0, 0, 0, 0, 0, 0, true, 0 FROM fairq.keys k
	WHERE queue = $1 AND paused AND NOT EXISTS (SELECT FROM fairq.tasks t
		WHERE t.queue = $1 AND t.key = k.key)
) t) s WHERE paused OR place <= $2 ORDER BY place`

	// The next key is looked up after the one before.
	sqlKeys = `
WITH RECURSIVE k (key) AS (
	SELECT (SELECT key FROM fairq.tasks WHERE queue = $1 AND key >= $2 ORDER BY key LIMIT 1)
	UNION ALL
	SELECT (SELECT key FROM fairq.tasks WHERE queue = $1 AND key > k.key ORDER BY key LIMIT 1)
	FROM k WHERE k.key IS NOT NULL
)
SELECT key FROM k WHERE key IS NOT NULL LIMIT $3`

	// A mark is a snapshot. Later writes are those of transactions that were running then, or that
	// began later.
	sqlMark = "SELECT pg_current_snapshot()::text"
)

var sqlEnded = `
SELECT o.* FROM (SELECT $2::text::pg_snapshot AS mark) m CROSS JOIN LATERAL (
	(SELECT ` + outcomeOps.names + ` FROM fairq.outcomes
		WHERE queue = $1 AND written >= pg_snapshot_xmax(mark))
	UNION ALL
	SELECT o.* FROM pg_snapshot_xip(mark) x CROSS JOIN LATERAL (
		SELECT ` + outcomeOps.names + ` FROM fairq.outcomes WHERE queue = $1 AND written = x OFFSET 0
	) o
) o`

// sqlPausedStats is sqlKeyStats, but reads only the tasks of paused keys.
var sqlPausedStats = strings.Replace(sqlKeyStats, "key IS NOT NULL",
	"key IN (SELECT key FROM fairq.keys WHERE queue = $1 AND paused)", 1)

// keyStats are the columns of keys that sqlKeyStats returns.
var keyStats = columns.Keys.Without("?")

// KeyStats implements rows.View.
func (v *view) KeyStats(n int) (keys []rows.Key, err error) {
	sql := sqlKeyStats
	if n == 0 {
		sql = sqlPausedStats
	}
	oldest := int64(0)
	err = v.tx.query("key stats", sql, []any{v.queue, n},
		reader(columns.Keys, keyStats, func(k *rows.Key) {
			k.Oldest = oldest
			keys = append(keys, *k)
		}, &oldest))
	return keys, err
}

// CountKeys implements rows.View.
func (v *view) CountKeys(from string, n int) (keys int, next string, err error) {
	v.tx.flush()
	v.tx.add(sqlKeys, v.queue, []byte(from), n).Query(func(r pgx.Rows) error {
		var key []byte
		for r.Next() {
			if err := r.Scan(&key); err != nil {
				return err
			}
			keys++
		}
		if keys == n {
			next = string(key) + "\x00"
		}
		return r.Err()
	})
	err = v.tx.send("keys")
	return keys, next, err
}

// Ended implements rows.View.
func (v *view) Ended(mark string) (ended []*rows.Outcome, next string, err error) {
	v.tx.flush()
	v.tx.add(sqlMark).QueryRow(func(r pgx.Row) error { return r.Scan(&next) })
	found := new([]*rows.Outcome)
	if mark != "" {
		found = addRows(v, columns.Outcomes, columns.Outcomes.All, sqlEnded, []any{v.queue, mark})
	}
	err = v.tx.send("ended")
	return *found, next, err
}
