package pool

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairq/fairq"
)

// workerSet is the workers of a [Pool], or of [Workers]: goroutines that take tasks from a source
// and run handlers. It starts them when there are tasks and ends them when there are none.
//
// A worker takes for itself. If it finds no task it is idle, and the source has armed its watches,
// which call wake. So whenever a worker is idle, or could be started, either the watches are armed
// or a worker is about to ask. Only one worker at a time is woken to ask. If it has found a task
// without arming the watch again, it wakes the next one, because there may be more tasks.
//
// Race: a task may come after a worker has asked for one, and before it is idle or runs its task.
// Then wake finds no worker that it can wake, and sets missed. Because of that the next worker
// that finds no task asks again. A worker that has found a task wakes the next one.
type workerSet struct {
	workerSettings
	source source

	// The contexts end one after the other, once the context of Shutdown is done. The parent of
	// the handlers' contexts is ctx: it ends immediately. The context of calls of queues and sinks
	// is storeCtx: it ends when the duration AbandonAfter has passed. When AbandonAfter has passed
	// twice, the outbox abandons its letters. When it has passed three times, settleCtx ends, with
	// which the tasks of these letters are settled.
	ctx          context.Context
	cancel       context.CancelCauseFunc
	storeCtx     context.Context
	cancelStore  context.CancelFunc
	settleCtx    context.Context
	cancelSettle context.CancelFunc
	outbox       outbox

	counts     [16]counters // the first has events of no worker too; workers share the others
	prefetched atomic.Int64 // tasks that were taken and not started, see prefetcher
	settling   atomic.Int64 // attempts that are settled in the background

	failing atomic.Bool // the source has returned an error, and not answered since

	// asking is set if a worker was woken, or is new, and has not asked yet. Then it will ask.
	asking atomic.Bool

	// interrupt is set if a worker must look at the set before it takes a task. It may have to end,
	// or to make place for a handler that returns from Yield, or it may be that no task may be taken.
	// See updateLocked.
	interrupt atomic.Bool

	// mu protects the fields below. Neither the source nor user code is called under it; outbox.mu
	// may be locked.
	mu            sync.Mutex
	scale         Scale         // as of now
	manual        bool          // scale was set by SetWorkers
	asked         chan struct{} // of the first worker: see worker.asked; nil if that has begun
	paused        bool
	active        int         // workers, without workers whose handlers are in Yield
	missed        bool        // a call of wake has woken nobody
	yielding      int         // handlers in Yield
	begun         int         // workers, so far
	idle          []*worker   // workers that wait for a task, in the order of idleSince
	reaper        *time.Timer // ends workers that are not needed; nil if it is not set
	inRange       string      // Range.Time of the schedule's range in force; empty if none is
	scheduleTimer *time.Timer
	retryTimer    *time.Timer // retries a source that has returned an error

	returning       []*worker // workers whose handlers return from Yield and wait for a place
	backgroundCalls int       // functions that run in background

	closing    bool            // Shutdown was called
	sourceOver bool            // the source will never have a task again
	done       context.Context // done when Shutdown was called and the last worker has ended
	markDone   context.CancelFunc
	accepting  context.Context // done when Shutdown or StopAndWait was called
	over       context.Context // done when Shutdown has returned
	markOver   context.CancelFunc

	stopAccepting context.CancelCauseFunc // ends accepting

	becomesQuiet chan struct{}       // closed when the set is quiet; nil if no waitQuiet has looked
	warnings     map[string]*warning // by the message of a line less than a second ago
	failures     []Failure
	running      sync.WaitGroup // all goroutines that Shutdown waits for
}

// source has the tasks of the workers. Many goroutines may call its methods at the same time,
// without mu.
type source interface {
	// take takes the next task for a worker. If it returns nil, wake will be called when there may be
	// one. If more is true there may be more for others, which only this worker knows.
	take(w *worker, wasIdle bool) (next job, more bool, err error)

	// disarm disarms watches that have called wake although no worker can be woken: while they stand
	// in line for a task, other takers of the queue may wait behind them. It reports whether there
	// were any. If no task may be taken it also hands back prefetched tasks.
	disarm(mayTake bool) bool
}

