package pool

import "time"

// setReaperLocked sets the timer that ends the worker that has been idle for longest. It does
// nothing if there are at most Scale.Min workers. It is called whenever there may be more.
func (ws *workerSet) setReaperLocked() {
	if ws.reaper == nil && ws.active > ws.scale.Min && len(ws.idle) > 0 {
		ws.reaper = time.AfterFunc(
			time.Until(ws.idle[0].idleSince.Add(ws.scale.IdleTimeout)), ws.reap)
	}
}

// reap ends the workers that have been idle for IdleTimeout.
func (ws *workerSet) reap() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.reaper = nil
	expired := 0
	for expired < len(ws.idle) && ws.active-expired > ws.scale.Min &&
		time.Since(ws.idle[expired].idleSince) >= ws.scale.IdleTimeout {
		expired++
	}
	ws.endIdleLocked(expired)
	ws.setReaperLocked()
}

// setScaleLocked changes the number of workers. Surplus workers end after their task.
func (ws *workerSet) setScaleLocked(s Scale) {
	ws.scale = s
	if many := ws.active - s.Max; many > 0 {
		ws.endIdleLocked(min(many, len(ws.idle)))
	}
	if ws.reaper != nil && ws.reaper.Stop() {
		ws.reaper = nil
	}
	ws.updateLocked()
}

// SetWorkers sets how many workers there are at least and at most from now on, in place of Scale
// and Schedule. With 0 and 0 the options decide again. Handlers that run are not disturbed.
func (ws *workerSet) SetWorkers(atLeast, atMost int) error {
	s := Scale{Min: atLeast, Max: atMost}
	if err := s.complete("SetWorkers", ws.base.IdleTimeout); err != nil {
		return err
	}
	ws.mu.Lock()
	ws.manual = atMost > 0
	if ws.manual {
		ws.setScaleLocked(s)
	}
	ws.mu.Unlock()
	ws.followSchedule()
	return nil
}

// Pause stops taking tasks or items. Running handlers go on.
func (ws *workerSet) Pause() { ws.pause(true) }

// Resume ends what Pause began.
func (ws *workerSet) Resume() { ws.pause(false) }

func (ws *workerSet) pause(paused bool) {
	ws.mu.Lock()
	ws.paused = paused
	ws.updateLocked()
	ws.mu.Unlock()
	ws.wake()
}
