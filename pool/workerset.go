package pool

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// workerSet is the workers of a [Pool], or of [Workers]: goroutines that take tasks from a source
// and run handlers. It starts them when there are tasks and ends them when there are none.
//
// A task goes one of two ways. A worker that has just finished one takes the next itself, from the
// source, without mu: while slowPath is false it need not know of the others. If it finds none, it
// is idle, and then dispatch gives it a task, or starts another worker for one. Only one goroutine
// dispatches at a time, and the source calls dispatch whenever there may be a task again.
type workerSet struct {
	workerSettings
	source source

	// When the ctx of Shutdown is done, three contexts end one after the other: ctx, the parent of
	// the handlers' contexts; AbandonAfter later storeCtx, for calls of queues and sinks; another
	// AbandonAfter later sinkCtx. After that Shutdown waits for no sink.
	ctx            context.Context
	cancel         context.CancelCauseFunc
	storeCtx       context.Context
	cancelStore    context.CancelFunc
	sinkCtx        context.Context
	cancelSinks    context.CancelFunc
	abandonedSinks atomic.Int64 // abandoned sinks that still run

	recent recent

	counts        counters // of events that are no running worker's
	leftoverCount atomic.Uint64
	prefetched    atomic.Int64 // tasks that were taken and not started, see prefetcher
	settling      atomic.Int64 // attempts that are settled in the background

	// slowPath is set if a worker must take mu between two tasks: because it may have to end, or
	// to make place for a handler that returns from Yield, or because no task may be taken. See
	// updateLocked.
	slowPath atomic.Bool

	// mu protects the fields below. Neither the source nor user code is called under it.
	mu            sync.Mutex
	scale         Scale // as of now
	manual        bool  // scale was set by SetWorkers
	paused        bool
	active        int // workers, without workers whose handlers are in Yield
	yielding      int // handlers in Yield
	repeating     int // further runs of repeating tasks, see repeats: Wait does not wait for them
	all           map[*worker]struct{}
	idle          []*worker // workers that wait for a task; the last busy one is at the end
	toEnd         int       // how many must end because the load is low, though there is work
	reaper        reaper
	scheduleClock scheduleClock
	retryTimer    *time.Timer // retries a source that has returned an error
	failing       bool        // the source has returned an error, and no task since

	unassigned      []job           // tasks that were taken when Scale.Max was more; they are next
	returning       []chan struct{} // handlers that return from Yield and wait for a place
	backgroundCalls int             // functions that run in background
	letters         int             // dead letters in hand, see holdLetter
	lettersGone     chan struct{}   // closed when there is none any more; nil if there is none

	dispatching, dispatchAgain bool // see dispatch

	closing    bool            // Shutdown was called
	cancelled  bool            // and its time is over, so handlers were cancelled
	sourceOver bool            // the source will never have a task again
	done       context.Context // done when Shutdown was called and the last worker has ended
	markDone   context.CancelFunc
	over       context.Context // done when Shutdown has returned
	markOver   context.CancelFunc
	waiters    []chan struct{} // calls of waitQuiet
	running    sync.WaitGroup  // all goroutines that Shutdown waits for
}

// source has the tasks of the workers. Many goroutines may call its methods at the same time, but
// only the dispatching one may call takeOrWatch and watchLoad.
type source interface {
	// runNext takes the next task and runs it. It returns false if there is none.
	runNext(w *worker) (ok bool, err error)

	// takeOrWatch takes the next task for a worker. If there is none it returns nil, and the
	// source calls workerSet.dispatch as soon as there may be one, unless disarm is called before.
	// With handBack, disarm also hands back prefetched tasks.
	takeOrWatch() (task job, err error)
	disarm(handBack bool)

	// watches reports whether the source is sure to call dispatch when there is a task, unless
	// disarm is called before: then there is none to take now. It may be called with mu.
	watches() bool

	// watchLoad schedules a call of workerSet.dispatch when a queue is full enough for another
	// worker, see Scale. If it is already, it returns false instead. loadIsLow reports whether all
	// queues are empty enough to end a worker.
	watchLoad() bool
	loadIsLow() bool

	// drains reports whether the source takes tasks from this queue.
	drains(queue any) bool

	// addRunning adds n to the number of running handlers, which Yield changes.
	addRunning(n int64)
}

