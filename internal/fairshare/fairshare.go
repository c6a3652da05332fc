// Package fairshare has the rule by which keys share permits, or workers: which waiting key is
// next. docs/design.md has its bounds.
//
// The rule has three parts, which are known from elsewhere:
//
//   - The key with the least held / weight is first, rounded down: max-min fairness (Bertsekas and
//     Gallager, Data Networks, 1987).
//   - On a tie it is the key with the least used time: fair-share scheduling (Kay and Lauder, "A
//     fair share scheduler", 1988).
//   - Newcomers begin where the others are: the virtual time of start-time fair queuing (Goyal,
//     Vin and Cheng 1996).
package fairshare

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"time"
)

// Shares knows the keys that hold permits or wait for one, and some that did. The zero value is
// ready to use. Shares has no lock, no clock and no goroutine: its caller passes the time, which
// never goes back.
type Shares[K comparable, D any] struct {
	MaxHeld int  // a key with this many permits is skipped; 0 means no limit
	Units   bool // charges are units, not the time for which permits were held

	keys map[K]*Key[K, D]
	nan  *Key[K, D] // all keys that are not equal to themselves, such as NaN
	peak int        // the most keys that the map has had: a map never shrinks

	heaps  [2][]place[K, D] // binary heaps: see line and behind
	active int              // keys that hold or wait
	ready  int              // see Ready
	idled  uint64           // how often a key became idle

	// floor is the used time of newcomers: the most that a key had used when it was admitted from the
	// line. Without a floor new keys would begin at 0. They would be first until they had used as
	// much as the others.
	//
	// A key that holds few permits may be admitted although it has used far more than others that
	// wait. Newcomers would then wait for all that these may still use. So an admission lifts the
	// floor to at most slack above the total of each key that waits. The floor never falls. A key
	// whose total is further below it loses the difference when it begins to wait.
	floor float64
	slack float64 // the greatest charge so far, divided by the weight of its key

	// The clock runs only while the line is not empty. Then it shows base + (now - since),
	// otherwise base. So permits that no other key wants cost nothing.
	base, since time.Duration
}

// Key is the state of a key.
type Key[K comparable, D any] struct {
	Key  K
	Data D // belongs to the caller

	held, waiting int
	weight        int
	first         uint64  // arrival number of the call that has waited longest
	used          float64 // for its weight: nanoseconds of the clock, or units of cost
	place         [2]int  // in the heaps, counted from 1; 0 if it is not there
	idled         uint64  // its number among the keys that became idle
	forgotten     bool

	// unpaid is the time for which the key has held permits without being charged for it, summed over
	// the permits. It is as of the clock's time at.
	unpaid float64
	at     time.Duration
}

// The heaps of Shares.
const (
	line   = iota // the keys that wait and may get a permit; the next one is first
	behind        // the keys that wait and hold permits; that with the least total is first
)

// place is a key's place in a heap, with copies of the numbers that decide it, so that comparing
// two places reads no key.
type place[K comparable, D any] struct {
	share uint64 // held / weight; in the heap behind it is the total, sortable
	used  uint64 // sortable; in the heap behind it is the total
	first uint64
	key   *Key[K, D]
}

// Held returns how many permits the key holds.
func (k *Key[K, D]) Held() int { return k.held }

// Waiting returns how many calls of the key wait.
func (k *Key[K, D]) Waiting() int { return k.waiting }

// Weight returns the weight that the key had when it came last.
func (k *Key[K, D]) Weight() int { return k.weight }

// total returns what the key has used with the time of the permits that it holds, as of at.
func (k *Key[K, D]) total() float64 { return k.used + k.unpaid/float64(k.weight) }

// Forgotten reports whether the key was forgotten. Then only Find returns its new state.
func (k *Key[K, D]) Forgotten() bool { return k.forgotten }

const (
	spareKeys = 16      // idle keys remembered beside one for each active key
	maxFloor  = 1 << 50 // beyond this, 13 days in nanoseconds, a float64 gets too coarse
)

