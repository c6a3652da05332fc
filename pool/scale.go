package pool

import "time"

// reaper ends workers that are not needed.
type reaper struct {
	timer *time.Timer
	set   bool
	low   bool // the load was low when it ran last
}

// setReaperLocked sets the reaper's timer if there are more than Scale.Min workers. It is called
// whenever that may be so.
func (ws *workerSet) setReaperLocked() {
	if ws.reaper.set || ws.active <= ws.scale.Min {
		return
	}
	after := ws.scale.IdleTimeout
	if len(ws.idle) > 0 {
		after = time.Until(ws.idle[0].idleSince.Add(after))
	}
	ws.reaper.set = true
	resetTimer(&ws.reaper.timer, after, ws.reap)
}

// reap ends the workers that have been idle for IdleTimeout. If none is idle, but the load is low
// and was low at the last run, IdleTimeout ago, it ends one of the others.
func (ws *workerSet) reap() {
	ws.mu.Lock()
	ws.reaper.set = false
	expired := 0
	for expired < len(ws.idle) && ws.active-expired > ws.scale.Min &&
		time.Since(ws.idle[expired].idleSince) >= ws.scale.IdleTimeout {
		expired++
	}
	ws.endIdleLocked(expired)
	ws.mu.Unlock()
	low := ws.source.loadIsLow()

	ws.mu.Lock()
	defer ws.mu.Unlock()
	low = low && len(ws.idle) == 0 && ws.active > ws.scale.Min && ws.toEnd == 0
	if low && ws.reaper.low {
		ws.toEnd++
		low = false
	}
	ws.reaper.low = low
	ws.updateLocked()
}

// setScaleLocked changes the number of workers. Surplus workers end after their task.
func (ws *workerSet) setScaleLocked(s Scale) {
	ws.scale = s
	ws.elastic.Store(s.Min < s.Max)
	if many := ws.active - s.Max; many > 0 {
		ws.endIdleLocked(min(many, len(ws.idle)))
	}
	ws.toEnd = min(ws.toEnd, max(ws.active-s.Min, 0))
	if ws.reaper.set && ws.reaper.timer.Stop() {
		ws.reaper.set = false
	}
	ws.updateLocked()
}

// SetWorkers changes how many workers there are at least and at most, from now on, whatever the
// schedule says; 0 and 0 give that back to the options. Handlers that run are not disturbed.
func (ws *workerSet) SetWorkers(atLeast, atMost int) error {
	if atLeast < 0 || atMost < atLeast || atMost > MaxWorkers {
		return invalid("SetWorkers: %d and %d; the limits are 0 and %d, and the "+
			"first must not be greater", atLeast, atMost, MaxWorkers)
	}
	ws.mu.Lock()
	ws.manual = atMost > 0
	if ws.manual {
		s := ws.scale
		s.Min, s.Max = atLeast, atMost
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

// workersChanged calls the Observer and the log.
func (ws *workerSet) workersChanged(from, to int) {
	ws.onScaled(to)
	ws.log.Debug("pool: number of workers", "from", from, "to", to)
}

// loadLevel returns the number of tasks that fill three quarters of a queue.
func loadLevel(capacity int) int { return max(1, (3*capacity+3)/4) }
