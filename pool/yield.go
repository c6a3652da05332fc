package pool

import (
	"context"
	"slices"
)

// Yield calls f. During the call another handler gets the place of the handler with this context.
// A handler that waits for other tasks of its pool must wait in f: otherwise all workers could
// wait for tasks that no worker is left to run. When f returns, Yield waits for a place; handlers
// that wait for a place go before new tasks.
//
// The task still counts for its key: if f waits for another task of the key, and MaxInFlightPerKey
// keeps that back, only the Timeout ends the wait. With any other context Yield only calls f. It
// must not be called after the handler has returned.
func Yield(ctx context.Context, f func()) {
	w, _ := ctx.Value(workerKey{}).(*worker)
	if w == nil {
		f()
		return
	}
	w.set.givePlace(w)
	defer w.set.takePlace(w)
	f()
}

// givePlace gives the place of a worker to another one. Goroutines of its handler may call Yield
// at the same time: the place is given away once, until one of them has it back.
func (ws *workerSet) givePlace(w *worker) {
	ws.mu.Lock()
	w.yieldDepth++
	isAway := w.yieldDepth > 1 || w.place != nil
	if w.place != nil { // who waits for the place needs none, and must not take it
		ws.returning = slices.DeleteFunc(ws.returning, func(r *worker) bool { return r == w })
		w.place <- false
		w.place = nil
		ws.updateLocked()
	}
	if isAway {
		ws.mu.Unlock()
		return
	}
	ws.yielding++
	ws.active--
	ws.updateLocked()
	ws.mu.Unlock()
	ws.wake()
}

// takePlace waits until a worker has a place again. The next worker that ends a task gives up its
// own, because returning handlers go before new tasks.
func (ws *workerSet) takePlace(w *worker) {
	ws.mu.Lock()
	w.yieldDepth--
	if w.yieldDepth > 0 {
		ws.mu.Unlock()
		return
	}
	// updateLocked sends when there is a place: immediately, or when a worker ends after its task
	// (see rest). It also sends when handlers are cancelled; then more than Scale.Max may run.
	place := make(chan bool, 1)
	w.place = place
	ws.returning = append(ws.returning, w)
	if ws.active >= ws.scale.Max && len(ws.idle) > 0 {
		ws.endIdleLocked(1)
	}
	ws.updateLocked()
	ws.mu.Unlock()
	if !<-place {
		return
	}
	ws.mu.Lock()
	ws.updateAllLocked()
	ws.mu.Unlock()
	ws.wake()
}
