package main

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/mikestefanello/backlite"
)

// backliteQueue puts into a queue of github.com/mikestefanello/backlite. Only its own workers
// can take tasks, some nine in a second.
type backliteQueue struct {
	db     *sql.DB
	client *backlite.Client
}

// backliteTask is an item for backlite.
type backliteTask item

func (backliteTask) Config() backlite.QueueConfig {
	return backlite.QueueConfig{Name: "bench", MaxAttempts: 3}
}

func openBacklite(_ context.Context, path string) (queue, error) {
	db, err := openSQLite(path)
	if err != nil {
		return nil, err
	}
	q := &backliteQueue{db: db}
	q.client, err = backlite.NewClient(backlite.ClientConfig{
		DB: db, NumWorkers: 1, ReleaseAfter: 10 * time.Minute,
	})
	if err == nil {
		err = q.client.Install()
	}
	if err != nil {
		_ = db.Close()
		return nil, err
	}
	return q, nil
}

func (q *backliteQueue) put(ctx context.Context, t item) error {
	_, err := q.client.Add(backliteTask(t)).Ctx(ctx).Save()
	return err
}

func (q *backliteQueue) putBatch(ctx context.Context, ts []item) error {
	tasks := make([]backlite.Task, len(ts))
	for i, t := range ts {
		tasks[i] = backliteTask(t)
	}
	_, err := q.client.Add(tasks...).Ctx(ctx).Save()
	return err
}

func (q *backliteQueue) clear(ctx context.Context) error {
	_, err := q.db.ExecContext(ctx, "DELETE FROM backlite_tasks")
	return err
}

func (*backliteQueue) work(context.Context, int, worker) (func() error, error) {
	return nil, errors.New("only the puts of backlite are compared")
}

func (q *backliteQueue) close() error { return q.db.Close() }
