package admit

import (
	"time"

	"github.com/fairq/fairq/internal/waitlist"
)

// budget is a token bucket, as in x/time/rate, but its level may be below 0.
type budget struct {
	rate, burst float64 // rate is 0 if there are no units
	level       float64
	filled      time.Duration // time of the level
	timer       *time.Timer   // fires when the level is above 0 again, if a call waits
}

// refillLocked brings the level up to date, if there is a Rate, and returns the time.
func (l *Limiter[K]) refillLocked() (now time.Duration) {
	now = time.Since(l.epoch)
	b := &l.budget
	b.level = min(b.burst, b.level+b.rate*(now-b.filled).Seconds())
	b.filled = now
	return now
}

func (l *Limiter[K]) hasUnitsLocked() bool {
	if l.budget.rate > 0 {
		l.refillLocked()
		return l.budget.level > 0
	}
	return true
}

// takeLocked takes the units of a call that gets a permit, and charges its key. If no call waits
// it charges only the units that bring the level below 0, because later calls wait for these.
func (l *Limiter[K]) takeLocked(c *waitlist.Waiter[call[K]], now time.Duration) {
	l.budget.level -= float64(c.Data.units)
	c.Data.charged = l.priceLocked(float64(c.Data.units))
	c.Data.key.Data.used += c.Data.charged
	l.shares.Charge(c.Data.key, c.Data.charged, now)
}

// priceLocked returns the charge of a key for units that were taken.
func (l *Limiter[K]) priceLocked(units float64) float64 {
	if l.shares.Len() > 0 {
		return units
	}
	return min(units, max(0, -l.budget.level))
}

// settleLocked settles a call that has used a number of units. It returns what the key is charged
// in addition, below 0 if the key gets units back. The level must be up to date.
func (l *Limiter[K]) settleLocked(c *waitlist.Waiter[call[K]], used int64) float64 {
	if used < 0 || used == c.Data.units {
		return 0
	}
	more := float64(used - c.Data.units)
	l.budget.level = min(l.budget.burst, l.budget.level-more)
	if more < 0 {
		return -min(c.Data.charged, -more)
	}
	return l.priceLocked(more)
}

// armLocked starts the timer, which admits waiting calls when the level is above 0.
func (l *Limiter[K]) armLocked() {
	// A microsecond more than the level needs, so that rounding does not matter.
	wait := time.Duration(min(-l.budget.level/l.budget.rate, 1e6)*float64(time.Second)) +
		time.Microsecond
	if l.budget.timer == nil {
		l.budget.timer = time.AfterFunc(wait, l.tick)
	} else {
		l.budget.timer.Reset(wait)
	}
}

func (l *Limiter[K]) tick() {
	l.mu.Lock()
	woken := l.admitLocked(l.refillLocked())
	l.mu.Unlock()
	woken.Wake()
}
