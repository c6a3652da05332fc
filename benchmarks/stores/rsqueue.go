package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/stdlib"
)

// rsqueue is a queue of the design of rsqueue in github.com/rstudio/platform-lib, which leaves the
// store to the application. All named queues are in one table. A consumer that takes a task gets a
// permit, writes it into the task, and renews it until the task is deleted with it. A push, a pop
// and a delete are a transaction each. Unlike its example, this queue does not look for permits
// that were not renewed. It has an index, deletes rows, and looks for a task without counting them
// all.
type rsqueue struct {
	db      *sql.DB
	dialect *dialect
	bell    bell
	close2  func() // of the rows below db
}

// dialect has the differences between databases.
type dialect struct {
	serial, bytes string
	lock          string // of the row that is selected
	series        string // a table with the numbers 1 to $1 as i
	empty         []string
}

var (
	sqliteDialect = &dialect{
		serial: "INTEGER PRIMARY KEY AUTOINCREMENT", bytes: "BLOB",
		series: "(WITH RECURSIVE s(i) AS (SELECT 1 WHERE $1 > 0 UNION ALL SELECT i + 1 FROM s WHERE i " +
			"< $1) SELECT i FROM s)",
		empty: []string{"DELETE FROM queue", "DELETE FROM queue_permit"},
	}
	postgresDialect = &dialect{
		serial: "BIGSERIAL PRIMARY KEY", bytes: "BYTEA",
		lock:   "FOR UPDATE OF q SKIP LOCKED",
		series: "generate_series(1, $1::integer)",
		empty:  []string{"TRUNCATE queue, queue_permit"},
	}
)

// heartbeat is how often a permit is renewed.
const heartbeat = 5 * time.Second

// waiting is the condition for a task that can be taken, in any started group.
const waiting = `FROM queue q LEFT JOIN queue_group g ON q.group_id = g.id
	WHERE q.permit = 0 AND q.name = 'bench' AND q.priority <= 10 AND q.type IN (0)
		AND (q.group_id IS NULL OR g.started)`

func openRsqueueSQLite(ctx context.Context, path string) (queue, error) {
	db, err := openSQLite(path)
	if err != nil {
		return nil, err
	}
	return newRsqueue(ctx, &rsqueue{db: db, dialect: sqliteDialect, close2: func() {}})
}

func openRsqueuePostgres(ctx context.Context, dsn string) (queue, error) {
	pool, err := openPool(ctx, dsn)
	if err != nil {
		return nil, err
	}
	return newRsqueue(ctx,
		&rsqueue{db: stdlib.OpenDBFromPool(pool), dialect: postgresDialect, close2: pool.Close})
}

func newRsqueue(ctx context.Context, q *rsqueue) (queue, error) {
	d := q.dialect
	for _, create := range []string{
		"CREATE TABLE queue_group (id " + d.serial +
			", name TEXT NOT NULL UNIQUE, started BOOLEAN NOT NULL, cancelled BOOLEAN NOT NULL)",
		"CREATE TABLE queue_permit (id " + d.serial +
			", created_at BIGINT NOT NULL, heartbeat BIGINT NOT NULL)",
		"CREATE TABLE queue (id " + d.serial +
			`, created_at BIGINT NOT NULL, name TEXT NOT NULL, priority BIGINT NOT NULL,
			permit BIGINT NOT NULL DEFAULT 0, type BIGINT NOT NULL, item ` + d.bytes + ` NOT NULL,
			address TEXT UNIQUE, group_id BIGINT REFERENCES queue_group (id))`,
		"CREATE INDEX queue_next ON queue (permit, name, priority, id)",
	} {
		if _, err := q.db.ExecContext(ctx, create); err != nil {
			_ = q.close()
			return nil, err
		}
	}
	return q, nil
}

// within runs a transaction.
func (q *rsqueue) within(ctx context.Context, do func(tx *sql.Tx) error) error {
	tx, err := q.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		_ = tx.Rollback()
		return err
	}
	return tx.Commit()
}

func (q *rsqueue) put(ctx context.Context, t item) error { return q.putBatch(ctx, []item{t}) }

