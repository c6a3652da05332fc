package fairq

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// history makes random calls on a queue and on the model, and checks the promises of the package
// documentation.
type history struct {
	q       Queue[int, int]
	m       *model
	random  *rand.Rand
	weight  []int         // by key
	pops    int           // so far
	waiting map[int]*wait // by item
	tickets map[int]Ticket
	events  []event
}

// wait is an item in the queue.
type wait struct {
	pushed   int // pops so far at its push
	left     int // items left in the current round at its push
	nth      int // items of its key at its push, itself included
	weights  int // sum of the weights of the keys that had items then, its own included
	ever     map[int]bool
	position int
}

// event is a pop, with the keys that had items when it was made.
type event struct {
	key    int
	active map[int]bool
}

func newHistory(seed uint64, weighted bool) *history {
	h := &history{
		random: rand.New(rand.NewPCG(seed, 3)), waiting: map[int]*wait{}, tickets: map[int]Ticket{},
	}
	weights := map[int]int{}
	for key := range 2 + h.random.IntN(4) {
		h.weight = append(h.weight, 1)
		if weighted {
			h.weight[key] = 1 + h.random.IntN(3)
		}
		weights[key] = h.weight[key]
	}
	h.q.Weight = func(key int) int { return h.weight[key] }
	h.m = newModel(weights, pricing{})
	return h
}

func (h *history) push(t *testing.T, item int) {
	key := h.random.IntN(len(h.weight))
	if h.random.IntN(2) == 0 {
		key = 0 // it floods the others
	}
	left := h.m.turns.Left()
	h.tickets[item] = h.q.Add(key, item)
	h.m.push(key, item)
	w := &wait{pushed: h.pops, left: left, nth: h.q.KeyLen(key), ever: map[int]bool{}}
	for k := range h.m.keys {
		w.ever[k] = true
		w.weights += h.weight[k]
	}
	for _, other := range h.waiting {
		other.ever[key] = true
	}
	var ok bool
	w.position, ok = h.q.Position(h.tickets[item])
	require.True(t, ok)
	h.waiting[item] = w
}

// pop pops, and checks how long the item has waited.
func (h *history) pop(t *testing.T) {
	active := map[int]bool{}
	for k := range h.m.keys {
		active[k] = true
	}
	key, item, ok := h.q.Pop()
	if !ok {
		return
	}
	h.m.pop()
	h.events = append(h.events, event{key, active})
	w := h.waiting[item]
	delete(h.waiting, item)
	waited := h.pops - w.pushed
	h.pops++
	ever := 0
	for k := range w.ever {
		ever += h.weight[k]
	}
	rounds := (w.nth + h.weight[key] - 1) / h.weight[key]
	bound := min(w.left+rounds*ever-1, (rounds+1)*ever-h.weight[key]-1)
	if w.nth == 1 { // a first item waits for nobody who comes later
		bound = min(bound, 2*(w.weights-h.weight[key]), w.position)
	}
	require.LessOrEqual(t, waited, bound, "key %d, %+v, weights %v", key, w, h.weight)
}

func (h *history) remove() {
	for item := range h.waiting {
		before := map[int]int{}
		for other := range h.waiting {
			before[other], _ = h.q.Position(h.tickets[other])
		}
		h.q.Remove(h.tickets[item])
		h.m.remove(item)
		delete(h.waiting, item)
		for other := range h.waiting {
			if after, _ := h.q.Position(h.tickets[other]); after > before[other] {
				panic("a removal has made an item wait longer")
			}
		}
		return
	}
}

// TestBounds checks the bounds on waiting, on random histories with and without weights and
// removals.
func TestBounds(t *testing.T) {
	for seed := range uint64(800) {
		h := newHistory(seed, seed%2 == 0)
		for i := range 120 {
			switch r := h.random.IntN(20); {
			case r < 9:
				h.push(t, i)
			case r == 9 && seed%4 < 2:
				h.remove()
			default:
				h.pop(t)
			}
		}
		for h.q.Len() > 0 {
			h.pop(t)
		}
		if seed%4 >= 2 { // nothing was removed
			h.checkMonopoly(t)
			if seed%2 == 1 { // all weights are 1
				h.checkBalance(t)
			}
		}
	}
}

// checkMonopoly: no key is served more than twice its weight in a slot while another has items.
func (h *history) checkMonopoly(t *testing.T) {
	for other := range h.weight {
		run, last := 0, -1
		for _, e := range h.events {
			if !e.active[other] || e.key != last {
				run = 0
			}
			last = e.key
			if e.active[other] && e.key != other {
				run++
			}
			if run > 2*h.weight[e.key] {
				require.Failf(t, "monopoly", "key %d %d times while %d has items", e.key, run, other)
			}
		}
	}
}

// checkBalance: over any stretch in which two keys have items, they are served equally often, give
// or take 2.
func (h *history) checkBalance(t *testing.T) {
	for a := range h.weight {
		for b := range a {
			difference, least, most := 0, 0, 0
			for _, e := range h.events {
				if !e.active[a] || !e.active[b] {
					difference, least, most = 0, 0, 0
					continue
				}
				switch e.key {
				case a:
					difference++
				case b:
					difference--
				}
				least, most = min(least, difference), max(most, difference)
				if most-least > 2 {
					require.Failf(t, "imbalance", "of %d items between keys %d and %d", most-least, a, b)
				}
			}
		}
	}
}

