package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// load is the load of -fair: a tenant with a backlog, and many that put one task now and then.
type load struct {
	heavy   int // tasks that the big tenant puts first, and keeps in the queue
	light   int // small tenants
	rate    float64
	workers int
	service time.Duration // how long a task takes
}

// refill is how many tasks the big tenant puts at a time when some of its tasks are done.
const refill = 100

// waits has the measurements of a round.
type waits struct {
	light     []time.Duration // from the call of put to the begin of the task, sorted
	unbegun   int             // of these, tasks that never began
	perSecond float64         // tasks begun, with those of the big tenant
}

// run is a round of one contestant.
type fairRun struct {
	o     *options
	queue queue
	key   func(tenant string) string
	// by number of the small tenants' task: nanoseconds since start, 0 if not yet
	put, begun  []atomic.Int64
	start       time.Time
	heavyBegun  atomic.Int64
	lightBegun  atomic.Int64
	first, last atomic.Int64 // when the first and the last task was begun
}

// fairness measures how long the small tenants' tasks wait, with the same load for all.
func fairness(ctx context.Context, o *options, e *entrant) (*waits, error) {
	if err := e.queue.clear(ctx); err != nil {
		return nil, err
	}
	r := &fairRun{o: o, queue: e.queue, key: func(tenant string) string {
		if e.oneKey {
			return ""
		}
		return tenant
	}}
	if err := e.queue.fill(ctx, o.load.heavy,
		func(int) string { return r.key("heavy") }); err != nil {
		return nil, err
	}
	due := arrivals(o)
	r.put, r.begun = make([]atomic.Int64, len(due)+1), make([]atomic.Int64, len(due)+1)
	r.start = time.Now()
	stop, err := e.queue.work(ctx, o.load.workers, worker{begin: r.begin, done: func() {}})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var heavyErr error
	var heavy sync.WaitGroup
	heavy.Go(func() { heavyErr = r.keepBacklog(ctx) })
	err = r.putLight(ctx, due)
	r.await(ctx, len(due), 3*o.time)
	w := r.result(len(due))
	cancel()
	heavy.Wait()
	return w, errors.Join(err, heavyErr, stop())
}

// arrivals are the times at which small tenants put a task, the same in each run.
func arrivals(o *options) (all []time.Duration) {
	random := rand.New(rand.NewPCG(1, 2))
	for at := 0.0; ; {
		at += random.ExpFloat64() / o.load.rate
		if at > o.time.Seconds() {
			return all
		}
		all = append(all, time.Duration(at*float64(time.Second)))
	}
}

// begin records that a worker begins a task.
func (r *fairRun) begin(payload string) {
	now := int64(time.Since(r.start))
	r.first.CompareAndSwap(0, now)
	r.last.Store(now)
	if n := number(payload); n == fillNumber {
		r.heavyBegun.Add(1)
	} else if r.begun[n].CompareAndSwap(0, now) {
		r.lightBegun.Add(1)
	}
	time.Sleep(r.o.load.service)
}

// keepBacklog puts tasks of the big tenant whenever some are done.
func (r *fairRun) keepBacklog(ctx context.Context) error {
	batch := slices.Repeat([]item{{r.key("heavy"), payload(fillNumber)}}, refill)
	for put := r.o.load.heavy; ctx.Err() == nil; {
		if int64(put)-r.heavyBegun.Load() > int64(r.o.load.heavy-refill) {
			_ = await(ctx, 2*time.Millisecond)
			continue
		}
		if err := r.queue.putBatch(context.WithoutCancel(ctx), batch); err != nil {
			return err
		}
		put += refill
	}
	return nil
}