// Find returns a key that holds or waits, or that is remembered, else nil.
func (s *Shares[K, D]) Find(key K) *Key[K, D] {
	if k := s.keys[key]; k != nil || key == key {
		return k
	}
	return s.nan
}

// Add returns the state of a key that is about to hold a permit or to wait. k is the result of
// Find.
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
	return k == nil || s.spare(k) > 0
}

// spare returns how many more permits the key may hold.
func (s *Shares[K, D]) spare(k *Key[K, D]) int {
	if s.MaxHeld == 0 {
		return math.MaxInt
	}
	return s.MaxHeld - k.held
}

// Ready returns how many of the waiting calls may get a permit if none is released.
func (s *Shares[K, D]) Ready() int { return s.ready }

// Len returns how many waiting keys may get a permit. While it is 0 the clock stands still.
func (s *Shares[K, D]) Len() int { return len(s.heaps[line]) }

// Active returns how many keys hold permits or wait.
func (s *Shares[K, D]) Active() int { return s.active }

// Clock returns the time of the clock.
func (s *Shares[K, D]) Clock(now time.Duration) time.Duration {
	if len(s.heaps[line]) > 0 {
		return s.base + now - s.since
	}
	return s.base
}

// NeedsNow reports whether releasing a permit of the key needs the time.
func (s *Shares[K, D]) NeedsNow(k *Key[K, D]) bool { return s.Len() > 0 || k.waiting > 0 }

// Hold gives the key a permit for which no call waits.
func (s *Shares[K, D]) Hold(k *Key[K, D]) {
	s.count(k, 0)
	k.held++
}

// IsBehind reports whether the key may lose something when it begins to wait.
func (s *Shares[K, D]) IsBehind(k *Key[K, D]) bool { return k.total() < s.floor-s.slack }

// Wait adds a waiting call of the key. first is the arrival number of the key's first call. The
// time is needed only if the line is empty, or the key is behind.
func (s *Shares[K, D]) Wait(k *Key[K, D], first uint64, now time.Duration) {
	if k.waiting++; k.waiting <= s.spare(k) {
		s.ready++
	}
	if k.waiting == 1 {
		if s.IsBehind(k) {
			s.count(k, now)
			k.used += max(0, s.floor-s.slack-k.total())
		}
		k.first = first
		s.place(k, now)
	}
}

// Leave removes a waiting call of the key that gives up. first is the arrival number of the key's
// first remaining call.
func (s *Shares[K, D]) Leave(k *Key[K, D], first uint64, now time.Duration) {
	if k.waiting <= s.spare(k) {
		s.ready--
	}
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
	if len(s.heaps[line]) == 0 {
		return nil
	}
	return s.heaps[line][0].key
}

// Admit gives a permit to the first waiting call of k, the key that Next has returned. first is
// the arrival number of the first call of k that still waits.
func (s *Shares[K, D]) Admit(k *Key[K, D], first uint64, now time.Duration) {
	s.count(k, now)
	if k.used > s.floor {
		s.lift(k.used, now)
	}
	k.held++
	k.waiting--
	s.ready--
	k.first = first
	s.place(k, now)
	if s.floor > maxFloor {
		s.lower()
	}
}

// lift lifts the floor, as far as it may.
func (s *Shares[K, D]) lift(floor float64, now time.Duration) {
	if heap := s.heaps[behind]; len(heap) > 0 && floor > heap[0].total()+s.slack {
		// The totals in the heap may be too low. Only that of the first key is brought up to date, in
		// O(log keys). The others follow at later admissions, when they are first.
		k := heap[0].key
		s.count(k, now)
		s.placeBehind(k)
		floor = max(s.floor, min(floor, heap[0].total()+s.slack))
	}
	s.floor = floor
}

// count adds the time for which the key held permits since the last call.
func (s *Shares[K, D]) count(k *Key[K, D], now time.Duration) {
	if clock := s.Clock(now); !s.Units {
		k.unpaid += float64(k.held) * float64(clock-k.at)
		k.at = clock
	}
}

