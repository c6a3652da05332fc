package main

import (
	"context"
	"log/slog"

	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/store/postgres"
	"github.com/fairq/fairq/store/sqlite"
	"github.com/fairq/fairq/task"
)

// ourQueue is a queue of package task in any task.Store.
type ourQueue struct {
	*task.Queue[string]
	closeStore func() error
}

// ours returns the open function of a contestant for a store.
func ours(open func(ctx context.Context, address string) (task.Store, func() error,
	error),
) func(context.Context, string) (queue, error) {
	return func(ctx context.Context, address string) (queue, error) {
		store, closeStore, err := open(ctx, address)
		if err != nil {
			return nil, err
		}
		q, err := task.Open[string](ctx, store, "bench", nil)
		if err != nil {
			_ = closeStore()
			return nil, err
		}
		return &ourQueue{q, closeStore}, nil
	}
}

func openOurSQLite(ctx context.Context, path string) (task.Store, func() error, error) {
	s, err := sqlite.Open(ctx, path, nil)
	if err != nil {
		return nil, nil, err
	}
	return s, s.Close, nil
}

func openOurPostgres(ctx context.Context, url string) (task.Store, func() error, error) {
	s, err := postgres.Open(ctx, url, nil)
	if err != nil {
		return nil, nil, err
	}
	return s, s.Close, nil
}

func (q *ourQueue) put(ctx context.Context, t item) error {
	_, err := q.Put(ctx, t.Key, t.Payload, task.PutOptions{})
	return err
}

func (q *ourQueue) putBatch(ctx context.Context, ts []item) error {
	batch := make([]task.Entry[string], len(ts))
	for i, t := range ts {
		batch[i] = task.Entry[string]{Key: t.Key, Payload: t.Payload}
	}
	_, err := q.PutBatch(ctx, batch)
	return err
}

func (q *ourQueue) fill(ctx context.Context, n int, key func(i int) string) error {
	const most = 10_000
	p := payload(fillNumber)
	for from := 0; from < n; from += most {
		batch := make([]task.Entry[string], min(most, n-from))
		for i := range batch {
			batch[i] = task.Entry[string]{Key: key(from + i), Payload: p}
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
	err := q.Close(context.Background())
	if e := q.closeStore(); err == nil {
		err = e
	}
	return err
}
