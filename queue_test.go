package fairq

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// driver makes the same calls on a queue and on the model, and compares all results.
type driver struct {
	testing.TB
	q       Queue[float64, int]
	m       *model
	nan     bool // key 0 is NaN
	tickets map[int]Ticket
	earlier Queue[float64, int] // the outline of an earlier state
	live    []int               // the items whose tickets have not been used
	flight  []modelItem         // popped, without a reported cost
	next    int                 // the next item; 0 is none
}

// drive decodes data to settings, from the first two bytes, and to calls, and makes these.
func drive(t *testing.T, data []byte) {
	if len(data) < 2 || len(data) > 300 {
		return
	}
	p, data := pricings[int(data[0])%len(pricings)], data[1:]
	mode, keys := data[0], 2+int(data[0]>>4)
	d := &driver{TB: t, nan: mode&4 != 0, tickets: map[int]Ticket{}, next: 1}
	weights := map[int]int{}
	if mode&2 != 0 {
		for k := range keys {
			weights[k] = 1 + k%3
		}
		d.q.Weight = func(k float64) int { return max(1, weights[numberOf(k)]) }
	}
	deep := keys == 17 // hundreds of rounds of few keys
	if deep {
		keys = 3
	}
	if mode&8 != 0 {
		d.q.rounds.begin(1<<32 - 2)
	}
	d.m = newModel(weights, p)
	p.configure(&d.q)
	for i, b := range data[1:] {
		key, repeat := int(b>>3)%keys, 1
		if deep && b>>3 < 8 {
			repeat = 150
		}
		for range repeat {
			d.step(b&7, int(b>>3), key)
		}
		if d.q.keys.size > 0 {
			d.q.forgetIdle() // as if there were many keys
		}
		if deep && i%32 > 0 || testing.Short() && i%4 > 0 {
			continue
		}
		require.NoError(t, d.q.check(), "step %d", i)
		compare(t, &d.q, d.m)
		d.comparePosition()
		c := d.earlier.blank()
		d.q.copyTo(&c)
		require.Equal(t, d.m.order(), orderOf(&c))
		d.earlier = d.q.outline()
	}
	for d.m.len() > 0 {
		d.step(4, 0, 0)
	}
	require.NoError(t, d.q.check())
}

// begin lets the rounds of an empty queue begin after the given one.
func (r *rounds) begin(round uint64) {
	r.current, r.last, r.dir = round, round, make([]*roundChunk, 2)
	*r.chunk(round + 1) = new(roundChunk)
}

func (d *driver) step(op byte, arg, key int) {
	name := keyOf(key, d.nan)
	switch {
	case op <= 1:
		d.q.Push(name, d.next)
		d.m.push(key, d.next)
		d.next++
	case op == 2 || op == 3:
		d.tickets[d.next] = d.q.Add(name, d.next)
		d.m.push(key, d.next)
		d.live = append(d.live, d.next)
		d.next++
	case op == 4 || op == 5:
		k, v, ok := d.q.Pop()
		mk, mv, mok := d.m.pop()
		d.same(modelItem{mk, mv}, mok, modelItem{numberOf(k), v}, ok)
		if ok && d.m.pricing.settle {
			d.flight = append(d.flight, modelItem{mk, mv})
		}
		if at := arg % 4; op == 5 && at < len(d.flight) {
			i := d.flight[at]
			d.flight = slices.Delete(d.flight, at, at+1)
			cost := d.m.pricing.realCost(i.item, arg)
			d.q.ReportCost(keyOf(i.key, d.nan), i.item, int64(cost))
			d.m.reportCost(i.key, i.item, cost)
		}
	case op == 6 && len(d.live) > 0:
		at := arg * len(d.live) / 32
		item := d.live[at]
		v, ok := d.q.Remove(d.tickets[item])
		d.removed(item, d.m.remove(item), v, ok)
		d.live = append(d.live[:at], d.live[at+1:]...)
	case op == 7 && arg < 4:
		want := d.m.items(key)
		require.Equal(d, want, d.q.RemoveKey(name), "remove key %d", key)
		for _, item := range want {
			d.m.remove(item)
		}
	case op == 7 && arg < 16:
		oldest := append(d.m.items(key), 0)[0]
		v, ok := d.q.RemoveOldest(name)
		d.removed(oldest, d.m.remove(oldest), v, ok)
	case op == 7 && arg < 28:
		heaviest, victim, _ := d.m.heaviest()
		k, v, ok := d.q.Evict()
		require.True(d, !ok || heaviest[numberOf(k)])
		d.removed(victim, d.m.remove(victim), v, ok)
	}
}