// putLight puts the small tenants' tasks when they are due, whether or not earlier puts have
// returned.
func (r *fairRun) putLight(ctx context.Context, due []time.Duration) error {
	var group sync.WaitGroup
	failed := make(chan error, len(due))
	tenants := rand.New(rand.NewPCG(3, 4))
	begun := time.Now()
	for i, at := range due {
		if await(ctx, at-time.Since(begun)) != nil {
			break
		}
		n, tenant := int64(i+1), "light-"+strconv.Itoa(tenants.IntN(r.o.load.light))
		group.Go(func() {
			r.put[n].Store(int64(time.Since(r.start)))
			if err := r.queue.put(context.WithoutCancel(ctx), item{r.key(tenant), payload(n)}); err != nil {
				failed <- err
			}
		})
	}
	group.Wait()
	close(failed)
	return errors.Join(<-failed, ctx.Err())
}

// await waits until n tasks of small tenants have begun, or the time is over.
func (r *fairRun) await(ctx context.Context, n int, most time.Duration) {
	for end := time.Now().Add(most); r.lightBegun.Load() < int64(n) && time.Now().Before(end); {
		if await(ctx, 10*time.Millisecond) != nil {
			return
		}
	}
}

func (r *fairRun) result(n int) *waits {
	w := &waits{}
	now := int64(time.Since(r.start))
	for i := 1; i <= n; i++ {
		begun := r.begun[i].Load()
		if begun == 0 {
			begun = now
			w.unbegun++
		}
		w.light = append(w.light, time.Duration(begun-r.put[i].Load()))
	}
	slices.Sort(w.light)
	if took := time.Duration(r.last.Load() - r.first.Load()); took > 0 {
		w.perSecond = float64(r.heavyBegun.Load()+r.lightBegun.Load()) / took.Seconds()
	}
	return w
}

// quantile returns milliseconds. It is a lower bound if known is false.
func (w *waits) quantile(q float64) (ms float64, known bool) {
	if len(w.light) == 0 {
		return 0, false
	}
	i := int(q * float64(len(w.light)-1))
	return float64(w.light[i]) / float64(time.Millisecond), i < len(w.light)-w.unbegun
}

// compareFairness prints how long the small tenants wait with each contestant.
func compareFairness(ctx context.Context, o *options, running []*entrant, out,
	progress io.Writer,
) error {
	all := map[*entrant][]*waits{}
	for round := range o.count {
		for _, e := range running {
			if err := ctx.Err(); err != nil {
				return err
			}
			w, err := fairness(ctx, o, e)
			if err != nil {
				return fmt.Errorf("%s: %w", e.name, err)
			}
			all[e] = append(all[e], w)
			fmt.Fprintf(progress, "%s round %d: %s: p50 %s ms, p99 %s ms, %s tasks/s\n",
				time.Now().Format(time.TimeOnly), round+1, e.name,
				quantiles(all[e][round:], 0.5), quantiles(all[e][round:], 0.99), number1(w.perSecond))
		}
	}
	fmt.Fprintf(out,
		"\n### Small tenants' tasks beside a big tenant's backlog\n\n%d small tenants put %g tasks/s, "+
			"and one keeps %s in the queue; %d workers, %v a task.\n\n",
		o.load.light, o.load.rate, grouped(float64(o.load.heavy)), o.load.workers, o.load.service)
	fmt.Fprint(out, "| | wait, p50, ms | wait, p99, ms | tasks/s |\n|---|---|---|---|\n")
	for _, e := range running {
		var speeds []float64
		for _, w := range all[e] {
			speeds = append(speeds, w.perSecond)
		}
		fmt.Fprintf(out, "| %s | %s | %s | %s |\n", e.title(), quantiles(all[e], 0.5),
			quantiles(all[e], 0.99), number1(median(speeds)))
	}
	return nil
}

// quantiles returns the median of the rounds' quantiles.
func quantiles(rounds []*waits, q float64) string {
	var values []float64
	prefix := ""
	for _, w := range rounds {
		ms, known := w.quantile(q)
		if !known {
			prefix = "more than "
		}
		values = append(values, ms)
	}
	return prefix + number1(median(values))
}
