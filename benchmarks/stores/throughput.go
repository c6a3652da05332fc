package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// entrant is a contestant with an open queue.
type entrant struct {
	contestant
	queue queue
	keys  int
	len   int // about how many tasks are in the queue

	// settle makes the database do its delayed work now. It may be nil.
	settle func(ctx context.Context) error
}

// title is the name and the version.
func (e *entrant) title() string {
	if v := moduleVersion(e.module); v != "" {
		return e.name + " " + v
	}
	return e.name
}

func (e *entrant) key(i int) string {
	if e.oneKey {
		return ""
	}
	return "tenant-" + strconv.Itoa(i%e.keys)
}

// prepare brings the queue to a length, or a little more.
func (e *entrant) prepare(ctx context.Context, n int) error {
	if e.len > n+n/4 {
		if err := e.queue.clear(ctx); err != nil {
			return err
		}
		e.len = 0
	}
	if e.len < n {
		if err := e.queue.fill(ctx, n-e.len, e.key); err != nil {
			return err
		}
		e.len = n
		if e.settle != nil {
			return e.settle(ctx)
		}
	}
	return nil
}

// trial is one measurement.
type trial struct {
	name    string
	backlog int // needed besides the selected one
	run     func(ctx context.Context, o *options, e *entrant, callers int) (done int,
		took time.Duration, err error)
}

const batchSize = 100

// trials returns the measurements of a store.
func trials(o *options) []trial {
	puts := trial{
		"puts/s", 0,
		func(ctx context.Context, o *options, e *entrant, callers int) (int, time.Duration, error) {
			return call(o, callers, 1,
				func(i int) error { return e.queue.put(ctx, item{e.key(i), payload(int64(i))}) })
		},
	}
	batches := trial{
		fmt.Sprintf("puts/s, %d at once", batchSize), 0,
		func(ctx context.Context, o *options, e *entrant, callers int) (int, time.Duration, error) {
			return call(o, callers, batchSize, func(first int) error {
				batch := make([]item, batchSize)
				for i := range batch {
					batch[i] = item{e.key(first + i), payload(int64(first + i))}
				}
				return e.queue.putBatch(ctx, batch)
			})
		},
	}
	if o.store == "sqlite" {
		return []trial{puts, {"take+ack/s", o.tasks, takeAndAck}}
	}
	return []trial{puts, {"tasks worked/s", o.tasks, work}, batches}
}

// call runs callers that call do, until all tasks are used up or time is over. do gets the first
// of several tasks and their number.
func call(o *options, callers, size int,
	do func(first int) error,
) (done int, took time.Duration, err error) {
	var next, did atomic.Int64
	var group sync.WaitGroup
	failed := make(chan error, callers)
	begun := time.Now()
	for range callers {
		group.Go(func() {
			for time.Since(begun) < o.time {
				first := int(next.Add(int64(size))) - size
				if first >= o.tasks {
					return
				}
				if err := do(first); err != nil {
					failed <- err
					return
				}
				did.Add(int64(size))
			}
		})
	}
	group.Wait()
	took = time.Since(begun)
	close(failed)
	return int(did.Load()), took, <-failed
}

// takeAndAck is work with callers in place of workers, if the queue is a taker.
func takeAndAck(ctx context.Context, o *options, e *entrant,
	callers int,
) (done int, took time.Duration, err error) {
	if q, ok := e.queue.(taker); ok {
		return measure(o, e.late,
			func(w worker) (func() error, error) { return workByTaking(ctx, q, callers, w) })
	}
	return work(ctx, o, e, callers)
}

func work(ctx context.Context, o *options, e *entrant,
	workers int,
) (done int, took time.Duration, err error) {
	return measure(o, e.late,
		func(w worker) (func() error, error) { return e.queue.work(ctx, workers, w) })
}

// startTimeout is how long a contestant may take to do its first task.
const startTimeout = 2 * time.Minute

// measure counts finished tasks from the begin of the first task, until the trial's tasks are done
// or time is over. A contestant that reports late is measured up to its last report.
func measure(o *options, late bool,
	start func(w worker) (stop func() error, err error),
) (done int, took time.Duration, err error) {
	var did, from, to atomic.Int64
	epoch := time.Now()
	begun, all := make(chan struct{}), make(chan struct{})
	stop, err := start(worker{
		begin: func(string) {
			if from.Load() == 0 && from.CompareAndSwap(0, int64(time.Since(epoch))) {
				close(begun)
			}
		},
		done: func() {
			to.Store(int64(time.Since(epoch)))
			if did.Add(1) == int64(o.tasks) {
				close(all)
			}
		},
	})
	if err != nil {
		return 0, 0, err
	}
	starting := time.NewTimer(startTimeout)
	defer starting.Stop()
	select {
	case <-begun:
	case <-starting.C:
		_ = stop()
		return 0, 0, errors.New("no task was begun for two minutes")
	}
	timer := time.NewTimer(o.time)
	defer timer.Stop()
	select {
	case <-all:
	case <-timer.C:
		for did.Load() == 0 && time.Since(epoch) < startTimeout { // it is this slow
			time.Sleep(time.Millisecond)
		}
	}
	end := to.Load()
	if !late && did.Load() < int64(o.tasks) {
		end = int64(time.Since(epoch))
	}
	done, took = int(did.Load()), time.Duration(end-from.Load())
	err = stop()
	if done == 0 && err == nil {
		err = errors.New("no task was done for two minutes")
	}
	return done, took, err
}

// compareThroughput does each trial with each contestant, one after the other, then all of it
// again, and so on.
func compareThroughput(ctx context.Context, o *options, running []*entrant, out,
	progress io.Writer,
) error {
	var tables []*table
	defer func() {
		for _, t := range tables {
			t.print(out)
		}
	}()
	list := trials(o)
	for _, tr := range list {
		tables = append(tables, newTable(tr.name, running))
	}
	for _, backlog := range o.backlogs {
		for round := range o.count {
			for _, callers := range o.callers {
				row := fmt.Sprintf("backlog %s, %d at a time", grouped(float64(backlog)), callers)
				for i, tr := range list {
					for _, e := range running {
						if err := ctx.Err(); err != nil {
							return err
						}
						if e.putsOnly && tr.backlog > 0 {
							continue
						}
						if err := e.prepare(ctx, backlog+tr.backlog); err != nil {
							return fmt.Errorf("%s, fill: %w", e.name, err)
						}
						done, took, err := tr.run(ctx, o, e, callers)
						if err != nil {
							return fmt.Errorf("%s, %s, %s: %w", e.name, tr.name, row, err)
						}
						if tr.backlog == 0 {
							e.len += done
						} else {
							e.len -= done
						}
						perSecond := float64(done) / took.Seconds()
						tables[i].add(row, e.name, perSecond)
						fmt.Fprintf(progress, "%s round %d: %s: %s: %s %s\n", time.Now().Format(time.TimeOnly),
							round+1, row, e.name, number1(perSecond), tr.name)
					}
				}
			}
		}
	}
	return nil
}
