// Package fairshare has the rule by which keys share permits, or workers: which key that waits goes
// next. Package admit and its documentation say what the rule promises; docs/admission.md has the
// bounds.
//
// The key with the least held / weight, in whole numbers, is max-min fairness (Bertsekas and
// Gallager, Data Networks, 1987). The least used time after that is fair-share scheduling (Kay and
// Lauder, "A fair share scheduler", 1988). That newcomers begin where the others are is the virtual
// time of start-time fair queuing (Goyal, Vin and Cheng 1996).
package fairshare

import (
	"cmp"
	"slices"
	"time"
)

// Shares knows the keys that hold permits or wait for one, and some that did. The zero value is
// ready to use. Shares has no lock, no clock and no goroutine: who calls it tells the time, which
// never goes back.
type Shares[K comparable, D any] struct {
	MaxHeld int // a key that holds as many permits is passed over; 0 means no limit

	keys map[K]*Key[K, D]
	nan  *Key[K, D] // all keys that are not equal to themselves, such as NaN
	peak int        // the most keys that the map has had: a map never shrinks

	line   []*Key[K, D] // a binary heap of the keys that wait and may get a permit
	active int          // keys that hold or wait
	idled  uint64       // how often a key became idle

	// floor is what newcomers begin with: the most that a key had used when it was admitted from the
	// line. It keeps a key that holds permits for long from being the last for ever, and a key that
	// has just come from being the first for as long as the others have used.
	floor float64

	// The clock runs only while the line is not empty. Then it shows base + (now - since), else base.
	// So what a key does with permits that nobody else wants costs it nothing.
	base, since time.Duration
}

// Key is what is known of a key.
type Key[K comparable, D any] struct {
	Key  K
	Data D // belongs to the caller

	held, waiting int
	weight        int
	first         uint64  // when the longest of those who wait came; their number in order
	used          float64 // for its weight: nanoseconds of the clock, or units of cost
	share         int     // held / weight, when its place in the line was found last
	place         int     // in the line, counted from 1; 0 if it is not there
	idled         uint64  // its number among the keys that became idle
}

// Held returns how many permits the key holds.
func (k *Key[K, D]) Held() int { return k.held }

// Waiting returns how many wait for a permit for the key.
func (k *Key[K, D]) Waiting() int { return k.waiting }

// Weight returns the weight that the key had when it came last.
func (k *Key[K, D]) Weight() int { return k.weight }

const (
	spareKeys = 16      // so many idle keys are remembered, beside one for each active one
	maxFloor  = 1 << 50 // beyond this, 13 days in nanoseconds, a float64 gets too coarse
)

// Find returns a key that holds or waits, or that is remembered, else nil.
func (s *Shares[K, D]) Find(key K) *Key[K, D] {
	if k := s.keys[key]; k != nil || key == key {
		return k
	}
	return s.nan
}

// Add returns the state of a key that is about to hold a permit or to wait. k is what Find has
// returned.
func (s *Shares[K, D]) Add(k *Key[K, D], key K, weight int) *Key[K, D] {
	if k == nil {
		k = s.make(key)
	}
	if k.held == 0 && k.waiting == 0 {
		s.active++
		if k.used < s.floor { // max is slow, because of NaN
			k.used = s.floor
		}
	}
	k.weight = weight
	return k
}

func (s *Shares[K, D]) make(key K) *Key[K, D] {
	k := &Key[K, D]{Key: key}
	if key != key {
		s.nan = k
		return k
	}
	if s.keys == nil {
		s.keys = map[K]*Key[K, D]{}
	}
	s.keys[key] = k
	s.peak = max(s.peak, len(s.keys))
	return k
}

// MayHold reports whether the key, which may be nil, may hold one more permit.
func (s *Shares[K, D]) MayHold(k *Key[K, D]) bool {
	return k == nil || s.MaxHeld == 0 || k.held < s.MaxHeld
}