// Release takes a permit back, and returns what the key pays for it. That is units, if they are
// given. Otherwise it is an even part of the time that the key owes for all its permits. So it
// makes no difference which of them comes back first, and nobody keeps the begin of a permit.
func (s *Shares[K, D]) Release(k *Key[K, D], units float64, now time.Duration) (charge float64) {
	charge = units
	if s.count(k, now); !s.Units {
		charge = k.unpaid / float64(k.held)
		k.unpaid -= charge
	}
	if k.held--; k.waiting >= s.spare(k) {
		s.ready++
	}
	if charge != 0 || k.waiting > 0 {
		s.Charge(k, charge, now)
	}
	if k.held == 0 && k.waiting == 0 {
		s.active--
		if k.used > s.floor || len(s.keys) > s.active+2*spareKeys { // rarely true, which saves the call
			s.rest(k)
		}
	}
	return charge
}

// Charge adds to the used time of the key.
func (s *Shares[K, D]) Charge(k *Key[K, D], charge float64, now time.Duration) {
	charge /= float64(k.weight)
	k.used += charge
	if s.slack < charge {
		s.slack = charge
	}
	if k.waiting > 0 {
		s.place(k, now)
	}
}

// Clear removes all waiting calls. It is O(keys).
func (s *Shares[K, D]) Clear(now time.Duration) {
	for k := range s.All {
		if k.waiting > 0 {
			k.waiting = 1
			s.Leave(k, 0, now)
		}
	}
	s.ready = 0
}

// Copy returns a copy of the line, to find the order in which Admit empties it. With all, the copy
// has all waiting keys, also those at MaxHeld, and no such limit.
func (s *Shares[K, D]) Copy(all bool) Shares[K, D] {
	c := Shares[K, D]{MaxHeld: s.MaxHeld}
	c.heaps[line] = slices.Clone(s.heaps[line])
	keys := make([]Key[K, D], len(s.heaps[line]))
	for i, p := range c.heaps[line] {
		keys[i] = *p.key
		keys[i].place[behind] = 0
		c.heaps[line][i].key = &keys[i]
	}
	if all && s.MaxHeld > 0 {
		c.MaxHeld = 0
		for k := range s.All {
			if k.waiting > 0 && !s.MayHold(k) {
				limited := *k
				limited.place = [2]int{}
				c.place(&limited, 0)
			}
		}
	}
	return c
}

// All calls a function with each known key.
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

