package pool

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// crew is the workers of a [Pool], or of a FairQueue, see [NewWorkers].
type crew struct {
	setup
	source source
	ctx    context.Context // parent of the handlers' contexts
	cancel context.CancelCauseFunc
	steady context.Context // for queues and sinks; done when Shutdown waits for no handler any more
	giveUp context.CancelFunc

	// Sinks have a little longer: patient is done when Shutdown does not wait for them any more either. Those that run on then are
	// forsaken.
	patient  context.Context
	forsake  context.CancelFunc
	forsaken atomic.Int64

	dropped, expirations, letters, leftover, refused counter // see Stats

	later           counters // of what is settled in the background
	ahead, settling atomic.Int64

	// attention is set if a worker must look at more than the source between two tasks.
	attention atomic.Bool

	// mu protects all that follows. Neither the source nor code of the user's is called under it.
	mu      sync.Mutex
	scale   Scale // as of now
	manual  bool  // it was set by SetWorkers
	paused  bool
	workers int // goroutines that may run a handler, without those in Yield
	nested  int // handlers in Yield
	inside  int // calls of Yield, of which a handler can make several
	all     map[*worker]struct{}
	idle    []*worker // those that wait for a task, the one that was busy last at the end
	leaving int       // workers that have to end though there is work, because the load is low
	gone    Stats     // the counters of workers that have ended
	reaper  reaper
	clock   clock
	retry   *time.Timer // when a source is asked again that has returned an error
	failing bool        // it has

	surplus   []work          // tasks that were taken and found no worker, because there were fewer all of a sudden; they are next
	returning []chan struct{} // handlers that come back from Yield and wait until there is a place
	away      int             // functions that run in the background

	submissions []*submission // those of inside that are submits, in the order in which they began
	unsticking  bool          // see unstickLocked

	fetching, again bool // see fetch

	closing bool            // Shutdown was called
	forced  bool            // and its time is over
	over    bool            // the source is
	done    context.Context // when closing, and the last worker has ended
	end     context.CancelFunc
	waiters []chan struct{} // those in Wait
	running sync.WaitGroup  // the workers' goroutines, and those in the background

	goroutines sync.Map // their numbers
}

// A source is what workers drain. It may be called by many goroutines at the same time, but fetch and await by one.
type source interface {
	// work takes the next task and does it. It returns false if there is none.
	work(w *worker) (ok bool, err error)

	// fetch takes the next task, for a worker to do it. If there is none it returns nil, and crew.fetch is called as soon as
	// there may be one, unless release is called before. If nothing may be taken at all, that hands back what was taken ahead.
	fetch() (task work, err error)
	release(all bool)

	// await has crew.fetch called as soon as a queue is as full as that, or, if it has no limit, a task waits. It returns
	// false if that is so. below tells whether all queues are less full.
	await(fullness float64) bool
	below(fullness float64) bool

	// more says that n more handlers run, or fewer if n is negative, because of Yield.
	more(n int64)
}

// work is a task that was taken.
type work interface{ do(w *worker) }

// worker is a goroutine that runs handlers.
type worker struct {
	crew    *crew
	ctx     context.Context // parent of those of its handlers
	next    chan work       // where an idle one gets a task; nil means that it has to end
	parked  time.Time       // since when it is idle
	started time.Time       // when its task was, if somebody asks for that
	depth   int             // calls of Yield; protected by crew.mu
	left    int             // how many others there were when it was taken off the books
	counts  counters
}

type workerKey struct{}

// workerOf returns the worker whose handler has this context, nil if there is none.
func workerOf(ctx context.Context) *worker {
	w, _ := ctx.Value(workerKey{}).(*worker)
	return w
}

// start begins to drain a source.
func (c *crew) start(s source) {
	c.source = s
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	c.steady, c.giveUp = context.WithCancel(context.Background())
	c.patient, c.forsake = context.WithCancel(context.Background())
	c.done, c.end = context.WithCancel(context.Background())
	c.clock.now = -1
	c.all = map[*worker]struct{}{}
	c.follow()
}

