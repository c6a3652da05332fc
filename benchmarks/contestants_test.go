package benchmarks_test

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/alitto/pond/v2"
	"github.com/gammazero/workerpool"
	koykov "github.com/koykov/queue"
	"github.com/panjf2000/ants/v2"
	conc "github.com/sourcegraph/conc/pool"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// item is submitted to a pool. Only fairq looks at Key.
type item struct {
	Key string
	N   int
}

// contestant is a worker pool. start returns submit and stop. Any number of goroutines call
// submit. After all these calls have returned, stop is called once; it waits until every item has
// been handled.
type contestant struct {
	name      string
	unlimited bool // a capacity of 0 means no limit
	start     func(workers, capacity int, handle func(item)) (submit func(item), stop func())
}

// contestants are in the order of the tables. The others are divided by the first one.
var contestants = []contestant{
	{"channel", false, startChannel},
	{"fairq.FairQueue", true, startFairQueue},
	{"fairq pool.NewWorkers", true, startNewWorkers},
	{"fairq pool.Func", true, startFunc},
	{"pond", true, startPond},
	{"koykov", false, startKoykov},
	{"ants", false, startAnts},
	{"workerpool", true, startWorkerpool},
	{"conc", false, startConc},
}

func startChannel(workers, capacity int, handle func(item)) (submit func(item), stop func()) {
	items := make(chan item, capacity)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for it := range items {
				handle(it)
			}
		})
	}
	return func(it item) { items <- it }, func() {
		close(items)
		wg.Wait()
	}
}

func startFairQueue(workers, capacity int, handle func(item)) (submit func(item), stop func()) {
	ctx := context.Background()
	queue := fairq.New(func(it item) string { return it.Key },
		&fairq.Options[string, item]{Capacity: cmp.Or(capacity, fairq.Unbounded)})
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for {
				it, err := queue.PopWait(ctx)
				if err != nil {
					return // closed, and nothing is left
				}
				handle(it)
			}
		})
	}
	return func(it item) { must(queue.PushWait(ctx, it)) }, func() {
		queue.Close()
		wg.Wait()
	}
}

// startNewWorkers has workers of package pool drain a FairQueue.
func startNewWorkers(workers, capacity int, handle func(item)) (submit func(item), stop func()) {
	ctx := context.Background()
	queue := fairq.New(func(it item) string { return it.Key },
		&fairq.Options[string, item]{Capacity: cmp.Or(capacity, fairq.Unbounded)})
	p := pool.NewWorkers(queue, func(_ context.Context, it item) error {
		handle(it)
		return nil
	}, &pool.WorkersOptions[item]{Workers: workers, Logger: slog.New(slog.DiscardHandler)})
	return func(it item) { must(queue.PushWait(ctx, it)) }, func() {
		queue.Close()
		must(p.Wait(ctx))
		must(p.Shutdown(ctx))
	}
}

// startFunc has them drain a queue of tasks in memory: with retries, delays, priorities and so on,
// though none are used here.
func startFunc(workers, capacity int, handle func(item)) (submit func(item), stop func()) {
	ctx := context.Background()
	p := pool.Func(func(_ context.Context, t *task.Task[item]) error {
		handle(t.Payload)
		return nil
	}, &pool.Options[item]{
		Workers: workers, Queue: task.Options[item]{Capacity: capacity},
		Logger: slog.New(slog.DiscardHandler),
	})
	return func(it item) { must(p.Submit(ctx, it.Key, it)) }, func() {
		must(p.Wait(ctx))
		must(p.Shutdown(ctx))
	}
}

// startPond uses Go, because Submit allocates a future for each task.
func startPond(workers, capacity int, handle func(item)) (submit func(item), stop func()) {
	p := pond.NewPool(workers, pond.WithQueueSize(capacity))
	return func(it item) { must(p.Go(func() { handle(it) })) }, p.StopAndWait
}

// koykovWorker is the handler of a koykov/queue, which boxes items as any.
type koykovWorker func(item)

func (f koykovWorker) Do(x any) error {
	f(x.(item))
	return nil
}

// startKoykov counts handled items, because Close does not wait for them.
func startKoykov(workers, capacity int, handle func(item)) (submit func(item), stop func()) {
	var left sync.WaitGroup
	q, err := koykov.New(&koykov.Config{
		Capacity: uint64(capacity), Workers: uint32(workers),
		Worker: koykovWorker(func(it item) {
			handle(it)
			left.Done()
		}),
	})
	must(err)
	return func(it item) {
			left.Add(1)
			must(q.Enqueue(it))
		}, func() {
			left.Wait()
			must(q.Close())
		}
}

// startAnts uses the pool with one typed function, which needs no closure for each item. It has no
// queue: Invoke waits for an idle worker.
func startAnts(workers, _ int, handle func(item)) (submit func(item), stop func()) {
	p, err := ants.NewPoolWithFuncGeneric(workers, handle)
	must(err)
	return func(it item) { must(p.Invoke(it)) }, func() { must(p.ReleaseTimeout(time.Minute)) }
}

// startWorkerpool has a queue without limit behind a goroutine that hands out the tasks.
func startWorkerpool(workers, _ int, handle func(item)) (submit func(item), stop func()) {
	p := workerpool.New(workers)
	return func(it item) { must(p.Do(func() { handle(it) })) }, p.StopWait
}

// startConc has no queue: Go waits for an idle goroutine.
func startConc(workers, _ int, handle func(item)) (submit func(item), stop func()) {
	p := conc.New().WithMaxGoroutines(workers)
	return func(it item) { p.Go(func() { handle(it) }) }, p.Wait
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
