package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"maragu.dev/goqite"
)

// goqiteQueue is a queue of maragu.dev/goqite.
type goqiteQueue struct {
	db *sql.DB
	*goqite.Queue
}

func openGoqite(ctx context.Context, path string) (queue, error) {
	db, err := openSQLite(path)
	if err != nil {
		return nil, err
	}
	if err := goqite.Setup(ctx, db); err != nil {
		_ = db.Close()
		return nil, err
	}
	return &goqiteQueue{db, goqite.New(goqite.NewOpts{DB: db, Name: "bench", Timeout: time.Minute})},
		nil
}

func (q *goqiteQueue) put(ctx context.Context, t item) error {
	body, err := json.Marshal(t)
	if err != nil {
		return err
	}
	return q.Send(ctx, goqite.Message{Body: body})
}

func (q *goqiteQueue) putBatch(ctx context.Context, ts []item) error {
	tx, err := q.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	for _, t := range ts {
		body, err := json.Marshal(t)
		if err != nil {
			return err
		}
		if err := q.SendTx(ctx, tx, goqite.Message{Body: body}); err != nil {
			return err
		}
	}
	return tx.Commit()
}

func (q *goqiteQueue) clear(ctx context.Context) error {
	_, err := q.db.ExecContext(ctx, "DELETE FROM goqite")
	return err
}

// take polls in the interval of goqite's README; there is no other way to wait. ReceiveAndWait
// polls too, but waits for an interval first.
func (q *goqiteQueue) take(ctx context.Context) (string, func(context.Context) error, error) {
	for {
		m, err := q.Receive(ctx)
		if err != nil {
			return "", nil, err
		}
		if m == nil {
			if err := await(ctx, 10*time.Millisecond); err != nil {
				return "", nil, err
			}
			continue
		}
		var t item
		err = json.Unmarshal(m.Body, &t)
		return t.Payload, func(ctx context.Context) error { return q.Delete(ctx, m.ID) }, err
	}
}

// work does not use goqite's Runner, which waits for an interval before each task.
func (q *goqiteQueue) work(ctx context.Context, workers int,
	w worker,
) (stop func() error, err error) {
	return workByTaking(ctx, q, workers, w)
}

func (q *goqiteQueue) close() error { return q.db.Close() }
