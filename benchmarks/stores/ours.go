package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/store/postgres"
	"github.com/fairq/fairq/store/sqlite"
	"github.com/fairq/fairq/task"
)

// ourQueue is a queue of package task.
type ourQueue struct {
	*task.Queue[string]
	closeStore func() error
}

func openOurSQLite(ctx context.Context, path string) (queue, error) {
	s, err := sqlite.Open(ctx, path, nil)
	if err != nil {
		return nil, err
	}
	q, err := task.Open[string](ctx, s, "bench", nil)
	return &ourQueue{q, s.Close}, err
}

func openOurPostgres(ctx context.Context, url string) (queue, error) {
	s, err := postgres.Open(ctx, url+connections, nil)
	if err != nil {
		return nil, err
	}
	q, err := task.Open[string](ctx, s, "bench", nil)
	return &ourQueue{q, s.Close}, err
}

func (q *ourQueue) put(ctx context.Context, t item) error {
	_, err := q.Put(ctx, t.Key, t.Payload, task.PutOptions{})
	return err
}

func (q *ourQueue) putBatch(ctx context.Context, ts []item) error {
	for some := range slices.Chunk(ts, 500) { // Redis has a limit
		batch := make([]task.Entry[string], len(some))
		for i, t := range some {
			batch[i] = task.Entry[string]{Key: t.Key, Payload: t.Payload}
		}
		if _, err := q.PutBatch(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

func (q *ourQueue) clear(ctx context.Context) error {
	_, err := q.Truncate(ctx)
	return err
}

func (q *ourQueue) take(ctx context.Context) (string, func(context.Context) error, error) {
	t, err := q.Take(ctx)
	if err != nil {
		return "", nil, err
	}
	return t.Payload, t.Ack, nil
}

func (q *ourQueue) work(_ context.Context, workers int, w worker) (stop func() error, err error) {
	handler := func(_ context.Context, t *task.Task[string]) error {
		w.begin(t.Payload)
		w.done() // up to 256 tasks are not acked yet
		return nil
	}
	p := pool.New(q.Queue, handler,
		&pool.Options[string]{Workers: workers, Logger: slog.New(slog.DiscardHandler)})
	return func() error { return p.Shutdown(context.Background()) }, nil
}

func (q *ourQueue) close() error {
	return errors.Join(q.Close(context.Background()), q.closeStore())
}
