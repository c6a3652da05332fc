package fairq

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/internal/account"
)

// costly is an item of a key with its cost.
type costly struct{ key, cost int }

func costOf(item costly) int64 { return int64(item.cost) }

// priced is a queue of costly items that checks its bounds.
type priced struct {
	Queue[int, costly]
	weights, largest []int // by key: its weight, and the cost of its most expensive item
	random           *rand.Rand
	served           []costly
	before           []map[int]int // how many items each key had before each was served
	last             []bool        // was it the last of its key?
}

func newPriced(seed uint64, quantum int) *priced {
	p := &priced{random: rand.New(rand.NewPCG(seed, 8))}
	for range 2 + p.random.IntN(4) {
		p.weights, p.largest = append(p.weights, 1+p.random.IntN(1+int(seed%3))), append(p.largest, 0)
	}
	p.Cost, p.Quantum = costOf, int64(quantum)
	p.Weight = func(key int) int { return p.weights[key] }
	return p
}

func (p *priced) share(key int) int { return p.weights[key] * int(p.Quantum) }

func (p *priced) push(key, cost int) {
	p.largest[key] = max(p.largest[key], cost)
	p.Push(key, costly{key, cost})
}

func (p *priced) next() {
	lengths := map[int]int{}
	for key := range p.weights {
		lengths[key] = p.KeyLen(key)
	}
	p.before = append(p.before, lengths)
	_, item, _ := p.Pop()
	p.served, p.last = append(p.served, item), append(p.last, p.KeyLen(item.key) == 0)
}

// A new key waits for its first item at most for the rest of the round, and for each other key for
// its share, less one unit, and its most expensive item.
func TestNewcomerWaitsForLittleWork(t *testing.T) {
	for seed := range uint64(2000) {
		p := newPriced(seed, 1+int(seed%40))
		dearest := 1 + p.random.IntN(60)
		for range 60 {
			for range p.random.IntN(5) {
				p.push(1+p.random.IntN(len(p.weights)-1), 1+p.random.IntN(dearest))
			}
			for range min(p.Len(), p.random.IntN(4)) {
				p.next()
			}
		}
		bound := 0
		for round, node := range p.order(true) {
			if round == p.rounds.current {
				bound += p.values.at(node).cost
			}
		}
		for key := 1; key < len(p.weights); key++ {
			bound += p.share(key) - 1 + p.largest[key]
		}
		p.push(0, 1)
		waited := 0
		for p.KeyLen(0) > 0 {
			p.push(1+p.random.IntN(len(p.weights)-1), 1+p.random.IntN(dearest)) // too late
			p.next()
			waited += p.served[len(p.served)-1].cost
		}
		require.LessOrEqual(t, waited-1, bound, "seed %d", seed)
	}
}

// While two keys have items, and the next item of each is queued before the round of its last one
// begins, their served work differs by little, each in units of its share of a round.
func TestBalanceOfWork(t *testing.T) {
	most := 0.0
	for seed := range uint64(2000) {
		p := newPriced(seed, 1+int(seed%40))
		dearest := make([]int, len(p.weights))
		for key := range dearest {
			dearest[key] = 1 + p.random.IntN(60)
		}
		for range 150 {
			for key := range p.weights {
				for i := p.KeyLen(key); i < 2*p.share(key)+p.random.IntN(2); i++ {
					p.push(key, 1+p.random.IntN(dearest[key]))
				}
			}
			p.next()
		}
		for a := range p.weights {
			for b := range a {
				units := func(key int) float64 { return float64(p.largest[key]-1) / float64(p.share(key)) }
				bound := 2 + units(a) + units(b)
				most = max(most, p.balance(a, b)/bound)
				require.LessOrEqual(t, p.balance(a, b), bound+1e-9, "seed %d", seed)
			}
		}
	}
	require.Greater(t, most, 0.8, "the bound says something")
}

// balance returns the greatest difference in the service of two keys, over all stretches in which
// both have items.
func (p *priced) balance(a, b int) float64 {
	difference, least, most, widest := 0.0, 0.0, 0.0, 0.0
	for i, item := range p.served {
		switch {
		case p.before[i][a] == 0 || p.before[i][b] == 0:
			difference, least, most = 0, 0, 0
			continue
		case item.key == a:
			difference += float64(item.cost) / float64(p.share(a))
		case item.key == b:
			difference -= float64(item.cost) / float64(p.share(b))
		}
		least, most = min(least, difference), max(most, difference)
		widest = max(widest, most-least)
		if p.last[i] && (item.key == a || item.key == b) {
			difference, least, most = 0, 0, 0
		}
	}
	return widest
}

