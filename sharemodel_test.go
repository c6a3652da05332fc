package fairq

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// shared is the rule of Options.ShareTime to the letter: it looks at all keys, and forgets none.
type shared struct {
	keys  map[int]*sharer
	came  int
	floor float64
	last  time.Time
	clock time.Duration
}

type sharer struct {
	weight, held int
	used, time   float64
	at           time.Duration
	came         []int // the numbers of its items
}

// tick lets time pass. It is charged only while there are items.
func (s *shared) tick() {
	if s.next() >= 0 {
		s.clock += time.Since(s.last)
	}
	s.last = time.Now()
}

func (s *shared) count(k *sharer) {
	k.time += float64(k.held) * float64(s.clock-k.at)
	k.at = s.clock
}

// next returns the next key, -1 if there is none.
func (s *shared) next() int {
	best := -1
	for key, k := range s.keys {
		if len(k.came) == 0 {
			continue
		}
		if best < 0 {
			best = key
		}
		b := s.keys[best]
		held := k.held/k.weight - b.held/b.weight
		if cmp.Or(held, cmp.Compare(k.used, b.used), k.came[0]-b.came[0]) < 0 {
			best = key
		}
	}
	return best
}

func (s *shared) push(key, weight, _ int) {
	s.tick()
	k := s.keys[key]
	if k == nil {
		k = &sharer{}
		s.keys[key] = k
	}
	if k.held == 0 && len(k.came) == 0 {
		k.used = max(k.used, s.floor)
	}
	s.came++
	k.weight, k.came = weight, append(k.came, s.came)
}

func (s *shared) Pop() int {
	s.tick()
	key := s.next()
	k := s.keys[key]
	s.count(k)
	s.floor = max(s.floor, k.used)
	k.came = k.came[1:]
	k.held++
	return key
}

// end ends an item of a key, and returns false if none is held.
func (s *shared) end(key int) bool {
	s.tick()
	k := s.keys[key]
	if k == nil || k.held == 0 {
		return false
	}
	s.count(k)
	charge := k.time / float64(k.held)
	k.time -= charge
	k.used += charge / float64(k.weight)
	k.held--
	return true
}

func (s *shared) remove(key, i int) {
	s.tick()
	k := s.keys[key]
	k.came = slices.Delete(k.came, i, i+1)
}

func (s *shared) drain() {
	s.tick()
	for _, k := range s.keys {
		k.came = nil
	}
}

func (s *shared) Future() [][]int {
	c := shared{keys: maps.Clone(s.keys)}
	for key, k := range c.keys {
		c.keys[key] = &sharer{weight: k.weight, held: k.held, used: k.used, came: k.came}
	}
	var order []int
	for key := c.next(); key >= 0; key = c.next() {
		order = append(order, key)
		c.keys[key].came = c.keys[key].came[1:]
		c.keys[key].held++
	}
	return [][]int{order}
}

func (s *shared) Rounds(key int) int {
	k := s.keys[key]
	return (len(k.came) + k.weight - 1) / k.weight
}

func (s *shared) Left() int { return 0 }
