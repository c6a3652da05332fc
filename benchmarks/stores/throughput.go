package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/exp/stats"

	"github.com/fairq/fairq/benchmarks/internal/figures"
)

const (
	keys      = 1_000
	batchSize = 100

	// fillSize is how many tasks are put at a time into a queue that is being filled.
	fillSize = 10_000
)

// entrant is a contestant with an open queue.
type entrant struct {
	contestant
	queue  queue
	settle func() error // makes the database do its delayed work now
	len    int          // about how many tasks are in the queue
}

// title is the name and the version.
func (e *entrant) title() string {
	return strings.TrimSpace(e.name + " " + moduleVersion(e.module))
}

func (e *entrant) key(tenant string) string {
	if e.oneKey {
		return ""
	}
	return tenant
}

func (e *entrant) item(i int) item {
	return item{e.key("tenant-" + strconv.Itoa(i%keys)), payload(i)}
}

// fill puts n tasks, which task returns.
func (e *entrant) fill(ctx context.Context, n int, task func(i int) item) error {
	var batch []item
	for i := range n {
		if batch = append(batch, task(i)); len(batch) == fillSize || i == n-1 {
			if err := e.queue.putBatch(ctx, batch); err != nil {
				return err
			}
			batch = batch[:0]
		}
	}
	return nil
}

// prepare brings the queue to a length, or a little more.
func (e *entrant) prepare(ctx context.Context, n int) error {
	if e.len > n+n/4 {
		if err := e.queue.clear(ctx); err != nil {
			return err
		}
		e.len = 0
	}
	if e.len >= n {
		return nil
	}
	if err := e.fill(ctx, n-e.len, e.item); err != nil {
		return err
	}
	e.len = n
	return e.settle()
}

// trial is one measurement.
type trial struct {
	name  string
	takes bool // it needs tasks besides the backlog
	run   func(ctx context.Context, o *options, e *entrant, callers int) (int, time.Duration, error)
}

func put(ctx context.Context, o *options, e *entrant, callers int) (int, time.Duration, error) {
	return call(o, callers, 1, func(i int) error { return e.queue.put(ctx, e.item(i)) })
}

func putBatches(
	ctx context.Context, o *options, e *entrant, callers int,
) (int, time.Duration, error) {
	return call(o, callers, batchSize, func(first int) error {
		batch := make([]item, batchSize)
		for i := range batch {
			batch[i] = e.item(first + i)
		}
		return e.queue.putBatch(ctx, batch)
	})
}

// call runs a number of callers. Each calls do for size tasks, again and again, until no task is
// left or the time is over. first is the number of the first of these tasks.
func call(o *options, callers, size int,
	do func(first int) error,
) (done int, took time.Duration, err error) {
	var next, did atomic.Int64
	var group sync.WaitGroup
	failed := make([]error, callers)
	begun := time.Now()
	for i := range callers {
		group.Go(func() {
			for time.Since(begun) < o.time && failed[i] == nil {
				first := int(next.Add(int64(size))) - size
				if first >= o.tasks {
					return
				}
				if failed[i] = do(first); failed[i] == nil {
					did.Add(int64(size))
				}
			}
		})
	}
	group.Wait()
	return int(did.Load()), time.Since(begun), errors.Join(failed...)
}

// takeAndAck has callers in place of workers.
func takeAndAck(
	ctx context.Context, o *options, e *entrant, callers int,
) (int, time.Duration, error) {
	return measure(o, func(w worker) (func() error, error) {
		return workByTaking(ctx, e.queue.(taker), callers, w)
	})
}

func work(ctx context.Context, o *options, e *entrant, workers int) (int, time.Duration, error) {
	return measure(o, func(w worker) (func() error, error) { return e.queue.work(ctx, workers, w) })
}