// Len returns how many keys wait that may get a permit. While it is 0 the clock stands still.
func (s *Shares[K, D]) Len() int { return len(s.line) }

// Active returns how many keys hold permits or wait.
func (s *Shares[K, D]) Active() int { return s.active }

// Clock returns what the clock shows.
func (s *Shares[K, D]) Clock(now time.Duration) time.Duration {
	if len(s.line) > 0 {
		return s.base + now - s.since
	}
	return s.base
}

// NeedsNow reports whether Release of a permit of the key needs the time.
func (s *Shares[K, D]) NeedsNow(k *Key[K, D]) bool { return len(s.line) > 0 || k.waiting > 0 }

// Hold gives the key a permit that nobody waits for.
func (s *Shares[K, D]) Hold(k *Key[K, D]) { k.held++ }

// Wait adds one who waits for the key. first is the number of the one who came first of these. The
// time is needed only if the line is empty.
func (s *Shares[K, D]) Wait(k *Key[K, D], first uint64, now time.Duration) {
	if k.waiting++; k.waiting == 1 {
		k.first = first
		s.place(k, now)
	}
}

// Leave removes one who waits for the key, if it gives up. first is the number of the first of
// those left.
func (s *Shares[K, D]) Leave(k *Key[K, D], first uint64, now time.Duration) {
	k.waiting--
	k.first = first
	s.place(k, now)
	if k.held == 0 && k.waiting == 0 {
		s.active--
		s.rest(k)
	}
}

// Next returns the key that the next permit belongs to, nil if the line is empty.
func (s *Shares[K, D]) Next() *Key[K, D] {
	if len(s.line) == 0 {
		return nil
	}
	return s.line[0]
}

// Admit gives a permit to the first who waits for the key, which is Next. first is the number of
// the first of those left.
func (s *Shares[K, D]) Admit(k *Key[K, D], first uint64, now time.Duration) {
	s.floor = max(s.floor, k.used)
	k.held++
	k.waiting--
	k.first = first
	s.place(k, now)
	if s.floor > maxFloor {
		s.lower()
	}
}

// Release takes a permit back and charges the key for it.
func (s *Shares[K, D]) Release(k *Key[K, D], charge float64, now time.Duration) {
	k.held--
	if charge != 0 || k.waiting > 0 {
		s.Charge(k, charge, now)
	}
	if k.held == 0 && k.waiting == 0 {
		s.active--
		if k.used > s.floor || len(s.keys) > s.active+2*spareKeys { // as a rule without a call
			s.rest(k)
		}
	}
}

// Charge adds to what the key has used.
func (s *Shares[K, D]) Charge(k *Key[K, D], charge float64, now time.Duration) {
	k.used += charge / float64(k.weight)
	if k.waiting > 0 {
		s.place(k, now)
	}
}

// Clear makes all leave who wait in the line.
func (s *Shares[K, D]) Clear(now time.Duration) {
	for k := s.Next(); k != nil; k = s.Next() {
		k.waiting = 1
		s.Leave(k, 0, now)
	}
}

// Copy returns a copy of the line, to see in which order Admit takes those who wait out of it.
func (s *Shares[K, D]) Copy() Shares[K, D] {
	c := Shares[K, D]{MaxHeld: s.MaxHeld, line: make([]*Key[K, D], len(s.line))}
	keys := make([]Key[K, D], len(s.line))
	for i, k := range s.line {
		keys[i] = *k
		c.line[i] = &keys[i]
	}
	return c
}

// All calls a function with each key that is known.
func (s *Shares[K, D]) All(yield func(*Key[K, D]) bool) {
	if s.nan != nil && !yield(s.nan) {
		return
	}
	for _, k := range s.keys {
		if !yield(k) {
			return
		}
	}
}

