package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// queue is a durable queue of one of the contestants. All methods but close may be called by
// several goroutines.
type queue interface {
	put(ctx context.Context, t item) error
	putBatch(ctx context.Context, ts []item) error // in one transaction

	// fill puts n tasks in the fastest way, each with the payload of fillNumber. key returns the
	// key of the i-th.
	fill(ctx context.Context, n int, key func(i int) string) error

	// clear deletes all tasks, while no worker runs.
	clear(ctx context.Context) error

	// work starts workers. stop waits for their tasks.
	work(ctx context.Context, workers int, w worker) (stop func() error, err error)

	close() error
}

// taker is a queue whose tasks can be taken and acked without workers. take waits for a task.
type taker interface {
	take(ctx context.Context) (payload string, ack func(ctx context.Context) error, err error)
}

// worker has the calls of workers: begin when they have a task, and done when it has left the
// queue.
type worker struct {
	begin func(payload string)
	done  func()
}

// item is a task.
type item struct {
	Key     string `json:"key"`
	Payload string `json:"payload"`
}

// fillNumber is the number in the payloads of fill.
const fillNumber = 0

// payload returns a payload of 100 bytes with a number in it.
func payload(number int64) string { return fmt.Sprintf("%-100d", number) }

// number returns the number in a payload.
func number(payload string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(payload), 10, 64)
	if err != nil {
		panic(err) // the payload differs from the one put
	}
	return n
}

// workByTaking is work for a taker: goroutines that take and ack.
func workByTaking(ctx context.Context, q taker, workers int,
	w worker,
) (stop func() error, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	failed := make(chan error, workers)
	for range workers {
		group.Go(func() {
			for ctx.Err() == nil {
				payload, ack, err := q.take(ctx)
				if err == nil {
					w.begin(payload)
					err = ack(context.WithoutCancel(ctx))
				}
				if err != nil {
					if ctx.Err() == nil {
						failed <- err
					}
					return
				}
				w.done()
			}
		})
	}
	return func() error {
		cancel()
		group.Wait()
		close(failed)
		var all []error
		for err := range failed {
			all = append(all, err)
		}
		return errors.Join(all...)
	}, nil
}

// await waits for a time.
func await(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