// start begins to drain a source.
func (ws *workerSet) start(s source) {
	ws.source = s
	base := context.WithValue(context.Background(), setKey{}, ws)
	ws.ctx, ws.cancel = context.WithCancelCause(base)
	ws.storeCtx, ws.cancelStore = context.WithCancel(base)
	ws.settleCtx, ws.cancelSettle = context.WithCancel(base)
	ws.outbox.set, ws.outbox.abandoned = ws, make(chan struct{})
	ws.warnings = map[string]*warning{}
	ws.outbox.held = map[*outgoing]bool{}
	ws.outbox.queue = fairq.New(func(l *outgoing) string { return l.key },
		&fairq.Options[string, *outgoing]{Capacity: fairq.Unbounded})
	ws.done, ws.markDone = context.WithCancel(context.Background())
	ws.accepting, ws.stopAccepting = context.WithCancelCause(context.Background())
	ws.over, ws.markOver = context.WithCancel(context.Background())
	asked := make(chan struct{})
	ws.asked = asked
	ws.followSchedule()
	ws.mu.Lock()
	waits := ws.asked == nil
	ws.mu.Unlock()
	if waits { // else it could take a task in spite of a Pause
		<-asked
	}
}

// mostLocked returns how many workers may take tasks.
func (ws *workerSet) mostLocked() int {
	switch {
	case ws.ctx.Err() != nil || ws.sourceOver || ws.closing && ws.yielding == 0 ||
		ws.paused && !ws.closing:
		return 0
	case ws.closing: // handlers in Yield may wait for queued tasks
		return max(ws.scale.Max, 1)
	}
	return ws.scale.Max
}

// wake lets one more worker ask for a task: an idle one, or a new one. It is called whenever there
// may be a task for which no worker asks.
func (ws *workerSet) wake() {
	// After disarm again, because a worker may have come to rely on the watch in between.
	for again := true; again; {
		asks, may := ws.letAsk()
		again = !asks && ws.source.disarm(may)
	}
}

// letAsk wakes the worker that was busy last, or starts a new one, so that it asks for a task.
// asks is false if no worker is idle and none may be started. Then may reports whether workers may
// take tasks at all.
func (ws *workerSet) letAsk() (asks, may bool) {
	if ws.asking.Load() {
		return true, true // it will ask after this
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	n, most := len(ws.idle), ws.mostLocked()
	switch {
	case most > 0 && n > 0:
		w := ws.idle[n-1]
		ws.idle = slices.Delete(ws.idle, n-1, n)
		ws.asking.Store(true)
		w.wake <- true
	case ws.active < most:
		// It takes in a goroutine of its own: the caller may be somebody's Put, and a take of another
		// class a transaction.
		w := &worker{set: ws, wake: make(chan bool, 1), counts: &ws.counts[ws.begun%len(ws.counts)]}
		w.ctx = context.WithValue(ws.ctx, workerKey{}, w)
		w.asked, ws.asked = ws.asked, nil
		ws.begun++
		ws.active++
		ws.asking.Store(true)
		ws.running.Go(w.run)
	default:
		ws.missed = true
		return false, most > 0
	}
	return true, true
}

// updateLocked gives free places to handlers that return from Yield, and computes interrupt. Every
// change that affects either calls it.
func (ws *workerSet) updateLocked() {
	for len(ws.returning) > 0 && (ws.active < max(ws.scale.Max, 1) || ws.ctx.Err() != nil) {
		w := ws.returning[0]
		ws.returning = ws.returning[1:]
		ws.active++
		ws.yielding--
		w.place <- true
		w.place = nil
	}
	ws.interrupt.Store(ws.active > ws.mostLocked() || len(ws.returning) > 0)
	ws.setReaperLocked()
}

// sourceRetry is the delay before retrying a source that has returned an error.
const sourceRetry = time.Second

// freeWorkers returns how many workers wait for a task, or would start for one.
func (ws *workerSet) freeWorkers() int {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return len(ws.idle) + max(ws.scale.Max-ws.active, 0)
}

// sourceWorks is called when the source has answered. A task that was prefetched is no answer.
func (ws *workerSet) sourceWorks() {
	if ws.failing.Load() {
		ws.failing.Store(false)
	}
}

// sourceFailed is called when the source has returned an error. It schedules a retry, unless it is
// over.
func (ws *workerSet) sourceFailed(err error) {
	ws.mu.Lock()
	switch {
	case ws.sourceOver || ws.ctx.Err() != nil:
	case isOver(err):
		ws.sourceOver = true
		ws.updateLocked()
		ws.endIdleLocked(len(ws.idle))
		defer ws.wake() // so that it disarms the source
	default:
		resetTimer(&ws.retryTimer, sourceRetry, ws.wake)
		if !ws.failing.Swap(true) { // the first time since the source has answered
			defer ws.log.Error("pool: no tasks can be taken; trying again", "error", err)
		}
	}
	ws.mu.Unlock()
}