// job is a taken task.
type job interface{ do(w *worker) }

// worker is a goroutine that runs handlers.
type worker struct {
	set        *workerSet
	ctx        context.Context // parent of its handlers' contexts; workerOf finds the worker by it
	next       chan job        // gives a task to an idle worker; nil means that it must end
	idleSince  time.Time       // protected by workerSet.mu
	started    time.Time       // start of its task; zero if no option needs that
	handled    bool            // the handler was called with its task
	repeats    bool            // its task counts in workerSet.repeating
	following  job             // a task taken by the ack of the last one, or nil
	yieldDepth int             // calls of Yield at this moment; protected by workerSet.mu
	remaining  int             // how many workers were left when it was removed
	counts     counters
}

type (
	workerKey  struct{}
	setKey     struct{}
	attemptKey struct{}
)

// workerOf returns the worker whose handler has this context, or nil.
func workerOf(ctx context.Context) *worker {
	w, _ := ctx.Value(workerKey{}).(*worker)
	return w
}

// setOf returns the set with a handler or sink that has this context, or nil.
func setOf(ctx context.Context) *workerSet {
	ws, _ := ctx.Value(setKey{}).(*workerSet)
	return ws
}

// inside returns ctx as the context of a function for which the set waits.
func (ws *workerSet) inside(ctx context.Context) context.Context {
	return context.WithValue(ctx, setKey{}, ws)
}

// start begins to drain a source.
func (ws *workerSet) start(s source) {
	ws.source = s
	base := ws.inside(context.Background())
	ws.ctx, ws.cancel = context.WithCancelCause(base)
	ws.storeCtx, ws.cancelStore = context.WithCancel(base)
	ws.sinkCtx, ws.cancelSinks = context.WithCancel(base)
	ws.done, ws.markDone = context.WithCancel(context.Background())
	ws.over, ws.markOver = context.WithCancel(context.Background())
	ws.scheduleClock.current = -1
	ws.all = map[*worker]struct{}{}
	ws.followSchedule()
}

// mayTakeLocked reports whether tasks may be taken at all.
func (ws *workerSet) mayTakeLocked() bool {
	switch {
	case ws.cancelled || ws.sourceOver:
		return false
	case ws.closing:
		return ws.yielding > 0 // handlers in Yield may wait for queued tasks
	}
	return !ws.paused && ws.scale.Max > 0
}

// dispatch takes tasks and gives them to workers, as long as there are both. It is called whenever
// there may be both again. Invariant on return: if a worker is idle, or could be started, then the
// source is empty or the load too low, and the source calls dispatch when that changes.
//
// If another goroutine dispatches already, that one does one more round, so this one need not
// wait.
func (ws *workerSet) dispatch() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.dispatchLocked()
}

// dispatchLocked is dispatch for callers that hold mu; it does not hold it all the time.
func (ws *workerSet) dispatchLocked() {
	ws.dispatchAgain = true
	if ws.dispatching {
		return
	}
	ws.dispatching = true
	for ws.dispatchAgain {
		ws.dispatchAgain = false
		for ws.dispatchOneLocked() {
		}
	}
	ws.dispatching = false
	ws.notifyQuietLocked()
}

// dispatchOneLocked gives one task to a worker. It returns false if there is no task, or no worker
// for it.
func (ws *workerSet) dispatchOneLocked() bool {
	if len(ws.unassigned) > 0 && (len(ws.idle) > 0 || ws.active < max(ws.scale.Max, 1)) {
		task := ws.unassigned[0]
		ws.unassigned = ws.unassigned[1:]
		ws.assignLocked(task)
		return true
	}
	stopped := !ws.mayTakeLocked()
	able := !stopped && len(ws.unassigned) == 0
	// Beyond Scale.Min, another worker starts only under load.
	busy := able && len(ws.idle) == 0 && ws.active > 0 && ws.active >= ws.scale.Min
	able = able && (!busy || ws.active < ws.scale.Max)
	if able && !busy && ws.source.watches() {
		return false
	}

	// The source is called without mu. No other goroutine dispatches during the call, and every
	// change that lets a worker have a task calls dispatch, which sets dispatchAgain.
	ws.mu.Unlock()
	var task job
	if !able || busy {
		ws.source.disarm(stopped) // before watchLoad, whose watch it may disarm too
	}
	if able && !(busy && ws.source.watchLoad()) {
		var err error
		if task, err = ws.source.takeOrWatch(); err != nil {
			ws.sourceFailed(err)
		}
	}
	ws.mu.Lock()

	if task != nil {
		ws.failing = false
		ws.assignLocked(task)
	}
	return task != nil
}