func (q *rsqueue) putBatch(ctx context.Context, ts []item) error {
	err := q.within(ctx, func(tx *sql.Tx) error {
		for _, t := range ts {
			data, err := json.Marshal(t)
			if err != nil {
				return err
			}
			const insert = "INSERT INTO queue (created_at, name, priority, type, item) VALUES " +
				"($1, 'bench', 0, 0, $2)"
			if _, err := tx.ExecContext(ctx, insert, time.Now().UnixNano(), data); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		q.bell.ring()
	}
	return err
}

func (q *rsqueue) fill(ctx context.Context, n int, key func(i int) string) error {
	data, err := json.Marshal(item{key(0), payload(fillNumber)})
	if err != nil {
		return err
	}
	_, err = q.db.ExecContext(ctx,
		"INSERT INTO queue (created_at, name, priority, type, item) SELECT 0, 'bench', 0, 0, $2 FROM "+
			q.dialect.series+" AS numbers", n, data)
	return err
}

func (q *rsqueue) clear(ctx context.Context) error {
	for _, empty := range q.dialect.empty {
		if _, err := q.db.ExecContext(ctx, empty); err != nil {
			return err
		}
	}
	return nil
}

// take learns immediately of a push in this process, which costs nothing here.
func (q *rsqueue) take(ctx context.Context) (string, func(context.Context) error, error) {
	for {
		rung := q.bell.listen()
		permit, data, err := q.pop(ctx)
		if errors.Is(err, sql.ErrNoRows) {
			if err := await(ctx, rung, 100*time.Millisecond); err != nil {
				return "", nil, err
			}
			continue
		}
		if err != nil {
			return "", nil, err
		}
		var t item
		err = json.Unmarshal(data, &t)
		renewal := time.AfterFunc(heartbeat, func() { q.renew(context.WithoutCancel(ctx), permit) })
		return t.Payload, func(ctx context.Context) error {
			renewal.Stop()
			return q.remove(ctx, permit)
		}, err
	}
}

// pop returns sql.ErrNoRows if there is no task. It looks without a transaction first, as the
// example does.
func (q *rsqueue) pop(ctx context.Context) (permit int64, data []byte, err error) {
	var one int
	if err := q.db.QueryRowContext(ctx, "SELECT 1 "+waiting+" LIMIT 1").Scan(&one); err != nil {
		return 0, nil, err
	}
	err = q.within(ctx, func(tx *sql.Tx) error {
		const permits = "INSERT INTO queue_permit (created_at, heartbeat) VALUES ($1, $2) RETURNING id"
		now := time.Now().UnixNano()
		if err := tx.QueryRowContext(ctx, permits, now, now).Scan(&permit); err != nil {
			return err
		}
		claim := "UPDATE queue SET permit = $1 WHERE id = (SELECT q.id " + waiting +
			" ORDER BY q.priority, q.id LIMIT 1 " + q.dialect.lock + ")"
		if _, err := tx.ExecContext(ctx, claim, permit); err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, "SELECT item FROM queue WHERE permit = $1", permit).Scan(&data)
	})
	return permit, data, err
}

// renew renews a permit until it is deleted.
func (q *rsqueue) renew(ctx context.Context, permit int64) {
	result, err := q.db.ExecContext(ctx, "UPDATE queue_permit SET heartbeat = $1 WHERE id = $2",
		time.Now().UnixNano(), permit)
	if err != nil {
		return
	}
	if n, err := result.RowsAffected(); err == nil && n > 0 {
		time.AfterFunc(heartbeat, func() { q.renew(ctx, permit) })
	}
}

func (q *rsqueue) remove(ctx context.Context, permit int64) error {
	return q.within(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "DELETE FROM queue WHERE permit = $1", permit); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "DELETE FROM queue_permit WHERE id = $1", permit)
		return err
	})
}

func (q *rsqueue) work(ctx context.Context, workers int, w worker) (stop func() error, err error) {
	return workByTaking(ctx, q, workers, w)
}

func (q *rsqueue) close() error {
	err := q.db.Close()
	q.close2()
	return err
}
