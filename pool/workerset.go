package pool

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// workerSet is the workers of a [Pool], or of [Workers]: goroutines that take tasks from a source
// and run handlers. It starts them when there is something to do and ends them when there is not.
//
// A task goes one of two ways. A worker that has just done one takes the next itself, from the
// source, without mu: as long as slowPath is false it need not know of the others. If it finds
// nothing, it is idle, and then dispatch gives it a task, or starts another worker for one. Only
// one goroutine dispatches at a time, and the source calls dispatch whenever there may be a task
// again.
type workerSet struct {
	workerSettings
	source source

	// Three contexts end one after the other when the time of Shutdown is over: ctx, the parent of
	// the handlers' contexts, at once; storeCtx, for calls of queues and sinks, AbandonAfter
	// later; sinkCtx another AbandonAfter later. After that Shutdown waits for no sink any more.
	ctx            context.Context
	cancel         context.CancelCauseFunc
	storeCtx       context.Context
	cancelStore    context.CancelFunc
	sinkCtx        context.Context
	cancelSinks    context.CancelFunc
	abandonedSinks atomic.Int64 // sinks that nobody waits for any more and that still run

	dropped, expired, deadLetters, leftoverCount, refused counter // see Stats
	recent                                                recent

	backgroundCounts counters     // of attempts that are settled in the background
	prefetched       atomic.Int64 // tasks that were taken and not started, see prefetcher
	settling         atomic.Int64 // attempts that are settled in the background

	// slowPath is set if a worker must take mu between two tasks: because it may have to end, or
	// to make place for a handler that comes back from Yield, or because no task may be taken. See
	// updateLocked.
	slowPath atomic.Bool

	// mu protects all that follows. Neither the source nor code of the user's is called under it.
	mu            sync.Mutex
	scale         Scale // as of now
	manual        bool  // scale was set by SetWorkers
	paused        bool
	active        int // workers, without those whose handlers are in Yield
	yielding      int // handlers in Yield
	all           map[*worker]struct{}
	idle          []*worker // those that wait for a task; the one that was busy last is at the end
	toEnd         int       // how many have to end because the load is low, though there is work
	endedStats    Stats     // what workers that have ended have counted
	reaper        reaper
	scheduleClock scheduleClock
	retryTimer    *time.Timer // asks a source again that has returned an error
	failing       bool        // the source has returned an error, and no task since

	unassigned      []job           // tasks that were taken when Scale.Max was more; they are next
	returning       []chan struct{} // handlers that come back from Yield and wait for a place
	backgroundCalls int             // functions that run in background
	letters         int             // dead letters in hand, see holdLetter
	lettersGone     chan struct{}   // closed when there is none any more; nil if there is none

	dispatching, dispatchAgain bool // see dispatch

	closing    bool            // Shutdown was called
	cancelled  bool            // and its time is over, so handlers were cancelled
	sourceOver bool            // the source will never have a task again
	done       context.Context // done when Shutdown was called and the last worker has ended
	markDone   context.CancelFunc
	waiters    []chan struct{} // calls of waitQuiet
	running    sync.WaitGroup  // all goroutines that Shutdown waits for

	goroutineIDs sync.Map // the numbers of these, see notInHandler
}

// source is what workers drain. Its methods may be called by many goroutines at the same time, but
// takeOrWatch and watchLoad only by one: the one that dispatches.
type source interface {
	// runNext takes the next task and does it. It returns false if there is none.
	runNext(w *worker) (ok bool, err error)

	// takeOrWatch takes the next task, for a worker to do it. If there is none it returns nil, and
	// workerSet.dispatch is called as soon as there may be one, unless disarm is called before.
	// With handBack, disarm also hands back what was prefetched.
	takeOrWatch() (task job, err error)
	disarm(handBack bool)

	// watches tells whether dispatch is sure to be called when there is a task, unless disarm is
	// called before: then there is none to be taken now. It may be called with mu.
	watches() bool

	// watchLoad has workerSet.dispatch called as soon as a queue is so full that another worker is
	// to be started, see Scale. If that is so already, it returns false instead. loadIsLow tells
	// whether all queues are so empty that a worker is to end.
	watchLoad() bool
	loadIsLow() bool

	// drains reports whether the source takes tasks from this queue.
	drains(queue any) bool

	// addRunning says that n more handlers run, or fewer if n is negative, because of Yield.
	addRunning(n int64)
}

