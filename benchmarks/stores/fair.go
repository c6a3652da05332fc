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
	"time"

	"golang.org/x/exp/stats"

	"github.com/fairq/fairq/benchmarks/internal/figures"
)

// load is the load of -fair: a tenant with a backlog, and many that put one task now and then.
type load struct {
	heavy   int     // tasks that the big tenant puts first, and keeps in the queue
	light   int     // small tenants
	rate    float64 // tasks a second that these put, all together
	workers int
	service time.Duration // how long a task takes
}

// refill is how many tasks the big tenant puts at a time when some of its tasks are done.
const refill = 100

// fairRun is a round of one contestant. Tasks of the big tenant have the payload 0. Those of the
// small tenants have numbers from 1 as payloads.
type fairRun struct {
	*entrant
	o *options

	mu          sync.Mutex        // protects what follows
	unbegun     map[int]time.Time // the small tenants' tasks by number, and when put was called
	waits       []float64         // milliseconds from the call of put to the begin of the task
	begun       int               // tasks, with those of the big tenant
	first, last time.Time         // when these began
	failed      []error           // of puts; most are nil
}

// fairness measures how long the small tenants' tasks wait, with the same load for all. Tasks that
// have not begun after a long time count with the time that they have waited.
func fairness(ctx context.Context, o *options, e *entrant) (*fairRun, error) {
	if err := e.queue.clear(ctx); err != nil {
		return nil, err
	}
	r := &fairRun{entrant: e, o: o, unbegun: map[int]time.Time{}}
	heavyTask := item{e.key("heavy"), payload(0)}
	if err := e.fill(ctx, o.load.heavy, func(int) item { return heavyTask }); err != nil {
		return nil, err
	}
	stop, err := e.queue.work(ctx, o.load.workers, worker{begin: r.begin, done: func() {}})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	heavy := make(chan error, 1)
	go func() { heavy <- r.keepBacklog(ctx, slices.Repeat([]item{heavyTask}, refill)) }()
	err = r.putLight(ctx)
	for end := time.Now().Add(3 * o.time); r.left() > 0 && time.Now().Before(end); {
		_ = await(ctx, 10*time.Millisecond)
	}
	cancel()
	err = errors.Join(err, <-heavy, stop())
	for _, put := range r.unbegun {
		r.waits = append(r.waits, milliseconds(put))
	}
	return r, err
}

func milliseconds(since time.Time) float64 { return time.Since(since).Seconds() * 1000 }

func (r *fairRun) left() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.unbegun)
}

// begin records that a worker begins a task.
func (r *fairRun) begin(payload string) {
	r.mu.Lock()
	if r.last = time.Now(); r.begun == 0 {
		r.first = r.last
	}
	r.begun++
	n := number(payload)
	if put, ok := r.unbegun[n]; ok {
		r.waits = append(r.waits, milliseconds(put))
		delete(r.unbegun, n)
	}
	r.mu.Unlock()
	time.Sleep(r.o.load.service)
}

// keepBacklog puts tasks of the big tenant whenever some are done.
func (r *fairRun) keepBacklog(ctx context.Context, batch []item) error {
	for put := r.o.load.heavy; ctx.Err() == nil; {
		r.mu.Lock()
		done := r.begun - len(r.waits)
		r.mu.Unlock()
		if put-done > r.o.load.heavy-refill {
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
// returned. They are due at the same random times in each run.
func (r *fairRun) putLight(ctx context.Context) error {
	var group sync.WaitGroup
	random, start, due := rand.New(rand.NewPCG(1, 2)), time.Now(), 0.0
	for n := 1; ; n++ {
		due += random.ExpFloat64() / r.o.load.rate
		if due > r.o.time.Seconds() ||
			await(ctx, time.Duration(due*float64(time.Second))-time.Since(start)) != nil {
			break
		}
		key := r.key("light-" + strconv.Itoa(random.IntN(r.o.load.light)))
		group.Go(func() {
			r.mu.Lock()
			r.unbegun[n] = time.Now()
			r.mu.Unlock()
			err := r.queue.put(context.WithoutCancel(ctx), item{key, payload(n)})
			r.mu.Lock()
			r.failed = append(r.failed, err)
			r.mu.Unlock()
		})
	}
	group.Wait()
	return errors.Join(append(r.failed, ctx.Err())...)
}

// quantiles returns the median of the rounds' quantiles. It is a lower bound if one of these is
// the wait of a task that has not begun.
func quantiles(rounds []*fairRun, q float64) string {
	var values []float64
	prefix := ""
	for _, r := range rounds {
		if q*float64(len(r.waits)) >= float64(len(r.waits)-len(r.unbegun)) && len(r.unbegun) > 0 {
			prefix = "more than "
		}
		values = append(values, stats.Quantiles(r.waits, q)...)
	}
	return prefix + figures.Median(values)
}

// compareFairness prints how long the small tenants wait with each contestant.
func compareFairness(ctx context.Context, o *options, running []*entrant, out,
	progress io.Writer,
) error {
	all := map[*entrant][]*fairRun{}
	line := func(w io.Writer, e *entrant, rounds []*fairRun) {
		var speeds []float64
		for _, r := range rounds {
			speeds = append(speeds, float64(r.begun)/r.last.Sub(r.first).Seconds())
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s |\n", e.title(), quantiles(rounds, 0.5),
			quantiles(rounds, 0.99), figures.Median(speeds))
	}
	for range o.count {
		for _, e := range running {
			r, err := fairness(ctx, o, e)
			if err != nil {
				return fmt.Errorf("%s: %w", e.name, err)
			}
			all[e] = append(all[e], r)
			line(progress, e, []*fairRun{r})
		}
	}
	fmt.Fprintf(out,
		"\n### Small tenants' tasks beside a big tenant's backlog\n\n%d small tenants put %g tasks/s, "+
			"and one keeps %d in the queue; %d workers, %v a task.\n\n"+
			"| | wait, p50, ms | wait, p99, ms | tasks/s |\n|---|---|---|---|\n",
		o.load.light, o.load.rate, o.load.heavy, o.load.workers, o.load.service)
	for _, e := range running {
		line(out, e, all[e])
	}
	return nil
}