// measure counts tasks until all of the trial are done, or o.time has passed since the first one
// was done. took is the time from the begin of the first task to the end of the last one. If no
// task is done within a minute, o.time begins then.
func measure(o *options,
	start func(w worker) (stop func() error, err error),
) (done int, took time.Duration, err error) {
	var did, from, to atomic.Int64
	epoch := time.Now()
	first, all := make(chan struct{}), make(chan struct{})
	stop, err := start(worker{
		begin: func(string) {
			if from.Load() == 0 {
				from.CompareAndSwap(0, int64(time.Since(epoch)))
			}
		},
		done: func() {
			to.Store(int64(time.Since(epoch)))
			n := did.Add(1)
			if n == 1 {
				close(first)
			}
			if n == int64(o.tasks) {
				close(all)
			}
		},
	})
	if err != nil {
		return 0, 0, err
	}
	select {
	case <-first:
	case <-time.After(time.Minute):
	}
	select {
	case <-all:
	case <-time.After(o.time):
	}
	done, took = int(did.Load()), time.Duration(to.Load()-from.Load())
	if err = stop(); done == 0 && err == nil {
		err = errors.New("no task was done")
	}
	return done, took, err
}

// compareThroughput does each trial with each contestant, one after the other, then all of it
// again, and so on.
func compareThroughput(
	ctx context.Context, o *options, s *store, running []*entrant, out, progress io.Writer,
) error {
	var tables []*table
	defer func() {
		for _, t := range tables {
			t.print(out)
		}
	}()
	for _, tr := range s.trials {
		tables = append(tables, &table{tr, running, nil, map[cell][]float64{}})
	}
	for _, backlog := range o.backlogs {
		for round := range o.count {
			for _, n := range s.callers {
				row := fmt.Sprintf("backlog %d, %d at a time", backlog, n)
				for _, t := range tables {
					for _, e := range running {
						if e.putsOnly && t.takes {
							continue
						}
						perSecond, err := t.do(ctx, o, e, backlog, n)
						if err != nil {
							return fmt.Errorf("%s, %s, %s: %w", e.name, t.name, row, err)
						}
						t.add(row, e, perSecond)
						fmt.Fprintf(progress, "round %d: %s: %s: %.0f %s\n", round+1, row, e.name,
							perSecond, t.name)
					}
				}
			}
		}
	}
	return nil
}

// do returns how many tasks a second e has done.
func (t trial) do(
	ctx context.Context, o *options, e *entrant, backlog, callers int,
) (float64, error) {
	if t.takes {
		backlog += o.tasks
	}
	if err := errors.Join(ctx.Err(), e.prepare(ctx, backlog)); err != nil {
		return 0, err
	}
	done, took, err := t.run(ctx, o, e, callers)
	if e.len += done; t.takes {
		e.len -= 2 * done
	}
	return float64(done) / took.Seconds(), err
}

// table has a column for each contestant, and in each cell a value for each round.
type table struct {
	trial
	columns []*entrant
	rows    []string
	cells   map[cell][]float64
}

type cell struct {
	row    string
	column *entrant
}

func (t *table) add(row string, column *entrant, value float64) {
	if !slices.Contains(t.rows, row) {
		t.rows = append(t.rows, row)
	}
	c := cell{row, column}
	t.cells[c] = append(t.cells[c], value)
}

// print writes medians, and the ratio of the first column to the best other one. More is better.
func (t *table) print(w io.Writer) {
	fmt.Fprintf(w, "\n### %s\n\n| |", t.name)
	for _, c := range t.columns {
		fmt.Fprintf(w, " %s |", c.title())
	}
	fmt.Fprint(w, " ours : best other |\n|---|", strings.Repeat("---|", len(t.columns)), "---|\n")
	for _, row := range t.rows {
		fmt.Fprintf(w, "| %s |", row)
		var best []float64
		for i, c := range t.columns {
			rounds := t.cells[cell{row, c}]
			fmt.Fprintf(w, " %s |", figures.Median(rounds))
			if i > 0 && rounds != nil && (best == nil || stats.Median(rounds) > stats.Median(best)) {
				best = rounds
			}
		}
		fmt.Fprintf(w, " %s |\n", figures.Ratio(t.cells[cell{row, t.columns[0]}], best))
	}
}