// mayTakeLocked tells whether tasks are taken at all.
func (c *crew) mayTakeLocked() bool {
	switch {
	case c.forced || c.over || c.scale.Max == 0:
		return false
	case c.closing:
		return c.nested > 0 // they may wait for what is queued
	}
	return !c.paused
}

// fetch takes tasks as long as there are workers for them. It is called whenever that may be so. When it is through, each idle
// worker that may take a task, and each one that could be started, is missing only as long as there is nothing for it: when
// that changes, the source calls fetch again.
func (c *crew) fetch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.again = true
	if c.fetching {
		return // who is at it goes on
	}
	c.fetching = true
	for c.again {
		c.again = false
		for c.fetchOneLocked() {
		}
	}
	c.fetching = false
	c.settleLocked()
}

// fetchOneLocked gives one task to a worker. It returns false if there is none, or no worker for it.
func (c *crew) fetchOneLocked() bool {
	if len(c.surplus) > 0 && (len(c.idle) > 0 || c.workers < max(c.scale.Max, 1)) {
		task := c.surplus[0]
		c.surplus = c.surplus[1:]
		c.assignLocked(task)
		return true
	}
	able := c.mayTakeLocked() && len(c.surplus) == 0
	full := able && len(c.idle) == 0 && c.workers > 0 && c.workers >= c.scale.Min // so another one depends on the load
	able = able && (!full || c.workers < c.scale.Max)
	wake, stopped := c.scale.WakeFactor, !c.mayTakeLocked()

	c.mu.Unlock()
	var task work
	if !able || full {
		c.source.release(stopped) // before await, which it would take back
	}
	if able && !(full && c.source.await(wake)) {
		var err error
		if task, err = c.source.fetch(); err != nil {
			c.failed(err)
		}
	}
	c.mu.Lock()

	if task != nil {
		c.failing = false
		c.assignLocked(task)
	}
	return task != nil
}

// assignLocked gives a task that was taken to an idle worker, or to a new one.
func (c *crew) assignLocked(task work) {
	switch n := len(c.idle); {
	case n > 0:
		w := c.idle[n-1]
		c.idle[n-1] = nil
		c.idle = c.idle[:n-1]
		w.next <- task
	case c.workers < max(c.scale.Max, 1):
		w := &worker{crew: c, next: make(chan work, 1)}
		w.ctx = context.WithValue(c.ctx, workerKey{}, w)
		c.all[w] = struct{}{}
		c.workers++
		c.attendLocked()
		n := c.workers
		c.begin(func() {
			defer w.run(task) // also if the Observer ends the goroutine
			c.scaled(n-1, n)
		})
	default:
		c.surplus = append(c.surplus, task)
		c.attendLocked()
	}
}

// attendLocked sets attention, and gives free places to those who come back. It is called whenever that may have to change.
func (c *crew) attendLocked() {
	for len(c.returning) > 0 && (c.workers < max(c.scale.Max, 1) || c.forced) {
		c.workers++
		close(c.returning[0])
		c.returning = c.returning[1:]
	}
	c.attention.Store(c.workers > c.scale.Max || c.leaving > 0 || len(c.surplus) > 0 || len(c.returning) > 0 || !c.mayTakeLocked())
	c.reapLaterLocked()
}

// sourceRetry is after how long a source is asked again that has returned an error.
const sourceRetry = time.Second

// background calls f in a goroutine of its own. Until that ends the crew is not calm.
func (c *crew) background(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done.Err() != nil {
		return
	}
	c.away++
	c.begin(func() {
		defer func() { // also if f ends the goroutine
			c.mu.Lock()
			defer c.mu.Unlock()
			c.away--
			c.settleLocked()
		}()
		f()
	})
}

// free returns how many workers wait for a task, or would be started for one in any case.
func (c *crew) free() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.idle) + max(c.scale.Min-c.workers, 0)
}

// failed is called when the source has returned an error.
func (c *crew) failed(err error) {
	if first := c.failedFirst(err); first {
		c.log.Error("pool: no tasks can be taken; trying again", "error", err)
	}
	if isOver(err) {
		c.fetch() // which finds that nothing is taken any more
	}
}