// rest is called when a key has become idle. Idle keys stay in the map until there are many,
// because forgetting and making them one by one would double the time of everything else. Then
// rest forgets
//
//   - the keys at or below the floor, which changes nothing;
//   - the keys above the floor, in debt, except the last ones to become idle: one for each active
//     key, and spareKeys more. For each forgotten key the floor rises by the key's debt times its
//     part of the weight. Otherwise a client with a new key for each request would never pay, and
//     would keep out an honest key with a debt.
func (s *Shares[K, D]) rest(k *Key[K, D]) {
	s.idled++
	k.idled = s.idled
	if len(s.keys) <= 3*s.active+2*spareKeys {
		return
	}
	var owing []*Key[K, D]
	weight := 0 // of the active ones
	for _, k := range s.keys {
		switch {
		case k.held > 0 || k.waiting > 0:
			weight += k.weight
		case k.used <= s.floor:
			s.forget(k)
		default:
			owing = append(owing, k)
		}
	}
	if forgotten := len(owing) - s.active - spareKeys; forgotten > 0 {
		slices.SortFunc(owing, func(a, b *Key[K, D]) int { return cmp.Compare(a.idled, b.idled) })
		for _, k := range owing[:forgotten] {
			s.floor += max(0, k.used-s.floor) * float64(k.weight) / float64(weight+k.weight)
			s.forget(k)
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

func (s *Shares[K, D]) forget(k *Key[K, D]) {
	k.forgotten = true
	delete(s.keys, k.Key)
}

// lower subtracts the floor from all used times, so that numbers stay small.
func (s *Shares[K, D]) lower() {
	for k := range s.All {
		k.used -= s.floor
	}
	for i, p := range s.heaps[line] {
		s.heaps[line][i].used = sortable(p.key.used)
	}
	for i, p := range s.heaps[behind] {
		t := p.total() - s.floor
		s.heaps[behind][i].share, s.heaps[behind][i].used = sortable(t), math.Float64bits(t)
	}
	s.floor = 0
}

// before returns 1 if a goes before b in a heap, else 0. It compares both as numbers of 192 bits
// without a branch, because a branch on a random order is mispredicted half of the time.
func (a *place[K, D]) before(b *place[K, D]) int {
	_, borrow := bits.Sub64(a.first, b.first, 0)
	_, borrow = bits.Sub64(a.used, b.used, borrow)
	_, borrow = bits.Sub64(a.share, b.share, borrow)
	return int(borrow)
}

// sortable returns a number whose order is that of f.
func sortable(f float64) uint64 {
	n := math.Float64bits(f)
	return n ^ (uint64(int64(n)>>63) | 1<<63)
}

// place moves a key to its places in the heaps after the key has changed. The clock starts and
// stops with the line.
func (s *Shares[K, D]) place(k *Key[K, D], now time.Duration) {
	p := place[K, D]{uint64(k.held), sortable(k.used), k.first, k}
	if k.weight > 1 {
		p.share /= uint64(k.weight)
	}
	ran := len(s.heaps[line]) > 0
	s.move(line, p, k.waiting > 0 && s.MayHold(k))
	if runs := len(s.heaps[line]) > 0; runs && !ran {
		s.since = now
	} else if ran && !runs {
		s.base += now - s.since
	}
	// A total falls only if units come back, so a key that is there may stay.
	if k.place[behind] == 0 == (k.waiting > 0 && k.held > 0) {
		s.placeBehind(k)
	}
}

func (s *Shares[K, D]) placeBehind(k *Key[K, D]) {
	t := k.total()
	p := place[K, D]{sortable(t), math.Float64bits(t), k.first, k}
	s.move(behind, p, k.waiting > 0 && k.held > 0)
}

// total returns the total of a key in the heap behind, as of when it was placed there.
func (p *place[K, D]) total() float64 { return math.Float64frombits(p.used) }

// move moves a key to its place in a heap, or takes it out if it does not belong there.
func (s *Shares[K, D]) move(i int, p place[K, D], belongs bool) {
	heap, at := &s.heaps[i], p.key.place[i]
	if belongs {
		if at == 0 {
			*heap = append(*heap, p)
			at = len(*heap)
		}
		s.put(i, p, at)
		return
	}
	if at == 0 {
		return
	}
	p.key.place[i] = 0
	end := len(*heap) - 1
	last := (*heap)[end]
	(*heap)[end] = place[K, D]{}
	if *heap = (*heap)[:end]; at <= end {
		s.put(i, last, at)
	}
	if cap(*heap) > 8*spareKeys && end < cap(*heap)/4 {
		*heap = append(make([]place[K, D], 0, cap(*heap)/2), *heap...)
	}
}

// put fills a gap in the heap. The gap first moves to the back, and then to the front as far as it
// must. An admitted or charged key mostly belongs to the back, so this takes fewer comparisons
// than testing at each step.
func (s *Shares[K, D]) put(i int, p place[K, D], at int) {
	heap := s.heaps[i]
	for child := 2 * at; child <= len(heap); child = 2 * at {
		if child < len(heap) {
			child += heap[child].before(&heap[child-1])
		}
		c := &heap[child-1]
		heap[at-1] = *c
		c.key.place[i] = at
		at = child
	}
	for ; at > 1 && p.before(&heap[at/2-1]) > 0; at /= 2 {
		heap[at-1] = heap[at/2-1]
		heap[at-1].key.place[i] = at
	}
	heap[at-1] = p
	p.key.place[i] = at
}