// assignLocked gives a taken task to an idle worker, or to a new one. If Scale.Max has shrunk
// since the take, the task may have to wait for a worker.
func (ws *workerSet) assignLocked(task job) {
	switch n := len(ws.idle); {
	case n > 0:
		w := ws.idle[n-1]
		ws.idle[n-1] = nil
		ws.idle = ws.idle[:n-1]
		w.next <- task
	case ws.active < max(ws.scale.Max, 1):
		w := &worker{set: ws, next: make(chan job, 1)}
		w.ctx = context.WithValue(ws.ctx, workerKey{}, w)
		ws.all[w] = struct{}{}
		ws.active++
		ws.updateLocked()
		n := ws.active
		ws.running.Go(func() {
			defer w.run(task) // even if the Observer ends the goroutine
			ws.workersChanged(n-1, n)
		})
	default:
		ws.unassigned = append(ws.unassigned, task)
		ws.updateLocked()
	}
}

// updateLocked gives free places to handlers that return from Yield, and computes slowPath. Every
// change that affects either calls it.
func (ws *workerSet) updateLocked() {
	for len(ws.returning) > 0 && (ws.active < max(ws.scale.Max, 1) || ws.cancelled) {
		ws.active++
		close(ws.returning[0])
		ws.returning = ws.returning[1:]
	}
	ws.slowPath.Store(ws.active > ws.scale.Max || ws.toEnd > 0 || len(ws.unassigned) > 0 ||
		len(ws.returning) > 0 || !ws.mayTakeLocked())
	ws.setReaperLocked()
}

// sourceRetry is the delay before retrying a source that has returned an error.
const sourceRetry = time.Second

// runInBackground calls f in a goroutine of its own. The set is not quiet before f has returned.
func (ws *workerSet) runInBackground(f func()) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.done.Err() != nil {
		return
	}
	ws.backgroundCalls++
	ws.running.Go(func() {
		defer func() { // even if f ends the goroutine
			ws.mu.Lock()
			defer ws.mu.Unlock()
			ws.backgroundCalls--
			ws.notifyQuietLocked()
		}()
		f()
	})
}

// freeWorkers returns how many workers wait for a task, or would start for one at any load.
func (ws *workerSet) freeWorkers() int {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return len(ws.idle) + max(ws.scale.Min-ws.active, 0)
}

// sourceFailed is called when the source has returned an error.
func (ws *workerSet) sourceFailed(err error) {
	if first := ws.recordFailure(err); first {
		ws.log.Error("pool: no tasks can be taken; trying again", "error", err)
	}
	if isOver(err) {
		ws.dispatch() // so that it disarms the source
	}
}

// recordFailure schedules a retry of the source, unless it is over. It returns true for the first
// failure since the source returned a task.
func (ws *workerSet) recordFailure(err error) (first bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	switch {
	case ws.sourceOver || ws.cancelled:
		return false
	case isOver(err):
		ws.sourceOver = true
		ws.updateLocked()
		ws.endIdleLocked(len(ws.idle))
		return false
	case ws.retryTimer == nil:
		ws.retryTimer = time.AfterFunc(sourceRetry, ws.dispatch)
	default:
		ws.retryTimer.Reset(sourceRetry)
	}
	first, ws.failing = !ws.failing, true
	return first
}

// run does tasks until the worker must end, beginning with this one.
func (w *worker) run(task job) {
	ws := w.set
	end := false
	defer func() {
		if !end { // a handler has ended the goroutine, by runtime.Goexit
			ws.mu.Lock()
			ws.removeLocked(w)
			ws.mu.Unlock()
		}
		defer ws.dispatch() // even if the Observer ends the goroutine
		ws.workersChanged(w.remaining+1, w.remaining)
	}()
	for {
		task.do(w)
		for more := true; more && !ws.slowPath.Load(); {
			var err error
			if more, err = ws.source.runNext(w); err != nil {
				ws.sourceFailed(err)
			}
		}
		if task, end = ws.nextTask(w); end {
			return
		}
	}
}

