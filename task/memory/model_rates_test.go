package memory_test

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/fairq/fairq/internal/driver"
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
	for _, key := range []string{t.Key, all} {
		rate := m.rate(key)
		if rate.Limit > 0 {
			n := 1
			if m.s.Quantum > 0 && !m.s.ShareTime {
				n = int(t.Cost)
			}
			left := m.debt(key) + time.Duration(sign)*comes(float64(n), rate)
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
func comes(n float64, rate driver.Rate) time.Duration {
	return time.Duration(n / rate.Limit * 1e9)
}

// rate returns the rate of a key, or of the queue.
func (m *model) rate(key string) driver.Rate {
	own := m.limits[key].Rate
	switch {
	case key == all:
		return m.s.Rate
	case own.Limit < 0:
		return driver.Rate{}
	}
	return cmp.Or(own, m.s.KeyRate)
}

// weight returns the weight of a key that has one by the Options.
func (m *model) weight(key string, given int) int { return cmp.Or(m.limits[key].Weight, given) }

func (m *model) SetKey(_ context.Context, key string, limits driver.KeyLimits) error {
	now, leave := m.enter()
	defer leave()
	if m.s.MaxInFlightPerKey == 0 && m.s.KeyRate.Limit == 0 {
		return driver.ErrInvalid
	}
	was := m.rate(key)
	if m.limits[key] = limits; limits == (driver.KeyLimits{}) {
		delete(m.limits, key)
	}
	switch is := m.rate(key); {
	case is == was:
	case is.Limit == 0 || was.Limit == 0:
		delete(m.debts, key)
	default:
		tokens := float64(was.Burst) - float64(m.debt(key))*was.Limit/1e9
		missing := max(0, float64(is.Burst)-tokens)
		m.debts[key] = &modelDebt{comes(missing, is), now}
	}
	return nil
}

func (m *model) LimitedKeys(
	_ context.Context, from string, n int,
) (list []driver.LimitedKey, err error) {
	_, leave := m.enter()
	defer leave()
	for _, key := range slices.Sorted(maps.Keys(m.limits)) {
		if key >= from && len(list) < n {
			list = append(list, driver.LimitedKey{Key: key, KeyLimits: m.limits[key]})
		}
	}
	return list, nil
}

// until returns until when a key waits, or the queue, the zero Time if it does not.
func (m *model) until(key string) time.Time {
	until, rate := m.waits[key], m.rate(key)
	if rate.Limit > 0 {
		left := m.debt(key) - comes(float64(rate.Burst-1), rate)
		if end := time.Now().Add(left); left > 0 && end.After(until) {
			return end
		}
	}
	return until
}