// failedFirst sees to it that the source is asked again, unless it is over. It tells whether it has worked until now.
func (c *crew) failedFirst(err error) (first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.over || c.forced:
		return false
	case isOver(err):
		c.over = true
		c.attendLocked()
		c.dismissLocked(len(c.idle))
		return false
	case c.retry == nil:
		c.retry = time.AfterFunc(sourceRetry, c.fetch)
	default:
		c.retry.Reset(sourceRetry)
	}
	first, c.failing = !c.failing, true
	return first
}

// run does tasks, until the worker has to end. The first one is given.
func (w *worker) run(task work) {
	c := w.crew
	end := false
	defer func() {
		if !end { // a handler has ended the goroutine, by runtime.Goexit
			c.mu.Lock()
			c.endLocked(w)
			c.mu.Unlock()
		}
		defer c.fetch() // also if the Observer ends the goroutine
		c.scaled(w.left+1, w.left)
	}()
	for {
		task.do(w)
		for more := true; more; {
			more = false
			if !c.attention.Load() {
				ok, err := c.source.work(w)
				if err != nil {
					c.failed(err)
				}
				more = ok
			}
		}
		if task, end = c.idleFor(w); end {
			return
		}
	}
}

// idleFor returns a task for a worker that has found nothing to do, or has been asked for attention. It waits for it. It returns
// nil if the worker has to end, and is off the books.
func (c *crew) idleFor(w *worker) (task work, end bool) {
	c.mu.Lock()
	switch {
	case len(c.returning) > 0:
		end = true // that one gets the place
	case len(c.surplus) > 0 && c.workers <= max(c.scale.Max, 1):
		task, c.surplus = c.surplus[0], c.surplus[1:]
		c.attendLocked()
		c.mu.Unlock()
		return task, false
	case c.leaving > 0:
		c.leaving--
		end = true
	default:
		end = c.workers > c.scale.Max || c.over || c.closing && !c.mayTakeLocked()
	}
	if end {
		c.endLocked(w)
		c.mu.Unlock()
		return nil, true
	}
	w.parked = time.Now()
	c.idle = append(c.idle, w)
	c.reapLaterLocked()
	c.settleLocked()
	c.mu.Unlock()
	c.fetch()
	task = <-w.next
	return task, task == nil
}

// dismissLocked ends idle workers, those first that have been idle for the longest time.
func (c *crew) dismissLocked(n int) {
	dismissed := slices.Clone(c.idle[:n])
	c.idle = slices.Delete(c.idle, 0, n)
	for _, w := range dismissed {
		c.endLocked(w)
		w.next <- nil
	}
}

// endLocked takes a worker off the books.
func (c *crew) endLocked(w *worker) {
	c.workers--
	w.left = c.workers
	delete(c.all, w)
	w.counts.addTo(&c.gone)
	c.leaving = min(c.leaving, c.workers)
	c.attendLocked()
	c.settleLocked()
}

// settleLocked tells those who wait for it that nothing happens any more. It is called whenever that may be so.
func (c *crew) settleLocked() {
	c.unstickLocked()
	if !c.calmLocked() {
		return
	}
	for _, wake := range c.waiters {
		close(wake)
	}
	c.waiters = nil
	if c.closing && c.workers == 0 {
		c.end()
	}
}

// settle is settleLocked for others.
func (c *crew) settle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settleLocked()
}

// calmLocked tells whether no worker has anything to do, and nothing is held or under way.
func (c *crew) calmLocked() bool {
	return len(c.idle) == c.workers && c.nested == 0 && !c.fetching && len(c.surplus) == 0 && c.away == 0 && c.ahead.Load() == 0
}

// calm waits until no worker has anything to do. It tells whether that was so at once, and so was what else is asked.
func (c *crew) calm(ctx context.Context, also func() bool) (atOnce bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	wake := make(chan struct{})
	c.mu.Lock()
	c.waiters = append(c.waiters, wake)
	calm := c.calmLocked()
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.waiters = slices.DeleteFunc(c.waiters, func(w chan struct{}) bool { return w == wake })
	}()
	if calm && also() {
		return true, nil
	}
	select {
	case <-wake:
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}
