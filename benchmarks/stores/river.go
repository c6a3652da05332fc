package main

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverQueue is a queue of github.com/riverqueue/river.
type riverQueue struct {
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx] // which inserts
}

// riverArgs is an item for River.
type riverArgs item

func (riverArgs) Kind() string { return "bench" }

type riverWorker struct {
	river.WorkerDefaults[riverArgs]
	begin func(payload string)
}

func (w *riverWorker) Work(_ context.Context, job *river.Job[riverArgs]) error {
	w.begin(job.Args.Payload)
	return nil
}

func openRiver(ctx context.Context, dsn string) (queue, error) {
	pool, err := pgxpool.New(ctx, dsn+connections)
	if err != nil {
		return nil, err
	}
	q := &riverQueue{pool: pool}
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, nil)
	if err == nil {
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	if err == nil {
		q.client, err = river.NewClient(driver, &river.Config{Logger: riverLogger()})
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	return q, nil
}

func riverLogger() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}

func (q *riverQueue) put(ctx context.Context, t item) error {
	_, err := q.client.Insert(ctx, riverArgs(t), nil)
	return err
}

// putBatch uses COPY, which is faster than InsertMany.
func (q *riverQueue) putBatch(ctx context.Context, ts []item) error {
	params := make([]river.InsertManyParams, len(ts))
	for i, t := range ts {
		params[i].Args = riverArgs(t)
	}
	_, err := q.client.InsertManyFast(ctx, params)
	return err
}

func (q *riverQueue) clear(ctx context.Context) error {
	_, err := q.pool.Exec(ctx, "TRUNCATE river_job")
	return err
}

// work uses the settings of River's own benchmark of throughput. A job counts as done when River
// reports it as completed.
func (q *riverQueue) work(ctx context.Context, workers int,
	w worker,
) (stop func() error, err error) {
	registry := river.NewWorkers()
	river.AddWorker(registry, &riverWorker{begin: w.begin})
	client, err := river.NewClient(riverpgxv5.New(q.pool), &river.Config{
		FetchCooldown:     2 * time.Millisecond,
		FetchPollInterval: 20 * time.Millisecond,
		Logger:            riverLogger(),
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}},
		Workers:           registry,
	})
	if err != nil {
		return nil, err
	}
	completed, unsubscribe := client.SubscribeConfig(&river.SubscribeConfig{
		ChanSize: 100_000, Kinds: []river.EventKind{river.EventKindJobCompleted},
	})
	var counting sync.WaitGroup
	counting.Go(func() {
		for range completed {
			w.done()
		}
	})
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		unsubscribe()
		counting.Wait()
		return nil, err
	}
	return func() error {
		err := client.Stop(context.Background())
		unsubscribe()
		counting.Wait()
		return err
	}, nil
}

func (q *riverQueue) close() error {
	q.pool.Close()
	return nil
}
