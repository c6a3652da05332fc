package memory_test

import (
	"time"

	"github.com/fairq/fairq/task/driver"
)

// modelDebt is the debt of a key, or of the queue, to its rate: a leaky bucket, as time.
type modelDebt struct {
	left time.Duration
	at   time.Time
}

// all stands for the key in the state of the queue.
const all = "all keys"

// charge adds an attempt to the debts, or takes it back.
func (m *model) charge(t *modelTask, sign int) {
	for key, rate := range map[string]driver.Rate{t.Key: m.s.KeyRate, all: m.s.Rate} {
		if rate.Limit > 0 {
			n := 1
			if m.s.Quantum > 0 {
				n = int(t.Cost)
			}
			left := m.debt(key) + time.Duration(sign)*comes(n, rate)
			m.debts[key] = &modelDebt{max(0, left), time.Now()}
		}
	}
}

// debt returns the rest of a debt.
func (m *model) debt(key string) time.Duration {
	d := m.debts[key]
	if d == nil {
		return 0
	}
	return max(0, d.left-time.Since(d.at))
}

// comes returns how long it takes until that many tokens have come.
func comes(n int, rate driver.Rate) time.Duration {
	return time.Duration(float64(n) / rate.Limit * 1e9)
}

// until returns until when a key waits, or the queue, the zero Time if it does not.
func (m *model) until(key string) time.Time {
	until, rate := m.waits[key], m.s.KeyRate
	if key == all {
		rate = m.s.Rate
	}
	if rate.Limit > 0 {
		left := m.debt(key) - comes(rate.Burst-1, rate)
		if end := time.Now().Add(left); left > 0 && end.After(until) {
			return end
		}
	}
	return until
}