// A key that pushes its next item when its last one has left gets no more than a key with a
// backlog, whatever the quantum. It gets less only if several items fit into its share of a round.
func TestOneItemAtATime(t *testing.T) {
	for _, quantum := range []int{10, 25, 50, 99, 100, 101, 150, 300, 1000} {
		for _, rest := range []int{0, 20} { // others, so that rounds have more than one item
			p := newPriced(0, quantum)
			p.weights, p.largest = make([]int, 2+rest), make([]int, 2+rest)
			for key := range p.weights {
				p.weights[key] = 1
			}
			const cost = 100
			work := [2]int{}
			p.push(1, cost)
			for range 3000 {
				for p.KeyLen(0) < 50 {
					p.push(0, cost)
				}
				for i := range rest {
					if p.KeyLen(2+i) == 0 {
						p.push(2+i, cost)
					}
				}
				p.next()
				if last := p.served[len(p.served)-1]; last.key < 2 {
					work[last.key] += last.cost
					if last.key == 1 {
						p.push(1, cost)
					}
				}
				bound := 2*quantum + 2*(cost-1)
				require.LessOrEqual(t, work[1]-work[0], bound, "quantum %d", quantum)
				if quantum <= cost {
					require.LessOrEqual(t, work[0]-work[1], bound, "quantum %d", quantum)
				}
			}
			require.NoError(t, p.check())
		}
	}
}

// Keys are remembered only until the rounds that they have used are over.
func TestAccountsAreForgotten(t *testing.T) {
	q := Queue[int, costly]{Cost: costOf, Quantum: 1}
	q.Push(-1, costly{cost: 1})
	q.Push(-1, costly{cost: 1})
	const keys = 10_000
	for key := range keys {
		q.Push(key, costly{cost: 1 + key%1000})
	}
	for range keys + 1 {
		q.Pop()
	}
	require.Greater(t, q.keys.count, uint32(keys/2), "they have used rounds to come")
	for range 3 * keys {
		q.Push(-1, costly{cost: 1})
		q.Pop()
	}
	require.LessOrEqual(t, q.keys.count, uint32(maxIdle+1+idleShare))
	require.NoError(t, q.check())

	q = Queue[int, costly]{Cost: costOf, Quantum: 1}
	for range 3 { // an empty queue forgets all
		q.Push(1, costly{cost: 1000})
		q.Push(2, costly{cost: 1000})
		q.Pop()
		q.Pop()
		q.Push(1, costly{cost: 1})
		q.Push(3, costly{cost: 1})
		key, _, _ := q.Pop()
		require.Equal(t, 1, key)
		q.Pop()
	}
}

// An empty queue remembers few keys, and after many of them none.
func TestIdleKeysAreForgotten(t *testing.T) {
	const keys = 10_000
	q := Queue[int, costly]{Cost: costOf, Quantum: 1}
	for key := range keys {
		q.Push(key, costly{cost: 1})
		q.Pop()
		require.EqualValues(t, (key+1)%(maxIdle+1), q.keys.count)
	}
	for key := range keys {
		q.Push(key, costly{cost: 1})
	}
	for range keys {
		q.Pop()
	}
	require.Zero(t, q.keys.count)
	require.NoError(t, q.check())
}

