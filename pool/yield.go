package pool

import "context"

// Yield calls f. Meanwhile the handler whose context this is counts as waiting, and another
// handler gets its place. A handler that waits for other tasks of its pool must do that in f:
// otherwise all workers could wait for tasks that no worker is left for. When f returns, Yield
// waits until there is a place again; those who wait for that go before new tasks. With a context
// that is not of a handler it only calls f. It must not be called when the handler has returned.
func Yield(ctx context.Context, f func()) {
	w := workerOf(ctx)
	if w == nil {
		f()
		return
	}
	w.set.givePlace(w)
	defer w.set.takePlace(w)
	f()
}

// givePlace gives the place of a worker to another one.
func (ws *workerSet) givePlace(w *worker) {
	ws.mu.Lock()
	w.yieldDepth++
	if w.yieldDepth > 1 { // it has given its place away already
		ws.mu.Unlock()
		return
	}
	ws.yielding++
	ws.active--
	ws.updateLocked()
	ws.mu.Unlock()
	ws.source.addRunning(-1)
	ws.dispatch()
}

// takePlace waits until there is a place for a worker again. Of the others, the one that has done
// its task first makes it: those who come back go before new tasks.
func (ws *workerSet) takePlace(w *worker) {
	ws.mu.Lock()
	w.yieldDepth--
	if w.yieldDepth > 0 {
		ws.mu.Unlock()
		return
	}
	// updateLocked closes the channel when there is a place: at once, or when a worker has done
	// its task and ends (nextTask), or when handlers are cancelled, who then may be more than
	// Scale.Max.
	place := make(chan struct{})
	ws.returning = append(ws.returning, place)
	if ws.active >= ws.scale.Max && len(ws.idle) > 0 {
		ws.endIdleLocked(1)
	}
	ws.updateLocked()
	ws.mu.Unlock()
	<-place
	ws.mu.Lock()
	ws.yielding--
	ws.updateAllLocked()
	ws.mu.Unlock()
	ws.source.addRunning(1)
	ws.dispatch()
}
