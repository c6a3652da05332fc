package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/store/internal/rows"
)

// tx is a transaction. Waiting for the database is its main cost, so it sends as much as possible
// in one batch: Enter with the whole Plan, and writes with the next read or Commit.
//
// So a write has not happened yet when Put returns, and a later call returns its error. No write
// is left out: a read first adds the writes of all views to the batch, and so does Commit. For the
// same reason each read sees all writes before it. A batch ends at its first error, and the
// transaction with it, so statements after a failed one have no effect.
type tx struct {
	db       *database
	ctx      context.Context
	user     pgx.Tx        // the user's transaction to which it belongs, or nil
	conn     *pgxpool.Conn // nil until the first send, and in a user's transaction
	batch    *pgx.Batch    // the next batch
	views    []*view
	began    bool // a transaction, or a savepoint, is open
	notifies []uint64

	failed error // the error of a COPY in flush, which the next send returns
}

// add adds a statement to the next batch.
func (t *tx) add(sql string, args ...any) *pgx.QueuedQuery {
	return t.batch.Queue(t.db.text(sql), args...)
}

// begin adds the begin of the transaction, once. In a user's transaction it is a savepoint, to
// which Rollback goes back.
func (t *tx) begin() {
	switch {
	case t.began:
	case t.user != nil:
		t.add("SAVEPOINT fairq_call")
	default:
		t.add("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
	}
	t.began = true
}

// query sends the buffered writes and a query, and waits for the answer.
func (t *tx) query(what, sql string, args []any, read func(pgx.Rows) error) error {
	t.flush()
	t.add(sql, args...).Query(read)
	return t.send(what)
}

// each returns a function that reads an answer: it calls read for each row.
func each(read func(r pgx.Rows) error) func(pgx.Rows) error {
	return func(r pgx.Rows) error {
		for r.Next() {
			if err := read(r); err != nil {
				return err
			}
		}
		return r.Err()
	}
}

// list returns a function that reads the rows of an answer into a list. If the batch is sent
// again, the list restarts.
func list[R any](all *[]R, read func(r pgx.Rows, into *R) error) func(pgx.Rows) error {
	return func(r pgx.Rows) error {
		*all = nil
		return each(func(r pgx.Rows) error {
			var one R
			err := read(r, &one)
			*all = append(*all, one)
			return err
		})(r)
	}
}

// flush adds the buffered writes to the batch.
func (t *tx) flush() {
	for _, v := range t.views {
		v.flush()
	}
}

// send sends the batch, and calls the functions that read the answers.
func (t *tx) send(what string) error {
	if t.failed != nil {
		return t.failed
	}
	b := t.batch
	t.batch = &pgx.Batch{}
	if err := t.sendBatch(b); err != nil {
		return t.db.failed(what, err)
	}
	return nil
}

func (t *tx) sendBatch(b *pgx.Batch) error {
	if t.user != nil {
		return t.user.SendBatch(t.ctx, b).Close()
	}
	if t.conn != nil {
		return t.conn.SendBatch(t.ctx, b).Close()
	}
	// The first batch is sent again if the connection broke while it was idle in the pool; then
	// the others are probably broken too. So far it has only locked and read.
	for again := false; ; again = true {
		var err error
		if t.conn, err = t.db.pool.Acquire(t.ctx); err != nil {
			return err
		}
		if err = t.conn.SendBatch(t.ctx, copied(b)).Close(); err == nil || again ||
			!t.conn.Conn().IsClosed() || t.ctx.Err() != nil {
			return err
		}
		t.release()
		t.db.pool.Reset()
	}
}

// copied returns a batch with the same statements, because a sent batch has state of its
// connection.
func copied(b *pgx.Batch) *pgx.Batch {
	c := &pgx.Batch{}
	for _, q := range b.QueuedQueries {
		c.Queue(q.SQL, q.Arguments...).Fn = q.Fn
	}
	return c
}

func (t *tx) release() {
	if t.conn != nil {
		t.conn.Release()
		t.conn = nil
	}
}

const (
	sqlFindQueue = "SELECT id, settings FROM fairq.queues WHERE name = $1 FOR UPDATE"
	sqlMakeQueue = "INSERT INTO fairq.queues (name, settings) VALUES ($1, $2) ON CONFLICT DO " +
		"NOTHING RETURNING id, settings"
)

// Queue implements rows.Tx.
func (t *tx) Queue(name string, settings []byte) (q *rows.Queue, err error) {
	t.begin()
	read := func(r pgx.Row) error {
		found := rows.Queue{}
		err := r.Scan(&found.ID, &found.Settings)
		if err == nil {
			q = &found
		} else if errors.Is(err, pgx.ErrNoRows) {
			err = nil
		}
		return err
	}
	for q == nil && err == nil { // it may be made, or dropped, by others between the two
		t.flush()
		t.add(sqlFindQueue, []byte(name)).QueryRow(read)
		if err = t.send("find a queue"); settings == nil {
			break
		}
		if q == nil && err == nil {
			t.add(sqlMakeQueue, []byte(name), settings).QueryRow(read)
			err = t.send("make a queue")
		}
	}
	return q, err
}

// Queues implements rows.Tx.
func (t *tx) Queues(from string, n int) (names []string, err error) {
	t.begin()
	const sql = "SELECT name FROM fairq.queues WHERE name >= $1 ORDER BY name LIMIT $2"
	err = t.query("list queues", sql, []any{[]byte(from), n},
		list(&names, func(r pgx.Rows, name *string) error {
			return r.Scan(&cell{field: name})
		}))
	return names, err
}

// Notify implements rows.Tx.
func (t *tx) Notify(queue uint64) {
	if t.db.notify != nil {
		t.notifies = append(t.notifies, queue)
	}
}

// Commit implements rows.Tx.
func (t *tx) Commit() error {
	defer t.release()
	if !t.began {
		return nil
	}
	t.flush()
	for _, v := range t.views {
		v.count()
	}
	if t.user != nil {
		for _, queue := range t.notifies { // from nobody, so that this process hears it too
			t.add("SELECT pg_notify($1, $2)", t.db.notify.channel, notification("", queue))
		}
		t.add("RELEASE SAVEPOINT fairq_call")
		return t.send("join")
	}
	if t.failed != nil {
		return t.failed
	}
	t.add("COMMIT")
	if err := t.send("commit"); err != nil {
		if inDoubt(err) {
			err = fmt.Errorf("%w: %w", driver.ErrUnknown, err)
		}
		return err
	}
	t.began = false
	for _, v := range t.views {
		if v.writer != 0 {
			t.db.heads.Store(uint64(v.queue), new(v.kept))
		}
	}
	for _, queue := range t.notifies {
		t.db.notify.notify(queue)
	}
	return nil
}

// Rollback implements rows.Tx. If it fails, the connection is not used again, which ends the
// transaction too.
func (t *tx) Rollback() {
	defer t.release()
	if !t.began {
		return
	}
	t.began = false
	// Without ctx, because a done ctx may be the reason for the rollback.
	ctx := context.WithoutCancel(t.ctx)
	switch {
	case t.user != nil:
		_, _ = t.user.Exec(ctx, "ROLLBACK TO SAVEPOINT fairq_call; RELEASE SAVEPOINT fairq_call",
			pgx.QueryExecModeSimpleProtocol)
	case t.conn != nil && !t.conn.Conn().IsClosed():
		_, _ = t.conn.Exec(ctx, "ROLLBACK")
	}
}
