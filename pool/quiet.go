package pool

import (
	"context"
)

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

// notifyQuietLocked wakes calls that wait until the set is quiet, if it is, and marks it as done
// after Shutdown. It is called whenever the set may have become quiet.
func (ws *workerSet) notifyQuietLocked() {
	if !ws.quietLocked() {
		return
	}
	if ws.becomesQuiet != nil {
		close(ws.becomesQuiet)
		ws.becomesQuiet = nil
	}
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

// quietLocked reports whether the set is quiet: all workers are idle, no handler is in Yield, no
// letter is in hand, and nothing runs in the background.
func (ws *workerSet) quietLocked() bool {
	return len(ws.idle) == ws.active && ws.yielding == 0 && ws.backgroundCalls == 0 &&
		ws.outbox.busy() == 0 && ws.prefetched.Load() == 0
}

// waitQuiet waits until the set is quiet. atOnce is true if it did not wait: the set was quiet,
// and also returned true. After Shutdown it does not wait, and returns ErrShutdown if Shutdown has
// abandoned a part of the set.
func (ws *workerSet) waitQuiet(ctx context.Context, also func() bool) (atOnce bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	ws.mu.Lock()
	if ws.becomesQuiet == nil {
		ws.becomesQuiet = make(chan struct{})
	}
	wake := ws.becomesQuiet
	over, quiet := ws.over.Err() != nil, ws.quietLocked()
	ws.mu.Unlock()
	switch {
	case quiet && (over || also()):
		return true, nil //nolint:nilerr // over is a sign, no error
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