// A wrong cost returns an error that names it, and changes nothing.
func TestCostOutOfRange(t *testing.T) {
	o := Options[int, costly]{Cost: costOf, Quantum: 10}
	q := New(func(item costly) int { return item.key }, &o)
	good := costly{7, 5}
	for cost, want := range map[int]string{
		0: "it is 0", -1: "it is -1", 10*account.MaxQuanta + 1: "it is 655361",
	} {
		bad := costly{7, cost}
		_, err := q.Add(bad)
		n, batch := q.PushBatch([]costly{good, bad, good})
		require.Equal(t, 1, n)
		for _, err := range []error{err, q.Push(bad), q.PushWait(t.Context(), bad), batch} {
			require.ErrorIs(t, err, ErrCost)
			require.ErrorContains(t, err, want+" for an item of key 7; the limits are 1 and 655360")
		}
		require.PanicsWithError(t, batch.Error(), func() {
			(&Queue[int, costly]{Cost: costOf, Quantum: 10}).Push(7, bad)
		})
	}
	require.Equal(t, 3, q.Len())
	require.NoError(t, q.Push(costly{7, 10 * account.MaxQuanta}))
	free := New(strings.Clone,
		&Options[string, string]{Quantum: 1, Cost: func(string) int64 { return 0 }})
	require.ErrorContains(t, free.Push("a\x1b"), `it is 0 for an item of key "a\x1b"; the limits`)

	for _, quantum := range []int64{-1, 0, MaxQuantum + 1} {
		want := fmt.Sprintf("fairq: Queue.Quantum is %d; with costs, the limits are 1 and MaxQuantum, "+
			"4194304", quantum)
		require.PanicsWithError(t, want, func() {
			(&Queue[int, costly]{Cost: costOf, Quantum: quantum}).Push(1, good)
		})
	}
	// The greatest quantum, weight and cost do not overflow.
	big := Queue[int, costly]{
		Cost: func(costly) int64 { return MaxCost }, Quantum: MaxQuantum,
		Weight: func(int) int { return MaxWeight },
	}
	for range 10 {
		big.Push(1, good)
	}
	require.NoError(t, big.check())
}

// Cost and Quantum may change while the queue is empty. A change before that waits until it is.
func TestChangingCost(t *testing.T) {
	var q Queue[int, costly]
	q.Push(1, costly{1, 9})
	q.Cost, q.Quantum = costOf, 3
	q.Push(1, costly{1, 9})
	require.False(t, q.costs.areOn())
	q.Pop()
	q.Pop()
	q.Push(1, costly{1, 9})
	q.Push(1, costly{1, 1})
	q.Push(2, costly{2, 1})
	q.Push(2, costly{2, 1})
	require.True(t, q.costs.areOn())
	q.Cost = nil
	q.Push(2, costly{2, 1})
	require.NoError(t, q.check())
	order := ""
	for q.Len() > 0 {
		key, _, _ := q.Pop()
		order += fmt.Sprint(key)
	}
	require.Equal(t, "12221", order)
	q.Push(1, costly{1, 9})
	require.False(t, q.costs.areOn())
	require.NoError(t, q.check())
}

// After any change of costs or weights at any time the queue keeps its invariants, and each key's
// items leave in order.
func TestChangingCostAtRandom(t *testing.T) {
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 8))
		q := Queue[int, int]{Weight: func(int) int { return 1 + random.IntN(4) }}
		queued, next := map[int][]int{}, 0
		for range 300 {
			key := random.IntN(4)
			switch n := random.IntN(12); {
			case n == 0:
				q.Cost, q.Quantum, q.SettleCosts = nil, 0, false
				if random.IntN(2) == 0 {
					q.SettleCosts = random.IntN(2) == 0
					q.Cost, q.Quantum = func(item int) int64 { return int64(1 + item%20) }, 7
				}
			case n == 1 && q.SettleCosts:
				q.ReportCost(key, random.IntN(100), random.Int64N(50))
			case n == 2 && q.Len() > 0:
				last, item, ok := 0, 0, false
				if random.IntN(2) == 0 {
					key, item, ok = q.Evict()
					last = len(queued[key]) - 1
				} else if item, ok = q.RemoveOldest(key); !ok {
					continue
				}
				require.Equal(t, []any{queued[key][last], true}, []any{item, ok})
				queued[key] = slices.Delete(queued[key], last, last+1)
			case n < 6:
				next++
				q.Push(key, next)
				queued[key] = append(queued[key], next)
			default:
				key, item, ok := q.Pop()
				if ok {
					require.Equal(t, queued[key][0], item)
					queued[key] = queued[key][1:]
				}
			}
			require.NoError(t, q.check(), "seed %d", seed)
		}
		left := 0
		for _, items := range queued {
			left += len(items)
		}
		require.Equal(t, left, q.Len())
	}
}

func TestReportCostErrors(t *testing.T) {
	key := func(key int) int { return key }
	require.EqualError(t, New(key, nil).ReportCost(1, 5),
		"fairq: ReportCost: costs are not settled; set SettleCosts")
	q := New(key, &Options[int, int]{
		Cost: func(int) int64 { return 1 }, Quantum: 1, SettleCosts: true,
	})
	require.ErrorIs(t, q.ReportCost(1, -1), ErrCost)
	require.NoError(t, q.ReportCost(3, 7), "it was never seen")
	require.NoError(t, q.ReportCost(4, 0))
	require.EqualValues(t, 1, q.queue.keys.count, "a key without a debt is not remembered")
	require.Panics(t, func() { new(Queue[int, int]).ReportCost(1, 1, 5) })
}

