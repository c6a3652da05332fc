package account

import "sync"

// Mean is what is learned of the costs of a key: a moving average of which each new cost is an
// eighth. The zero value means that nothing was learned; then a prior stands for it.
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

// Estimate returns what the next item will cost, as far as is known: at least 1.
func (m Mean) Estimate(prior int64) int64 {
	estimate := max(1, int64(m>>meanBits))
	if m == 0 { // without a branch, for nobody can foresee it
		estimate = prior
	}
	return estimate
}

// Means are the means of those keys that were learned of last: of Generation of them at least, and
// of twice as many at most. The zero value knows of none. All methods may be called at any time by
// any goroutine, and are O(1).
type Means struct {
	mu             sync.Mutex
	recent, before map[string]Mean // two generations; a key in both counts in the recent one
}

// Generation is how many keys make a generation of [Means].
const Generation = 1 << 13

// Learn tells what an item of a key has cost.
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

// Estimate returns what the next item of a key will cost.
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