// rest is called when a key has become idle. Most idle keys stay in the map until there are many: to
// forget them one by one, and to make them anew, takes as long again as all else. Then those at or
// below the floor are forgotten, which changes nothing. Of those above it, which have used more than
// others, as many are remembered as keys are active, and some, those that became idle last. For each
// of the others the floor rises by that part of what the key owes that is its part of the weight:
// else a client that takes a new key for each request would never pay, and keep an honest key out
// that owes something.
func (s *Shares[K, D]) rest(k *Key[K, D]) {
	s.idled++
	k.idled = s.idled
	if len(s.keys) <= 3*s.active+2*spareKeys {
		return
	}
	var owing []*Key[K, D]
	weight := 0 // of the active ones
	for key, k := range s.keys {
		switch {
		case k.held > 0 || k.waiting > 0:
			weight += k.weight
		case k.used <= s.floor:
			delete(s.keys, key)
		default:
			owing = append(owing, k)
		}
	}
	if forgotten := len(owing) - s.active - spareKeys; forgotten > 0 {
		slices.SortFunc(owing, func(a, b *Key[K, D]) int { return cmp.Compare(a.idled, b.idled) })
		for _, k := range owing[:forgotten] {
			s.floor += max(0, k.used-s.floor) * float64(k.weight) / float64(weight+k.weight)
			delete(s.keys, k.Key)
		}
	}
	if s.peak > 8*spareKeys && len(s.keys) < s.peak/4 {
		keys := make(map[K]*Key[K, D], len(s.keys))
		for key, k := range s.keys {
			keys[key] = k
		}
		s.keys, s.peak = keys, len(keys)
	}
}

// lower takes the floor off what all keys have used, so that numbers stay small.
func (s *Shares[K, D]) lower() {
	for k := range s.All {
		k.used -= s.floor
	}
	s.floor = 0
}

// before reports whether a goes before b in the line.
func before[K comparable, D any](a, b *Key[K, D]) bool {
	switch {
	case a.share != b.share:
		return a.share < b.share
	case a.used != b.used:
		return a.used < b.used
	}
	return a.first < b.first
}

// place puts a key where it belongs in the line, or takes it out, after something of it has
// changed. The clock begins and ends with the line.
func (s *Shares[K, D]) place(k *Key[K, D], now time.Duration) {
	waits := k.waiting > 0 && s.MayHold(k)
	switch {
	case waits:
		if k.share = k.held; k.weight > 1 {
			k.share /= k.weight
		}
		if k.place == 0 {
			if len(s.line) == 0 {
				s.since = now
			}
			s.line = append(s.line, k)
			k.place = len(s.line)
		}
		s.down(s.up(k))
	case k.place > 0:
		last := s.line[len(s.line)-1]
		s.line[len(s.line)-1] = nil
		s.line = s.line[:len(s.line)-1]
		if last != k {
			s.put(last, k.place)
			s.down(s.up(last))
		}
		k.place = 0
		if len(s.line) == 0 {
			s.base += now - s.since
		}
		if cap(s.line) > 8*spareKeys && len(s.line) < cap(s.line)/4 {
			s.line = append(make([]*Key[K, D], 0, cap(s.line)/2), s.line...)
		}
	}
}

func (s *Shares[K, D]) put(k *Key[K, D], place int) {
	s.line[place-1] = k
	k.place = place
}

// up moves a key towards the front of the heap.
func (s *Shares[K, D]) up(k *Key[K, D]) *Key[K, D] {
	place := k.place
	for place > 1 && before(k, s.line[place/2-1]) {
		s.put(s.line[place/2-1], place)
		place /= 2
	}
	s.put(k, place)
	return k
}

// down moves a key away from the front of the heap.
func (s *Shares[K, D]) down(k *Key[K, D]) {
	place := k.place
	for {
		child := 2 * place
		if child > len(s.line) {
			break
		}
		if child < len(s.line) && before(s.line[child], s.line[child-1]) {
			child++
		}
		if !before(s.line[child-1], k) {
			break
		}
		s.put(s.line[child-1], place)
		place = child
	}
	s.put(k, place)
}
