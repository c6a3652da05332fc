package life

import (
	"math"

	"github.com/fairq/fairq/internal/driver"
)

// Wait says until when a key or a queue waits. It represents a token bucket by one time: that at
// which the bucket is full again (the theoretical arrival time of the ATM Forum's cell rate
// algorithm). Each taken token makes that later, by the time in which a new token comes.
type Wait struct {
	Hold  int64     // the end of the wait that HoldKey began; 0 without one
	By    driver.ID // the failed task for which the key waits; 0 if for another reason, or for two
	Full  int64     // when the bucket is full again; 0 if it is full
	Until int64     // the end of the wait; without a wait, Full
	Waits bool      // no task can be taken before Until
}

// Begin makes the key wait until a time. by is the failed task that it waits for, 0 if the reason
// is another one. A longer wait stays.
func (w *Wait) Begin(until, now int64, by driver.ID) {
	if w.Hold > now && w.By != by {
		by = 0
	}
	w.Hold, w.By = max(w.Hold, until), by
}

// Failed returns the task of a settlement if it has failed, else 0.
func Failed(how *driver.Settlement, id driver.ID) driver.ID {
	if how.Method == driver.Snooze {
		return 0
	}
	return id
}

// Settle computes Until and Waits at that time.
func (w *Wait) Settle(r driver.Rate, now int64) {
	if w.Hold <= now {
		w.Hold = 0
	}
	if w.Full <= now {
		w.Full = 0
	}
	w.Until = max(w.Hold, w.Full-refillTime(r, float64(r.Burst-1)))
	if w.Waits = w.Until > now; !w.Waits {
		w.Until = w.Full
	}
}

// End returns the end of the wait, 0 without one.
func (w *Wait) End() int64 {
	if !w.Waits {
		return 0
	}
	return w.Until
}

// Spend takes tokens out of the bucket, which has at least one. If it has too few, the key waits
// until the others have come.
func (w *Wait) Spend(r driver.Rate, tokens, now int64) {
	w.Full = max(w.Full, now)
	w.Full += min(refillTime(r, float64(tokens)), math.MaxInt64-w.Full)
	w.Settle(r, now)
}

// Refund puts tokens back.
func (w *Wait) Refund(r driver.Rate, tokens, now int64) {
	w.Full -= min(w.Full, refillTime(r, float64(tokens)))
	w.Settle(r, now)
}

// SetRate gives the bucket another rate. The tokens stay, as far as there is room for them.
func (w *Wait) SetRate(from, to driver.Rate, now int64) {
	missing := 0.0
	if from.Limit > 0 {
		missing = float64(max(0, w.Full-now))*from.Limit/second + float64(to.Burst-from.Burst)
	}
	w.Full = now + refillTime(to, max(0, missing))
	w.Settle(to, now)
}

// Tokens returns the number of tokens in the bucket.
func (w *Wait) Tokens(r driver.Rate, now int64) int {
	if r.Limit == 0 {
		return math.MaxInt
	}
	missing := math.Ceil(float64(max(0, w.Full-now)) * r.Limit / second)
	return int(max(0, float64(r.Burst)-missing))
}

const second = 1e9

// refillTime returns the time in which that many tokens come. It rounds down: rounded up, the last
// token of a burst that is taken one by one would have to wait.
func refillTime(r driver.Rate, tokens float64) int64 {
	if r.Limit == 0 {
		return 0
	}
	return int64(min(tokens/r.Limit*second, float64(driver.MaxDuration)))
}
