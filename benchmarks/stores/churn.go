package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairq/fairq/task"
)

// variant is what -churn compares.
type variant struct {
	name     string
	settings string // of the table of tasks; "" leaves them as the store makes them
	snapshot bool   // somewhere in the database a transaction is open all the time
	options  task.Options[string]
	put      task.PutOptions
}

var limited = task.Options[string]{MaxInFlightPerKey: 4}

var variants = []variant{
	{name: "as they are"},
	{settings: "fillfactor=70"},
	{settings: "autovacuum_vacuum_cost_delay=0"},
	{settings: "autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=10000, autovacuum_vacuum_cost_delay=0"},
	{settings: "autovacuum_enabled=off"},
	{name: "as they are, beside an old snapshot", snapshot: true},
	{name: "as they are, with MaxInFlightPerKey and TTR", options: limited, put: task.PutOptions{TTR: time.Minute}},
	{name: "the same, beside an old snapshot", options: limited, put: task.PutOptions{TTR: time.Minute}, snapshot: true},
}

// churn is what came of a variant.
type churn struct {
	perSecond [4]float64 // in each quarter of the time
	bytes     int64      // of the table and its indexes, in the end
	dead      int64      // rows
	vacuums   int64
}

const (
	churnPutters = 4
	churnWorkers = 8
	churnBatch   = 25
)

// compareChurn puts and works off tasks for so long that vacuum matters, with each variant in a
// database of its own.
func compareChurn(ctx context.Context, o *options, out, progress io.Writer) error {
	// so that a run need not take an hour
	s, err := startServer(ctx, o.dir, "autovacuum_naptime=10s")
	if err != nil {
		return err
	}
	defer s.stop()
	version, err := s.version(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\nPostgreSQL %s, autovacuum_naptime=10s, %v for each line; %d callers put %d tasks at once, %d workers do them; about %s are queued.\n\n",
		version, o.time, churnPutters, churnBatch, churnWorkers, grouped(churnBacklog))
	fmt.Fprint(out, "| table of tasks | tasks/s, by quarters | table and indexes, MiB | dead rows | vacuums |\n|---|---|---|---|---|\n")
	for i, v := range variants {
		dsn, err := s.database(ctx, fmt.Sprint("churn", i))
		if err != nil {
			return err
		}
		c, err := measureChurn(ctx, o, dsn, v)
		if err != nil {
			return fmt.Errorf("%s: %w", cmp.Or(v.name, v.settings), err)
		}
		quarters := make([]string, len(c.perSecond))
		for i, n := range c.perSecond {
			quarters[i] = number1(n)
		}
		line := fmt.Sprintf("| %s | %s | %d | %s | %d |", cmp.Or(v.name, v.settings), strings.Join(quarters, ", "), c.bytes>>20, grouped(float64(c.dead)), c.vacuums)
		fmt.Fprintln(out, line)
		fmt.Fprintln(progress, time.Now().Format(time.TimeOnly), line)
	}
	return nil
}

// churnBacklog is about how many tasks are queued.
const churnBacklog = 10_000

func measureChurn(ctx context.Context, o *options, dsn string, v variant) (c churn, err error) {
	store, closeStore, err := openOurPostgres(ctx, dsn)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, closeStore()) }()
	tasks, err := task.Open(ctx, store, "churn", &v.options)
	if err != nil {
		return c, err
	}
	db, err := openPool(ctx, dsn)
	if err != nil {
		return c, err
	}
	defer db.Close()
	if v.settings != "" {
		if _, err := db.Exec(ctx, "ALTER TABLE fairq.tasks SET ("+v.settings+")"); err != nil {
			return c, err
		}
	}
	if v.snapshot {
		tx, err := db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		if err != nil {
			return c, err
		}
		defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
		if _, err := tx.Exec(ctx, "SELECT count(*) FROM fairq.tasks"); err != nil {
			return c, err
		}
	}
	q := &ourQueue{tasks, nil}
	e := &entrant{keys: o.keys}
	var queued, done atomic.Int64
	stop, err := q.work(ctx, churnWorkers, worker{begin: func(string) {}, done: func() { done.Add(1); queued.Add(-1) }})
	if err != nil {
		return c, err
	}
	ctx, cancel := context.WithTimeout(ctx, o.time)
	defer cancel()
	var putters sync.WaitGroup
	failed := make(chan error, churnPutters)
	for range churnPutters {
		putters.Go(func() {
			for i := 0; ctx.Err() == nil; i += churnBatch {
				if queued.Load() > churnBacklog {
					_ = await(ctx, nil, time.Millisecond)
					continue
				}
				batch := make([]task.Entry[string], churnBatch)
				for j := range batch {
					batch[j] = task.Entry[string]{Key: e.key(i + j), Payload: payload(fillNumber), Options: v.put}
				}
				queued.Add(churnBatch)
				if _, err := tasks.PutBatch(context.WithoutCancel(ctx), batch); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	begun, before := time.Now(), int64(0)
	for i := range c.perSecond {
		_ = await(context.WithoutCancel(ctx), nil, time.Until(begun.Add(o.time*time.Duration(i+1)/time.Duration(len(c.perSecond)))))
		now := done.Load()
		c.perSecond[i] = float64(now-before) / (o.time.Seconds() / float64(len(c.perSecond)))
		before = now
	}
	cancel()
	putters.Wait()
	close(failed)
	if err := errors.Join(<-failed, stop()); err != nil {
		return c, err
	}
	return c, c.look(context.WithoutCancel(ctx), db)
}

// look reads what the server knows of the table.
func (c *churn) look(ctx context.Context, db *pgxpool.Pool) error {
	time.Sleep(time.Second) // the server tells its counts so often
	return db.QueryRow(ctx, `SELECT pg_total_relation_size(relid), n_dead_tup, autovacuum_count FROM pg_stat_user_tables
		WHERE schemaname = 'fairq' AND relname = 'tasks'`).Scan(&c.bytes, &c.dead, &c.vacuums)
}
