package pool

import (
	"context"
	"slices"
	"sync"
	"time"
)

// job is a taken task.
type job interface{ do(w *worker) }

// worker is a goroutine that runs handlers.
type worker struct {
	set        *workerSet
	mu         sync.Mutex      // protects attempt.extra of its attempts
	ctx        context.Context // parent of its handlers' contexts; its Value has the worker
	wake       chan bool       // true if it is idle and must ask for a task, false if it must end
	idleSince  time.Time       // since its last task; protected by workerSet.mu while it is idle
	started    time.Time       // start of its task; zero if no option needs that
	following  job             // a task taken by the ack of the last one, or nil
	spare      job             // room for a task, left by a take that has found none, or nil
	yieldDepth int             // calls of Yield at this moment; protected by workerSet.mu

	// place is not nil while its handler has left Yield and waits for a place. It gets true when the
	// handler has one, and false if the handler is in Yield again.
	place chan bool // protected by workerSet.mu

	counts *counters
	asked  chan struct{} // closed when the first worker has asked, for which New waits; else nil
}

type (
	workerKey struct{}
	setKey    struct{}
)

// setOf returns the set with a handler or sink that has this context, or nil.
func setOf(ctx context.Context) *workerSet {
	ws, _ := ctx.Value(setKey{}).(*workerSet)
	return ws
}

// run takes tasks and does them until the worker must end. It was woken, or is new.
func (w *worker) run() {
	ws, ended := w.set, false
	defer func() {
		w.hasAsked()
		if !ended { // user code has ended the goroutine, by runtime.Goexit
			ws.mu.Lock()
			ws.removeLocked()
			ws.mu.Unlock()
			ws.wake()
		}
	}()
	for isNew, wasIdle := true, true; !ended; {
		if wasIdle {
			ws.asking.Store(false) // before it asks, because a later call of wake counts on that
		}
		var next job
		if ws.interrupt.Load() {
			isNew = false // it has not asked in vain
		} else {
			next = ws.take(w, wasIdle)
		}
		w.hasAsked()
		wasIdle = next == nil
		if wasIdle {
			ended = ws.rest(w, isNew)
		} else {
			isNew, w.idleSince = false, time.Time{}
			next.do(w)
		}
	}
}

func (w *worker) hasAsked() {
	if w.asked != nil {
		close(w.asked)
		w.asked = nil
	}
}

// take takes a task, and lets another worker ask if there may be more.
func (ws *workerSet) take(w *worker, wasIdle bool) job {
	next, more, err := ws.source.take(w, wasIdle)
	if err != nil {
		ws.sourceFailed(err)
	}
	if more {
		ws.wake()
	}
	return next
}

// rest is called for a worker that has found no task, or must not ask for one. It waits until the
// worker is to ask again. If the worker must end, it returns true, and has removed the worker
// already.
func (ws *workerSet) rest(w *worker, isNew bool) (end bool) {
	ws.mu.Lock()
	switch {
	case ws.active > ws.mostLocked() || len(ws.returning) > 0:
		ws.removeLocked() // a handler that returns from Yield gets its place
		ws.mu.Unlock()
		ws.wake() // it may have been woken to ask, or others may have seen interrupt until now
		return true
	case ws.missed: // not before, because a worker that must end does not ask
		ws.missed = false
		ws.mu.Unlock()
		return false
	case isNew:
		ws.removeLocked()
		ws.mu.Unlock()
		return true
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
	ws.mu.Unlock()
	return !<-w.wake
}

// endIdleLocked ends the n workers that have been idle for the longest time.
func (ws *workerSet) endIdleLocked(n int) {
	dismissed := slices.Clone(ws.idle[:n])
	ws.idle = slices.Delete(ws.idle, 0, n)
	for _, w := range dismissed {
		ws.removeLocked()
		w.wake <- false
	}
}

// removeLocked removes a worker that is about to end.
func (ws *workerSet) removeLocked() {
	ws.active--
	ws.updateLocked()
	ws.notifyQuietLocked()
}
