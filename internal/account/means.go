package account

import "sync"

// Mean is the learned cost of a key: a moving average in which a new cost has weight 1/8. The zero
// value has learned nothing; a prior then takes its place.
type Mean int64 // in units of 2^-meanBits

const (
	meanBits  = 16
	meanShift = 3
)

// Learn returns the mean after another cost.
func (m Mean) Learn(cost, prior int64) Mean {
	if m == 0 {
		m = Mean(prior << meanBits)
	}
	return max(1, m+(Mean(cost<<meanBits)-m)>>meanShift)
}

// Estimate returns the expected cost of the next item, at least 1.
func (m Mean) Estimate(prior int64) int64 {
	estimate := max(1, int64(m>>meanBits))
	if m == 0 { // without a branch, which would be mispredicted
		estimate = prior
	}
	return estimate
}

// Means has the means of the keys learned last: at least Generation of them, and at most twice as
// many. The zero value knows none. All methods may be called at any time by any goroutine, and are
// O(1).
type Means struct {
	mu             sync.Mutex
	recent, before map[string]Mean // two generations; a key in both counts in the recent one
}

// Generation is how many keys make a generation of [Means].
const Generation = 1 << 13

// Learn records the cost of an item of a key.
func (m *Means) Learn(key string, cost, prior int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	mean := m.mean(key)
	if len(m.recent) == Generation {
		if _, ok := m.recent[key]; !ok {
			m.before, m.recent = m.recent, nil
		}
	}
	if m.recent == nil {
		m.recent = map[string]Mean{}
	}
	m.recent[key] = mean.Learn(cost, prior)
}

// Estimate returns the expected cost of the next item of a key.
func (m *Means) Estimate(key string, prior int64) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mean(key).Estimate(prior)
}

func (m *Means) mean(key string) Mean {
	if mean, ok := m.recent[key]; ok {
		return mean
	}
	return m.before[key]
}
