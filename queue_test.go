package fairq

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// drive makes the calls that data spells on a queue and on the model, and compares everything that can be seen.
func drive(t testing.TB, data []byte) {
	if len(data) == 0 {
		return
	}
	mode, keys := data[0], 2+int(data[0]>>4)
	newcomers, weights := Newcomers(mode&1), map[int]int{}
	var q Queue[int, int]
	q.Newcomers = newcomers
	if mode&2 != 0 {
		for k := range keys {
			weights[k] = 1 + k%3
		}
		q.Weight = func(k int) int { return max(1, weights[k]) }
	}
	m := newModel(newcomers, weights)
	tickets := map[int]Ticket{} // of all items ever added
	var live []int
	for i, b := range data[1:] {
		key := int(b>>3) % keys
		switch op := b & 7; {
		case op <= 1:
			q.Push(key, i)
			m.push(key, i)
		case op == 2 || op == 3:
			tickets[i] = q.Add(key, i)
			m.push(key, i)
			live = append(live, i)
		case op == 4 || op == 5:
			k, v, ok := q.Pop()
			mk, mv, mok := m.pop()
			require.Equal(t, fmt.Sprint(mk, mv, mok), fmt.Sprint(k, v, ok), "step %d: pop", i)
		case op == 6 && len(live) > 0:
			at := int(b>>3) * len(live) / 32
			item := live[at]
			_, queued := position(m, item)
			v, ok := q.Remove(tickets[item])
			require.Equal(t, queued, ok, "step %d: remove %d", i, item)
			if ok {
				require.Equal(t, item, v)
				m.remove(item)
			}
			live = append(live[:at], live[at+1:]...)
		case op == 7 && b>>3 < 4:
			var want []int
			if k := m.keys[key]; k != nil {
				want = append(want, k.items...)
			}
			require.Equal(t, want, q.RemoveKey(key), "step %d: remove key", i)
			for _, item := range want {
				m.remove(item)
			}
		case op == 7 && b>>3 < 12:
			var newest int
			k := m.keys[key]
			if k != nil {
				newest = k.items[len(k.items)-1]
			}
			v, ok := q.RemoveNewest(key)
			require.Equal(t, k != nil, ok)
			require.Equal(t, newest, v, "step %d: remove newest", i)
			if ok {
				m.remove(v)
			}
		case op == 7 && b>>3 < 16:
			var oldest int
			k := m.keys[key]
			if k != nil {
				oldest = k.items[0]
			}
			v, ok := q.RemoveOldest(key)
			require.Equal(t, k != nil, ok)
			require.Equal(t, oldest, v, "step %d: remove oldest", i)
			if ok {
				m.remove(v)
			}
		case op == 7:
			_, victim, oldest := m.heaviest()
			evict := q.Evict
			if b>>3 < 24 {
				evict, victim = q.EvictOldest, oldest
			}
			k, v, ok := evict()
			require.Equal(t, m.len() > 0, ok)
			require.Equal(t, victim, v, "step %d: evict", i)
			if ok {
				require.Contains(t, m.keys[k].items, v)
			}
			m.remove(victim)
		}
		require.NoError(t, q.check(), "step %d", i)
		compare(t, &q, m, tickets, live)
	}
}

func position(m *model, item int) (n int, ok bool) {
	for _, round := range m.future() {
		for _, turn := range round {
			if turn.given == item {
				return n, true
			}
			n++
		}
	}
	return 0, false
}

func compare(t testing.TB, q *Queue[int, int], m *model, tickets map[int]Ticket, live []int) {
	var want, got []modelTurn
	for _, round := range m.future() {
		want = append(want, round...)
	}
	for k, v := range q.Order() {
		got = append(got, modelTurn{k, v})
	}
	require.Equal(t, want, got, "order")
	if k, v, ok := q.Peek(); ok || len(want) > 0 {
		require.True(t, ok)
		head := modelTurn{k, v}
		require.Equal(t, want[0], head, "peek")
	}
	require.Equal(t, len(want), q.Len())
	require.Equal(t, len(m.keys), q.Keys())
	for key, k := range m.keys {
		require.Equal(t, len(k.items), q.KeyLen(key))
	}
	if len(live) > 0 {
		item := live[len(live)/2]
		p, ok := q.Position(tickets[item])
		wantP, wantOK := position(m, item)
		require.Equal(t, fmt.Sprint(wantP, wantOK), fmt.Sprint(p, ok), "position of %d", item)
	}
}

func TestQueueAgainstModel(t *testing.T) {
	for seed := range uint64(1000) {
		random := rand.New(rand.NewPCG(seed, 1))
		data := make([]byte, 1+random.IntN(120))
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) { drive(t, data) }) {
			return
		}
	}
}

// Under ThisRound, keys served in a round are remembered until it is over, and then forgotten.
func TestRestingKeysAreForgotten(t *testing.T) {
	const keys = 10_000
	q := Queue[int, int]{Newcomers: ThisRound}
	for key := range keys {
		q.Push(key, 0)
		q.Pop()
		q.Remove(q.Add(key, 1))
		require.LessOrEqual(t, q.keys.count, uint32(mostResting), "an empty queue remembers few")
	}

	for _, drained := range []bool{true, false} {
		q := Queue[int, int]{Newcomers: ThisRound}
		q.Push(-1, 0)
		q.Push(-1, 1)
		q.Pop()
		for key := range keys {
			q.Push(key, 0)
			q.Pop()
		}
		require.EqualValues(t, keys+1, q.keys.count, "these all joined the same round")
		if drained {
			q.Pop()
			require.Zero(t, q.keys.count)
		} else {
			for range keys {
				q.Push(-1, 0)
				q.Pop() // begins another round
			}
			require.LessOrEqual(t, q.keys.count, uint32(2))
		}
		require.NoError(t, q.check())
	}
}

func TestMaxLen(t *testing.T) {
	q := Queue[int, int]{len: MaxLen}
	require.PanicsWithValue(t, "fairq: the queue holds 536870912 items; the limit is MaxLen, 536870912", func() { q.Push(1, 1) })
	require.Panics(t, func() { q.Add(1, 1) })
	q.len = 0
	require.NoError(t, q.check(), "nothing has changed")
}

func FuzzQueue(f *testing.F) {
	f.Add([]byte{0x00, 2, 2, 2, 10, 4, 4, 6})
	f.Add([]byte{0x31, 2, 10, 2, 4, 4, 18, 4, 4, 7})
	f.Add([]byte{0x53, 2, 2, 2, 2, 2, 10, 10, 6, 30, 62, 4, 4, 4, 255, 7})
	f.Fuzz(drive2)
}

func drive2(t *testing.T, data []byte) {
	if len(data) > 300 {
		return
	}
	drive(t, data)
}