func (d *driver) same(want modelItem, wantOK bool, got modelItem, ok bool) {
	require.Equal(d, wantOK, ok)
	require.Equal(d, want, got)
}

func (d *driver) removed(want int, wantOK bool, got int, ok bool) {
	require.Equal(d, wantOK, ok)
	if ok {
		require.Equal(d, want, got)
	}
}

func (d *driver) comparePosition() {
	if len(d.live) == 0 {
		return
	}
	item := d.live[len(d.live)/2]
	want, wantOK := d.m.position(item)
	got, ok := d.q.Position(d.tickets[item])
	d.removed(want, wantOK, got, ok)
}

func orderOf(q *Queue[float64, int]) (order []modelItem) {
	for u := range q.Order() {
		order = append(order, modelItem{numberOf(u.Key), u.Item})
	}
	return order
}

func compare(t testing.TB, q *Queue[float64, int], m *model) {
	want := m.order()
	if q.shares == nil || q.shares.MaxHeld == 0 { // else see compareUpcoming
		require.Equal(t, want, orderOf(q), "order")
		if k, v, ok := q.Peek(); ok || len(want) > 0 {
			require.True(t, ok)
			got := modelItem{numberOf(k), v}
			require.Equal(t, want[0], got, "peek")
		}
	}
	require.Equal(t, len(want), q.Len())
	require.Equal(t, len(m.keys), q.active)
	for key, items := range m.keys {
		require.Equal(t, len(items), max(q.KeyLen(float64(key)), q.KeyLen(keyOf(key, true))))
	}
}

func TestQueueAgainstModel(t *testing.T) {
	seeds := uint64(1000)
	if testing.Short() {
		seeds = 100
	}
	for seed := range seeds {
		random := rand.New(rand.NewPCG(seed, 1))
		data := make([]byte, 2+random.IntN(120))
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) { drive(t, data) }) {
			return
		}
	}
}

// Reads change nothing in any state of the queue; otherwise the race detector would report it.
func TestReadersAtOnce(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 7))
		q := Queue[int, int]{}
		if seed&4 != 0 {
			q.Cost, q.Quantum, q.SettleCosts = func(item int) int64 { return int64(1 + item) }, 9,
				seed&2 != 0
		}
		var ticket Ticket
		for i := range 30 {
			var readers sync.WaitGroup
			for range 2 {
				readers.Go(func() {
					for range q.Order() {
						q.Position(ticket)
					}
					q.Peek()
					q.KeyLen(i)
					q.Len()
				})
			}
			readers.Wait()
			if random.IntN(3) == 0 {
				q.Pop()
			} else {
				ticket = q.Add(random.IntN(3), i)
			}
		}
	}
}

func TestMaxLen(t *testing.T) {
	q := Queue[int, int]{len: MaxLen}
	require.PanicsWithValue(t,
		"fairq: the queue holds 536870912 items; the limit is MaxLen, 536870912",
		func() { q.Push(1, 1) })
	require.Panics(t, func() { q.Add(1, 1) })
	q.len = 0
	require.NoError(t, q.check(), "nothing has changed")
}

// A FairQueue uses its Queues only by their methods, so each can be read without the other.
func TestBorder(t *testing.T) {
	field := regexp.MustCompile(`q\.(queue|producers|keyBlocked)\.[a-z]\w*\b[^(]`)
	for _, file := range []string{
		"fairqueue.go", "waiting.go", "watch.go", "stats.go", "snapshot.go", "sharetime.go",
	} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Empty(t, field.FindAllString(string(text), -1), file)
	}
}

func FuzzQueue(f *testing.F) {
	f.Add([]byte{0, 0x00, 2, 2, 2, 10, 4, 4, 6})
	f.Add([]byte{3, 0x31, 2, 10, 2, 4, 4, 18, 4, 4, 7})
	f.Add([]byte{4, 0x53, 2, 2, 2, 2, 2, 10, 10, 6, 30, 62, 4, 4, 4, 255, 7})
	f.Add([]byte{8, 0x00, 0, 0, 4, 5, 0, 8, 0, 4, 0, 7, 5, 0, 0, 8, 13, 245, 8})
	f.Fuzz(drive)
}
