package pool

import (
	"math"
	"time"
)

// reaper lets workers go that are not needed.
type reaper struct {
	timer *time.Timer
	set   bool
	low   bool // the load was low when it looked last
}

// reapLaterLocked sets the reaper if there are more workers than there must be. It is called whenever that may be so.
func (c *crew) reapLaterLocked() {
	if c.reaper.set || c.workers <= c.scale.Min {
		return
	}
	after := c.scale.IdleTimeout
	if len(c.idle) > 0 {
		after = time.Until(c.idle[0].parked.Add(after))
	}
	c.reaper.set = true
	if c.reaper.timer == nil {
		c.reaper.timer = time.AfterFunc(after, c.reap)
	} else {
		c.reaper.timer.Reset(after)
	}
}

// reap ends the workers that have been idle for so long. If there is none, but the load has been low for so long, it ends one
// of the others.
func (c *crew) reap() {
	c.mu.Lock()
	c.reaper.set = false
	expired := 0
	for expired < len(c.idle) && c.workers-expired > c.scale.Min && time.Since(c.idle[expired].parked) >= c.scale.IdleTimeout {
		expired++
	}
	c.dismissLocked(expired)
	sleep := c.scale.SleepFactor
	c.mu.Unlock()
	low := c.source.below(sleep)

	c.mu.Lock()
	defer c.mu.Unlock()
	low = low && len(c.idle) == 0 && c.workers > c.scale.Min && c.leaving == 0
	if low && c.reaper.low {
		c.leaving++
		low = false
	}
	c.reaper.low = low
	c.attendLocked()
}

// setScaleLocked changes how many workers there are. Those that are too many end, as soon as they are idle.
func (c *crew) setScaleLocked(s Scale) {
	c.scale = s
	if many := c.workers - s.Max; many > 0 {
		c.dismissLocked(min(many, len(c.idle)))
	}
	c.leaving = min(c.leaving, max(c.workers-s.Min, 0))
	if c.reaper.set && c.reaper.timer.Stop() {
		c.reaper.set = false
	}
	c.attendLocked()
}

// SetWorkers changes how many workers there are at least and at most, from now on, whatever the schedule says; 0 and 0 give that
// back to the options. Handlers that run are not disturbed.
func (c *crew) SetWorkers(atLeast, atMost int) error {
	if atLeast < 0 || atMost < atLeast || atMost > MaxWorkers {
		return invalid("SetWorkers: %d and %d; the limits are 0 and %d, and the first must not be greater", atLeast, atMost, MaxWorkers)
	}
	c.mu.Lock()
	c.manual = atMost > 0
	if c.manual {
		s := c.scale
		s.Min, s.Max = atLeast, atMost
		c.setScaleLocked(s)
	}
	c.mu.Unlock()
	c.follow()
	return nil
}

// clock is where a schedule has got to.
type clock struct {
	timer *time.Timer
	now   int // the range that applies; -1 means none
}

// follow makes the scale what the schedule says, now and whenever that changes.
func (c *crew) follow() {
	now := time.Now()
	index, until := -1, time.Time{}
	if c.table != nil {
		index, until = c.table.at(now)
	}
	s, name := c.base, "none"
	if index >= 0 {
		s, name = c.ranges[index].Scale, c.ranges[index].Time
	}
	c.mu.Lock()
	changed := index != c.clock.now
	c.clock.now = index
	if !c.manual {
		c.setScaleLocked(s)
	}
	if !until.IsZero() && c.done.Err() == nil {
		// Timers do not know when a clock is set, so it looks every hour.
		after := min(until.Sub(now), time.Hour)
		if c.clock.timer == nil {
			c.clock.timer = time.AfterFunc(after, c.follow)
		} else {
			c.clock.timer.Reset(after)
		}
	}
	c.mu.Unlock()
	if changed {
		c.log.Debug("pool: schedule", "range", name, "min", s.Min, "max", s.Max)
	}
	c.fetch()
}

// Pause stops the taking of tasks. What runs goes on.
func (c *crew) Pause() { c.pause(true) }

// Resume ends what Pause began.
func (c *crew) Resume() { c.pause(false) }

func (c *crew) pause(paused bool) {
	c.mu.Lock()
	c.paused = paused
	c.attendLocked()
	c.mu.Unlock()
	c.fetch()
}

// scaled tells that the number of workers has changed.
func (c *crew) scaled(from, to int) {
	if c.onScaled != nil {
		c.observe("Scaled", func() { c.onScaled(from, to) })
	}
	c.log.Debug("pool: number of workers", "from", from, "to", to)
}

// wakeLevel returns how many tasks it takes to be as full as that.
func wakeLevel(fullness float64, capacity int) int {
	level := int(math.Ceil(fullness * float64(capacity)))
	if float64(level-1)/float64(capacity) >= fullness { // 0.07*100 is a little more than 7
		level--
	}
	return max(1, level)
}