// job is a task that was taken.
type job interface{ do(w *worker) }

// worker is a goroutine that runs handlers.
type worker struct {
	set        *workerSet
	ctx        context.Context // parent of its handlers' contexts; workerOf finds the worker by it
	next       chan job        // gives a task to an idle worker; nil means that it has to end
	idleSince  time.Time       // protected by workerSet.mu
	started    time.Time       // when its task was; zero if nobody asks for that
	handled    bool            // the handler was called with its task
	following  job             // a task that was taken when the last one was acked; nil if none was
	yieldDepth int             // calls of Yield at this moment; protected by workerSet.mu
	remaining  int             // how many workers were left when it was removed
	counts     counters
}

type (
	workerKey struct{}
	setKey    struct{}
)

// workerOf returns the worker whose handler has this context, nil if there is none.
func workerOf(ctx context.Context) *worker {
	w, _ := ctx.Value(workerKey{}).(*worker)
	return w
}

// setOf returns the set one of whose handlers or sinks has this context, nil if there is none.
func setOf(ctx context.Context) *workerSet {
	ws, _ := ctx.Value(setKey{}).(*workerSet)
	return ws
}

// start begins to drain a source.
func (ws *workerSet) start(s source) {
	ws.source = s
	base := context.WithValue(context.Background(), setKey{}, ws)
	ws.ctx, ws.cancel = context.WithCancelCause(base)
	ws.storeCtx, ws.cancelStore = context.WithCancel(base)
	ws.sinkCtx, ws.cancelSinks = context.WithCancel(base)
	ws.done, ws.markDone = context.WithCancel(context.Background())
	ws.scheduleClock.current = -1
	ws.all = map[*worker]struct{}{}
	ws.followSchedule()
}

// mayTakeLocked tells whether tasks may be taken at all.
func (ws *workerSet) mayTakeLocked() bool {
	switch {
	case ws.cancelled || ws.sourceOver:
		return false
	case ws.closing:
		return ws.yielding > 0 // handlers in Yield may wait for tasks that are queued
	}
	return !ws.paused && ws.scale.Max > 0
}

// dispatch takes tasks and gives them to workers, as long as there are both. It is called whenever
// there may be both again. On return, a worker is idle, or could be started and is not, only
// because the source is empty or the load too low; the source calls dispatch when that changes.
//
// If another goroutine dispatches already, it does one more round, so this one need not wait.
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

// dispatchOneLocked gives one task to a worker. It returns false if there is none, or no worker
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
	// If all workers are busy that there must be, another one is started only under load.
	busy := able && len(ws.idle) == 0 && ws.active > 0 && ws.active >= ws.scale.Min
	able = able && (!busy || ws.active < ws.scale.Max)
	if able && !busy && ws.source.watches() {
		return false
	}

	// The source is called without mu. Nobody else dispatches meanwhile, and whatever changes so
	// that a task could be given to a worker after all calls dispatch, which sets dispatchAgain.
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

// assignLocked gives a task that was taken to an idle worker, or to a new one. If Scale.Max has
// become less since it was taken, the task may have to wait for a worker.
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
		ws.startGoroutine(func() {
			defer w.run(task) // also if the Observer ends the goroutine
			ws.workersChanged(n-1, n)
		})
	default:
		ws.unassigned = append(ws.unassigned, task)
		ws.updateLocked()
	}
}

