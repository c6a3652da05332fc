package pool

import (
	"context"
	"slices"
	"time"
)

// job is a taken task.
type job interface{ do(w *worker) }

// worker is a goroutine that runs handlers.
type worker struct {
	set        *workerSet
	ctx        context.Context // parent of its handlers' contexts; workerOf finds the worker by it
	wake       chan bool       // true if an idle worker is to ask for a task, false if it must end
	asks       bool            // it is the one of workerSet.asking
	idleSince  time.Time       // since its last task; protected by workerSet.mu while it is idle
	started    time.Time       // start of its task; zero if no option needs that
	following  job             // a task taken by the ack of the last one, or nil
	yieldDepth int             // calls of Yield at this moment; protected by workerSet.mu

	// place is not nil while its handler has left Yield and waits for a place. It gets true when the
	// handler has one, and false if the handler is in Yield again.
	place chan bool // protected by workerSet.mu

	counts counters
}

type (
	workerKey struct{}
	setKey    struct{}
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

// run does tasks until the worker must end, beginning with this one. If more is true, there may be
// more for others.
func (w *worker) run(task job, more bool) {
	ws := w.set
	end := false
	defer func() {
		if !end { // a handler has ended the goroutine, by runtime.Goexit
			ws.mu.Lock()
			ws.asking = ws.asking && !w.asks
			ws.removeLocked(w)
			ws.mu.Unlock()
		}
		ws.wake()
	}()
	for wasIdle := false; !end; {
		if task != nil {
			if more {
				ws.wake()
			}
			w.idleSince = time.Time{}
			task.do(w)
			task, wasIdle = nil, false
		}
		if !ws.interrupt.Load() {
			var err error
			if task, more, err = ws.source.take(wasIdle); err != nil {
				ws.sourceFailed(err)
			}
		}
		switch {
		case task == nil:
			end = ws.rest(w)
			wasIdle = true
		case w.asks:
			ws.mu.Lock()
			more = ws.askedLocked() || more
			w.asks = false
			ws.mu.Unlock()
		}
	}
}

// askedLocked ends the turn of a worker that was woken, or is being started, and has asked. It
// reports whether wake was called in between.
func (ws *workerSet) askedLocked() (again bool) {
	again = ws.missed
	ws.asking, ws.missed = false, false
	return again
}

// rest waits until a worker that has found no task, or must not ask, is to ask. If the worker must
// end, it returns true, and the worker is removed already.
func (ws *workerSet) rest(w *worker) bool {
	ws.mu.Lock()
	if w.asks {
		ws.asking, w.asks = false, false
	}
	// a handler that returns from Yield gets this worker's place
	if len(ws.returning) > 0 || ws.active > ws.scale.Max || ws.sourceOver ||
		ws.closing && !ws.mayTakeLocked() {
		ws.removeLocked(w)
		ws.mu.Unlock()
		return true
	}
	if ws.mayTakeLocked() && ws.missed {
		ws.missed = false
		ws.mu.Unlock()
		return false
	}
	at := len(ws.idle)
	if w.idleSince.IsZero() {
		w.idleSince = time.Now()
	}
	for at > 0 && ws.idle[at-1].idleSince.After(w.idleSince) { // it was woken in vain
		at--
	}
	ws.idle = slices.Insert(ws.idle, at, w)
	ws.setReaperLocked()
	ws.notifyQuietLocked()
	may := ws.mayTakeLocked()
	ws.mu.Unlock()
	if !may && ws.source.disarm(false) {
		ws.wake()
	}
	return !<-w.wake
}

// endIdleLocked ends the n workers that have been idle for the longest time.
func (ws *workerSet) endIdleLocked(n int) {
	dismissed := slices.Clone(ws.idle[:n])
	ws.idle = slices.Delete(ws.idle, 0, n)
	for _, w := range dismissed {
		ws.removeLocked(w)
		w.wake <- false
	}
}

// removeLocked removes a worker that is about to end.
func (ws *workerSet) removeLocked(w *worker) {
	ws.active--
	delete(ws.all, w)
	w.counts.addTo(&ws.counts)
	ws.updateLocked()
	ws.notifyQuietLocked()
}