// With settled costs the real costs of two keys with items differ by little, whatever they
// declare. The keys overstate and understate by up to 1,000 times, come and go, and have up to 8
// items at work; the items of one key take 1,000 times as long.
func TestSettledBalance(t *testing.T) {
	seeds, most := uint64(2000), 0.0
	if testing.Short() {
		seeds = 1200
	}
	for seed := range seeds {
		s := newSettled(seed)
		for range 400 {
			s.step()
		}
		require.NoError(t, s.check(), "seed %d", seed)
		for a := range s.weights {
			for b := range a {
				bound := 2.0
				for _, key := range []int{a, b} {
					bound += float64((s.inFlight[key]+1)*(s.largest[key]+s.charged[key])) / float64(s.share(key))
				}
				difference := s.balance(a, b)
				most = max(most, difference/bound)
				require.LessOrEqual(t, difference, bound+1e-9, "seed %d: keys %d and %d", seed, a, b)
			}
		}
	}
	require.Greater(t, most, 0.4, "the bound says something")
}

// A single worker reports a cost before it takes the next item. So the declared costs make no
// difference, and are not in the bound. A key that overstates by 40 does not wait for a turn of
// that price, and is not served 40 times in a row afterwards.
func TestOverstatedCosts(t *testing.T) {
	s := newSettled(1)
	s.workers, s.weights, s.factor, s.comes, s.Quantum = 1, []int{1, 1}, []float64{1, 40},
		[]bool{false, false}, 1000
	for range 1000 {
		s.step()
	}
	require.LessOrEqual(t, s.balance(1, 0), 2+2*float64(s.largest[0]+s.largest[1])/1000)
}

// settled is a queue with workers that take some time for an item, and then report its real cost.
type settled struct {
	*priced
	workers           int
	factor            []float64 // by key: what it declares, as a part of what its items cost
	comes             []bool    // by key: it comes and goes, and has no backlog
	working           []working
	now               int
	charged, inFlight []int // by key: the most
}

type working struct {
	costly
	until int
}

func newSettled(seed uint64) *settled {
	s := &settled{priced: newPriced(seed, 1)}
	s.workers, s.weights = 1+s.random.IntN(8), nil
	for range 2 + s.random.IntN(3)*s.random.IntN(5) {
		s.weights = append(s.weights, 1+s.random.IntN(5))
		s.factor = append(s.factor, math.Pow(1000, 2*s.random.Float64()-1))
		s.comes = append(s.comes, s.random.IntN(4) == 0)
	}
	n := len(s.weights)
	s.largest, s.charged, s.inFlight = make([]int, n), make([]int, n), make([]int, n)
	s.Quantum, s.SettleCosts = int64(1000*math.Pow(10, 2*s.random.Float64()-1)), true
	s.Cost = func(item costly) int64 { return int64(max(1, s.factor[item.key]*float64(item.cost))) }
	return s
}

// step lets a worker take an item, or lets the next finished item report its cost.
func (s *settled) step() {
	for key, comes := range s.comes {
		for s.KeyLen(key) < 2 && (!comes || s.random.IntN(8) == 0) {
			item := costly{key, 1 + s.random.IntN(2000)}
			s.charged[key] = max(s.charged[key], int(s.Cost(item)))
			s.push(key, item.cost)
		}
	}
	for len(s.working) < s.workers && s.Len() > 0 {
		s.next()
		item := s.served[len(s.served)-1]
		time := item.cost
		if item.key == 0 {
			time *= 1000
		}
		s.working = append(s.working, working{item, s.now + time})
		n := 0
		for _, w := range s.working {
			if w.key == item.key {
				n++
			}
		}
		s.inFlight[item.key] = max(s.inFlight[item.key], n)
	}
	first := 0
	for i, w := range s.working {
		if w.until < s.working[first].until {
			first = i
		}
	}
	if len(s.working) > 0 {
		w := s.working[first]
		s.now, s.working = w.until, slices.Delete(s.working, first, first+1)
		s.ReportCost(w.key, w.costly, int64(w.cost))
	}
}
