package life

import (
	"math"

	"github.com/fairq/fairq/task/driver"
)

// Wait is until when a key, or a queue, waits, and why. A token bucket is kept as one time, when it
// is full again (the theoretical arrival time of the ATM Forum's cell rate algorithm): each token
// that is taken moves that time on by what a new one takes to come.
type Wait struct {
	Hold  int64 // the end of what HoldKey began; 0 if there is none
	Full  int64 // when the bucket is full again; 0 if it is
	Until int64 // when something changes by itself: the wait ends, or else the bucket is full; 0 for never
	Waits bool  // no task is to be taken until then
}

// Settle works out Until and Waits at that time.
func (w *Wait) Settle(r driver.Rate, now int64) {
	if w.Hold <= now {
		w.Hold = 0
	}
	if w.Full <= now {
		w.Full = 0
	}
	w.Until = max(w.Hold, w.Full-pause(r, int64(r.Burst)-1))
	if w.Waits = w.Until > now; !w.Waits {
		w.Until = w.Full
	}
}

// End returns when the wait ends, 0 if there is none.
func (w *Wait) End() int64 {
	if !w.Waits {
		return 0
	}
	return w.Until
}

// Spend takes tokens out of the bucket. There is at least one, but there may be fewer than that.
func (w *Wait) Spend(r driver.Rate, tokens, now int64) {
	w.Full = max(w.Full, now)
	w.Full += min(pause(r, tokens), math.MaxInt64-w.Full)
	w.Settle(r, now)
}

// Refund puts tokens back.
func (w *Wait) Refund(r driver.Rate, tokens, now int64) {
	w.Full -= min(w.Full, pause(r, tokens))
	w.Settle(r, now)
}

// Tokens returns how many tokens there are.
func (w *Wait) Tokens(r driver.Rate, now int64) int {
	if r.Limit == 0 {
		return math.MaxInt
	}
	missing := math.Ceil(float64(max(0, w.Full-now)) * r.Limit / second)
	return int(max(0, float64(r.Burst)-missing))
}

const second = 1e9

// pause returns how long that many tokens take to come. It is rounded down, so that as many single
// tokens as the burst has can be taken at once.
func pause(r driver.Rate, tokens int64) int64 {
	if r.Limit == 0 {
		return 0
	}
	return int64(min(float64(tokens)/r.Limit*second, float64(driver.MaxDuration)))
}
