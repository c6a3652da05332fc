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

	// clear deletes all tasks, while no worker runs.
	clear(ctx context.Context) error

	// work starts the contestant's workers. stop waits for their tasks.
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

// payload returns a payload of 100 bytes with a number in it.
func payload(number int) string { return fmt.Sprintf("%-100d", number) }

// number returns the number in a payload.
func number(payload string) int {
	n, err := strconv.Atoi(strings.TrimSpace(payload))
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
	failed := make([]error, workers)
	for i := range workers {
		group.Go(func() {
			for ctx.Err() == nil {
				payload, ack, err := q.take(ctx)
				if err == nil {
					w.begin(payload)
					err = ack(context.WithoutCancel(ctx))
				}
				if err != nil {
					if ctx.Err() == nil {
						failed[i] = err
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
		return errors.Join(failed...)
	}, nil
}

// await waits for a time.
func await(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
