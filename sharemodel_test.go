package fairq

import (
	"time"

	"github.com/fairq/fairq/internal/fairshare"
)

// shared is the rule of Options.ShareTime by package fairshare, which has a model of its own. It
// keeps the items in slices, finds each key in the map, and always reads the clock.
type shared struct {
	rule  fairshare.Shares[int, []uint64] // with the numbers of the key's items
	start time.Time
	came  uint64

	limited bool // Future is of the items that may be taken
}

func (s *shared) now() time.Duration { return time.Since(s.start) }

func first(k *fairshare.Key[int, []uint64]) uint64 {
	if len(k.Data) == 0 {
		return 0
	}
	return k.Data[0]
}

func (s *shared) push(key, weight, _ int) {
	s.came++
	k := s.rule.Add(s.rule.Find(key), key, weight)
	k.Data = append(k.Data, s.came)
	s.rule.Wait(k, first(k), s.now())
}

func (s *shared) Pop() int {
	k := s.rule.Next()
	k.Data = k.Data[1:]
	s.rule.Admit(k, first(k), s.now())
	return k.Key
}

// end ends an item of a key, and returns false if none is held.
func (s *shared) end(key int) bool {
	k := s.rule.Find(key)
	if k == nil || k.Held() == 0 {
		return false
	}
	s.rule.Release(k, 0, s.now())
	return true
}

// ready returns how many items may be taken, and how many are in hand.
func (s *shared) ready() (ready, taken int) {
	for k := range s.rule.All {
		n := k.Waiting()
		if limit := s.rule.MaxHeld; limit > 0 {
			n = min(n, limit-k.Held())
		}
		ready, taken = ready+n, taken+k.Held()
	}
	return ready, taken
}

func (s *shared) remove(key, i int) {
	k := s.rule.Find(key)
	k.Data = append(k.Data[:i:i], k.Data[i+1:]...)
	s.rule.Leave(k, first(k), s.now())
}

func (s *shared) drain() {
	s.rule.Clear(s.now())
	for k := range s.rule.All {
		k.Data = nil
	}
}

func (s *shared) Future() [][]int {
	rule := s.rule.Copy(!s.limited)
	var order []int
	for k := rule.Next(); k != nil; k = rule.Next() {
		order = append(order, k.Key)
		k.Data = k.Data[1:]
		rule.Admit(k, first(k), 0)
	}
	return [][]int{order}
}

func (s *shared) Rounds(key int) int {
	k := s.rule.Find(key)
	return (k.Waiting() + k.Weight() - 1) / k.Weight()
}

func (s *shared) Left() int { return 0 }
