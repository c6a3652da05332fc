package postgres

import (
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/task"
)

const (
	keyColumns = "key, weight, tasks, ready, delayed, taken, buried, held, load, paused"

	sqlHeaviest = "SELECT " + keyColumns + " FROM fairq.keys WHERE queue = $1 AND load IS NOT NULL ORDER BY load DESC, key LIMIT 1"
	sqlDropKey  = "DELETE FROM fairq.keys WHERE queue = $1 AND key = $2"

	sqlKeyStats = `
SELECT key, 0, tasks, ready, delayed, taken, buried, held, 0, paused FROM (
	SELECT key, count(*) AS tasks, count(*) FILTER (WHERE state = 1) AS ready, count(*) FILTER (WHERE state = 2) AS delayed,
		count(*) FILTER (WHERE state = 3) AS taken, count(*) FILTER (WHERE state = 4) AS buried, count(*) FILTER (WHERE state = 5) AS held,
		EXISTS (SELECT FROM fairq.keys k WHERE k.queue = $1 AND k.key = t.key AND paused) AS paused
	FROM fairq.tasks t WHERE queue = $1 AND key IS NOT NULL GROUP BY key
	UNION ALL
	SELECT key, 0, 0, 0, 0, 0, 0, true FROM fairq.keys k
	WHERE queue = $1 AND paused AND NOT EXISTS (SELECT FROM fairq.tasks t WHERE t.queue = $1 AND t.key = k.key)
) s ORDER BY tasks DESC, key LIMIT $2`

	// The next key is looked up from the one before.
	sqlKeys = `
WITH RECURSIVE k (key) AS (
	SELECT (SELECT key FROM fairq.tasks WHERE queue = $1 AND key IS NOT NULL ORDER BY key LIMIT 1)
	UNION ALL
	SELECT (SELECT key FROM fairq.tasks WHERE queue = $1 AND key > k.key ORDER BY key LIMIT 1) FROM k WHERE k.key IS NOT NULL
)
SELECT count(*) FROM k WHERE key IS NOT NULL`

	sqlServed      = "SELECT round FROM fairq.served WHERE queue = $1 AND key = $2 AND priority = $3"
	sqlSweepServed = "DELETE FROM fairq.served WHERE ctid = ANY(ARRAY(" +
		"SELECT ctid FROM fairq.served WHERE queue = $1 AND priority = $2 AND round < $3 LIMIT $4))"
)

var (
	sqlSetKeys = "INSERT INTO fairq.keys (queue, weight, tasks, ready, delayed, taken, buried, held, load, paused, key) " +
		"SELECT $1, weight, tasks, ready, delayed, taken, buried, held, load, paused <> 0, key FROM " +
		unnest(9, "weight, tasks, ready, delayed, taken, buried, held, load, paused, key") +
		" ON CONFLICT (queue, key) DO UPDATE SET weight = excluded.weight, tasks = excluded.tasks, ready = excluded.ready, delayed = excluded.delayed, " +
		"taken = excluded.taken, buried = excluded.buried, held = excluded.held, load = excluded.load, paused = excluded.paused"

	sqlSetServed = "INSERT INTO fairq.served (queue, priority, round, key) SELECT $1, priority, round, key FROM " +
		unnest(2, "priority, round, key") + " ON CONFLICT (queue, key, priority) DO UPDATE SET round = excluded.round"
)

// keys reads rows of the table of keys.
func (v *view) keys(what, sql string, args ...any) (keys []rows.Key, err error) {
	err = v.tx.query(what, sql, append([]any{v.queue}, args...), func(r pgx.Rows) (err error) {
		keys, err = readKeys(r)
		return err
	})
	return keys, err
}

func readKeys(r pgx.Rows) (keys []rows.Key, err error) {
	for r.Next() {
		var k rows.Key
		var name []byte
		n := &k.Tasks
		if err := r.Scan(&name, &k.Weight, &n[0], &n[task.Ready], &n[task.Delayed], &n[task.Taken], &n[task.Buried], &n[task.Held],
			&k.Load, &k.Paused); err != nil {
			return nil, err
		}
		k.Key = string(name)
		keys = append(keys, k)
	}
	return keys, r.Err()
}

// first returns the first of what a query has found, nil if that is nothing.
func first[T any](list []T, err error) (*T, error) {
	if len(list) == 0 {
		return nil, err
	}
	return &list[0], err
}

// SetKey implements rows.View.
func (v *view) SetKey(k *rows.Key) error {
	if k.Tasks[0] == 0 && !k.Paused {
		v.do(sqlDropKey, []byte(k.Key))
		return nil
	}
	v.table(sqlSetKeys).set(k.Key, []int64{
		int64(k.Weight), int64(k.Tasks[0]), int64(k.Tasks[task.Ready]), int64(k.Tasks[task.Delayed]), int64(k.Tasks[task.Taken]),
		int64(k.Tasks[task.Buried]), int64(k.Tasks[task.Held]), int64(k.Load), bit(k.Paused),
	}, []byte(k.Key))
	return nil
}

// Heaviest implements rows.View.
func (v *view) Heaviest() (*rows.Key, error) { return first(v.keys("heaviest", sqlHeaviest)) }

// KeyStats implements rows.View.
func (v *view) KeyStats(n int) ([]rows.Key, error) { return v.keys("key stats", sqlKeyStats, n) }

// Keys implements rows.View.
func (v *view) Keys() (int, error) {
	n, err := v.value("keys", sqlKeys)
	return int(n), err
}

// Served implements rows.View.
func (v *view) Served(l rows.Line) (uint64, error) {
	r, err := v.value("served", sqlServed, []byte(l.Key), int64(l.Priority))
	return uint64(r), err
}

// SetServed implements rows.View.
func (v *view) SetServed(l rows.Line, r uint64) error {
	v.table(sqlSetServed).set(strconv.Itoa(l.Priority)+" "+l.Key, []int64{int64(l.Priority), int64(r)}, []byte(l.Key))
	return nil
}

// SweepServed implements rows.View.
func (v *view) SweepServed(priority int, before uint64, n int) error {
	v.do(sqlSweepServed, int64(priority), int64(before), n)
	return nil
}