// TestBoundsAreTight shows that the bounds cannot be lowered.
func TestBoundsAreTight(t *testing.T) {
	var q Queue[string, string]
	push := func(items ...string) (last Ticket) {
		for _, item := range items {
			last = q.Add(item[:1], item)
		}
		return last
	}
	// 1 item left of the round, 2 keys, the second item of its key: 1 + 2*2 - 1.
	push("A", "B", "B", "B")
	q.Pop()
	position, _ := q.Position(push("A", "A"))
	require.Equal(t, 4, position)

	// The first item of its key, 3 keys: 2 * (3-1).
	q = Queue[string, string]{}
	push("A", "B", "C", "B", "C")
	q.Pop()
	position, _ = q.Position(push("A"))
	require.Equal(t, 4, position)

	// Twice in a slot, though B waits.
	q = Queue[string, string]{}
	push("B", "A", "A", "B")
	var order string
	for u := range q.Order() {
		order += u.Key
	}
	require.Equal(t, "BAAB", order)
}

// A queue whose length swings about the end of a chunk does not allocate each time.
func TestNoChurn(t *testing.T) {
	for start := chunkSlots - 60; start < chunkSlots+20; start += 5 {
		var q Queue[int, int]
		for i := range start {
			q.Push(i, i)
		}
		next, tickets := start, [20]Ticket{}
		require.Zero(t, testing.AllocsPerRun(20, func() {
			for i := range tickets {
				next++
				tickets[i] = q.Add(next, i)
			}
			for _, ticket := range tickets {
				q.Remove(ticket)
			}
		}), "%d keys", start)
	}
}

// TestSpike fills a Queue and a FairQueue with items that have memory of their own, and drains all
// but a few. Both deliver the same items, each key's in order, and give back their memory.
func TestSpike(t *testing.T) {
	const items, few, kinds = 16_000, 10, 7200
	keyOf := func(item int) int { return item % (1 + item%kinds) } // few keys have many items
	for name, o := range map[string]Options[int, int]{
		"plain":     {},
		"TrackWait": {TrackWait: true},
		"costs":     {Quantum: 3, Cost: func(item int) int64 { return 1 + int64(item%7) }},
		"tickets":   {},
	} {
		t.Run(name, func(t *testing.T) {
			o.Capacity = Unbounded
			fair, q := New(keyOf, &o), Queue[int, int]{Cost: o.Cost, Quantum: o.Quantum}
			if o.TrackWait {
				q.waitTimes = new(waitTimes)
			}
			last := map[int]int{} // by key, the item delivered last
			for next := 1; next < 2*items; {
				outline, removed, batch := q.outline(), 0, make([]int, 1000)
				for q.Len()+removed < items {
					for i := range batch {
						batch[i] = next
						next++
						if name != "tickets" {
							q.Push(keyOf(batch[i]), batch[i])
							continue
						}
						ticket := q.Add(keyOf(batch[i]), batch[i])
						if other, err := fair.Add(batch[i]); err == nil && next%3 == 0 {
							removed++
							one, _ := q.Remove(ticket)
							two, _ := fair.Remove(other)
							require.Equal(t, [2]int{batch[i], batch[i]}, [2]int{one, two})
						}
					}
					if name != "tickets" {
						n, err := fair.PushBatch(batch)
						require.Equal(t, []any{len(batch), nil}, []any{n, err})
					}
				}
				require.NoError(t, cmp.Or(q.check(), fair.Check()))
				grown, whole := outline.blank(), q.blank() // of the first, the queue has grown since
				q.copyTo(&grown)
				q.copyTo(&whole)
				require.Equal(t, whole.snapshot(), grown.snapshot())
				var lengths, longest []int
				for key := range kinds {
					lengths = append(lengths, fair.KeyStat(key).Backlog)
				}
				slices.Sort(lengths)
				for _, k := range fair.KeyStats(2000, ByBacklog) {
					longest = append(longest, k.Backlog)
				}
				slices.Reverse(longest)
				require.Equal(t, lengths[kinds-2000:], longest)
				for q.Len() > few {
					for _, item := range batch[:fair.PopBatch(batch[:min(len(batch), q.Len()-few)])] {
						key, own, ok := q.Pop()
						require.Equal(t, []any{keyOf(item), item, true}, []any{key, own, ok})
						require.Less(t, last[key], item)
						last[key] = item
					}
				}
				for _, q := range []*Queue[int, int]{&q, &fair.queue} {
					require.NoError(t, q.check())
					require.Equal(t, few, q.Len())
					require.LessOrEqual(t, max(q.nodes.chunkCount, q.keys.slots.chunkCount), 4)
				}
			}
		})
	}
}

// A table frees chunks without keys, with their accounts and shares.
func TestAccountsOfKeysThatAreGone(t *testing.T) {
	var table keyTable[int]
	for key := range 3 * chunkSlots {
		slot := table.insert(key, hashOf(key))
		table.beginCost(slot)
		table.shares.reach(slot)
	}
	for key := range 3 * chunkSlots {
		slot := table.find(key, hashOf(key)).slot
		table.remove(slot)
	}
	require.Equal(t, 1, table.slots.chunkCount)
	require.False(t, table.costs.strays(&table.slots) || table.shares.strays(&table.slots))
}

// The table separates keys with the same hash, and a key with another hash in the same bucket.
func TestOneHash(t *testing.T) {
	var table keyTable[int]
	one, two := table.insert(1, 7), table.insert(2, 7)
	for _, want := range [][4]uint32{{0, one, two, 0}, {0, one, 0, 0}} {
		for key, slot := range want {
			found := table.find(key, 7).slot
			require.Equal(t, slot, found, "key %d", key)
			found = table.find(key, 7+minBuckets).slot
			require.Zero(t, found)
		}
		if want[2] != 0 {
			table.remove(two)
		}
	}
}