// nextTask waits for a task for a worker that has found none, or that slowPath has stopped. If the
// worker must end, end is true, and the worker is removed already.
func (ws *workerSet) nextTask(w *worker) (task job, end bool) {
	ws.mu.Lock()
	switch {
	case len(ws.returning) > 0:
		end = true // the returning handler gets this worker's place
	case len(ws.unassigned) > 0 && ws.active <= max(ws.scale.Max, 1):
		task, ws.unassigned = ws.unassigned[0], ws.unassigned[1:]
		ws.updateLocked()
		ws.mu.Unlock()
		return task, false
	case ws.toEnd > 0:
		ws.toEnd--
		end = true
	default:
		end = ws.active > ws.scale.Max || ws.sourceOver || ws.closing && !ws.mayTakeLocked()
	}
	if end {
		ws.removeLocked(w)
		ws.mu.Unlock()
		return nil, true
	}
	// Race: a task may have come after this worker looked and before it was in the list of idle
	// workers, so no dispatch has given it to this worker. Therefore it dispatches itself once it
	// is in the list.
	w.idleSince = time.Now()
	ws.idle = append(ws.idle, w)
	ws.setReaperLocked()
	ws.dispatchLocked()
	ws.mu.Unlock()
	task = <-w.next
	return task, task == nil
}

// endIdleLocked ends the n workers that have been idle for the longest time.
func (ws *workerSet) endIdleLocked(n int) {
	dismissed := slices.Clone(ws.idle[:n])
	ws.idle = slices.Delete(ws.idle, 0, n)
	for _, w := range dismissed {
		ws.removeLocked(w)
		w.next <- nil
	}
}

// removeLocked removes a worker that is about to end.
func (ws *workerSet) removeLocked(w *worker) {
	ws.active--
	w.remaining = ws.active
	delete(ws.all, w)
	w.counts.addTo(&ws.counts)
	ws.toEnd = min(ws.toEnd, ws.active)
	ws.updateLocked()
	ws.notifyQuietLocked()
}

// notifyQuietLocked wakes calls that wait until the set is quiet, if it is, and marks it as done
// after Shutdown. It is called whenever the set may have become quiet.
func (ws *workerSet) notifyQuietLocked() {
	if !ws.quietLocked() {
		return
	}
	for _, wake := range ws.waiters {
		close(wake)
	}
	ws.waiters = nil
	if ws.closing && ws.active == 0 {
		ws.markDone()
	}
}

// notifyQuiet is notifyQuietLocked for callers that do not hold mu.
func (ws *workerSet) notifyQuiet() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.notifyQuietLocked()
}

// quietLocked reports whether the set is quiet: all workers are idle, or make further runs of
// repeating tasks, no handler is in Yield, no task is on its way to a worker, no letter is in
// hand, and nothing runs in the background.
func (ws *workerSet) quietLocked() bool {
	return len(ws.idle)+ws.repeating == ws.active && ws.yielding == 0 && !ws.dispatching &&
		len(ws.unassigned) == 0 && ws.backgroundCalls == 0 && ws.letters == 0 &&
		ws.prefetched.Load() == 0
}

// waitQuiet waits until the set is quiet. atOnce is true if it did not wait: the set was quiet,
// and also returned true. After Shutdown it does not wait, and returns ErrShutdown if Shutdown has
// abandoned a part of the set.
func (ws *workerSet) waitQuiet(ctx context.Context, also func() bool) (atOnce bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	wake := make(chan struct{})
	ws.mu.Lock()
	ws.waiters = append(ws.waiters, wake)
	over, quiet := ws.over.Err() != nil, ws.quietLocked()
	ws.mu.Unlock()
	defer func() {
		ws.mu.Lock()
		defer ws.mu.Unlock()
		ws.waiters = slices.DeleteFunc(ws.waiters, func(w chan struct{}) bool { return w == wake })
	}()
	switch {
	case quiet && (over || also()):
		return true, nil
	case over:
		return false, ErrShutdown
	}
	select {
	case <-wake:
	case <-ws.over.Done():
	case <-ctx.Done():
		return false, ctx.Err()
	}
	return false, nil
}
