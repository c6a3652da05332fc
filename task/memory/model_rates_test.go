package memory_test

import "time"

// modelDebt is what a key has had of its rate beyond what has come since: a leaky bucket, as time.
type modelDebt struct {
	left time.Duration
	at   time.Time
}

// charge adds an attempt to the debt of its key, or takes it back.
func (m *model) charge(t *modelTask, sign int) {
	if m.s.KeyRate.Limit == 0 {
		return
	}
	n := 1
	if m.s.Quantum > 0 {
		n = int(t.Cost)
	}
	left := m.debt(t.Key) + time.Duration(sign)*m.takes(n)
	m.debts[t.Key] = &modelDebt{max(0, left), time.Now()}
}

// debt returns what is left of it.
func (m *model) debt(key string) time.Duration {
	d := m.debts[key]
	if d == nil {
		return 0
	}
	return max(0, d.left-time.Since(d.at))
}

// takes returns how long it takes until that many tokens have come.
func (m *model) takes(n int) time.Duration {
	return time.Duration(float64(n) / m.s.KeyRate.Limit * 1e9)
}

// until returns until when a key waits, the zero Time if it does not.
func (m *model) until(key string) time.Time {
	until := m.waits[key]
	if m.s.KeyRate.Limit > 0 {
		left := m.debt(key) - m.takes(m.s.KeyRate.Burst-1)
		if end := time.Now().Add(left); left > 0 && end.After(until) {
			return end
		}
	}
	return until
}
