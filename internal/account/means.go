package account

import "sync"

// mean is the learned cost of a key: a moving average in which a new cost has weight 1/8. The zero
// value has learned nothing; a prior then takes its place.
type mean int64 // in units of 2^-meanBits

const (
	meanBits  = 16
	meanShift = 3
)

// learn returns the mean after another cost.
func (m mean) learn(cost, prior int64) mean {
	if m == 0 {
		m = mean(prior << meanBits)
	}
	return max(1, m+(mean(cost<<meanBits)-m)>>meanShift)
}

// estimate returns the expected cost of the next item, at least 1.
func (m mean) estimate(prior int64) int64 {
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
	all            mean            // of all keys
	recent, before map[string]mean // two generations; a key in both counts in the recent one
}

// Generation is how many keys make a generation of [Means].
const Generation = 1 << 13

// Learn records the cost of an item of a key. A new key begins with the mean of all.
func (m *Means) Learn(key string, cost int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old, prior := m.mean(key), m.all.estimate(cost)
	m.all = m.all.learn(cost, cost)
	if len(m.recent) == Generation {
		if _, ok := m.recent[key]; !ok {
			m.before, m.recent = m.recent, nil
		}
	}
	if m.recent == nil {
		m.recent = map[string]mean{}
	}
	m.recent[key] = old.learn(cost, prior)
}

// Estimate returns the expected cost of the next item of a key: its mean, or that of all keys; the
// prior if nothing was learned.
func (m *Means) Estimate(key string, prior int64) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mean(key).estimate(m.all.estimate(prior))
}

func (m *Means) mean(key string) mean {
	if of, ok := m.recent[key]; ok {
		return of
	}
	return m.before[key]
}