// updateLocked gives free places to handlers that come back from Yield, and computes slowPath. It
// is called whenever something has changed that these depend on.
func (ws *workerSet) updateLocked() {
	for len(ws.returning) > 0 && (ws.active < max(ws.scale.Max, 1) || ws.cancelled) {
		ws.active++
		close(ws.returning[0])
		ws.returning = ws.returning[1:]
	}
	ws.slowPath.Store(ws.active > ws.scale.Max || ws.toEnd > 0 || len(ws.unassigned) > 0 || len(ws.returning) > 0 || !ws.mayTakeLocked())
	ws.setReaperLocked()
}

// sourceRetry is how long it takes until a source is asked again that has returned an error.
const sourceRetry = time.Second

// background calls f in a goroutine of its own. The set is not quiet before f has returned.
func (ws *workerSet) background(f func()) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.done.Err() != nil {
		return
	}
	ws.backgroundCalls++
	ws.startGoroutine(func() {
		defer func() { // also if f ends the goroutine
			ws.mu.Lock()
			defer ws.mu.Unlock()
			ws.backgroundCalls--
			ws.notifyQuietLocked()
		}()
		f()
	})
}

// freeWorkers returns how many workers wait for a task, or would be started for one whatever the
// load.
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
		ws.dispatch() // for it to disarm the source
	}
}

// recordFailure has the source asked again later, unless it is over. It returns true if this is
// the first failure since the source has returned a task.
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

// run does tasks until the worker has to end, beginning with this one.
func (w *worker) run(task job) {
	ws := w.set
	end := false
	defer func() {
		if !end { // a handler has ended the goroutine, by runtime.Goexit
			ws.mu.Lock()
			ws.removeLocked(w)
			ws.mu.Unlock()
		}
		defer ws.dispatch() // also if the Observer ends the goroutine
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
// worker has to end, end is true, and the worker is removed already.
func (ws *workerSet) nextTask(w *worker) (task job, end bool) {
	ws.mu.Lock()
	switch {
	case len(ws.returning) > 0:
		end = true // the handler that comes back gets this worker's place
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
	// A task may have come since the worker has looked, when it was not idle yet, so whoever
	// dispatched has not given it one. Therefore it dispatches itself once it is in the list.
	w.idleSince = time.Now()
	ws.idle = append(ws.idle, w)
	ws.setReaperLocked()
	ws.dispatchLocked()
	ws.mu.Unlock()
	task = <-w.next
	return task, task == nil
}

// endIdleLocked ends n idle workers: those that have been idle for the longest time.
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
	w.counts.addTo(&ws.endedStats)
	ws.toEnd = min(ws.toEnd, ws.active)
	ws.updateLocked()
	ws.notifyQuietLocked()
}

// notifyQuietLocked wakes those who wait until the set is quiet, if it is, and marks it as done
// after Shutdown. It is called whenever that may be so.
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

// quietLocked tells whether nothing is going on: all workers are idle, no handler is in Yield, no
// task is on its way to a worker, no letter is in hand, and nothing runs in background.
func (ws *workerSet) quietLocked() bool {
	return len(ws.idle) == ws.active && ws.yielding == 0 && !ws.dispatching && len(ws.unassigned) == 0 && ws.backgroundCalls == 0 && ws.letters == 0 && ws.prefetched.Load() == 0
}

// waitQuiet waits until the set is quiet. atOnce is true if it was, and also returned true, when
// the call was made: then it has not waited.
func (ws *workerSet) waitQuiet(ctx context.Context, also func() bool) (atOnce bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	wake := make(chan struct{})
	ws.mu.Lock()
	ws.waiters = append(ws.waiters, wake)
	quiet := ws.quietLocked()
	ws.mu.Unlock()
	defer func() {
		ws.mu.Lock()
		defer ws.mu.Unlock()
		ws.waiters = slices.DeleteFunc(ws.waiters, func(w chan struct{}) bool { return w == wake })
	}()
	if quiet && also() {
		return true, nil
	}
	select {
	case <-wake:
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}
