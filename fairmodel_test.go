package fairq

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// driveFair makes the calls that data spells on a FairQueue of one of many configurations, and compares with the model.
// One goroutine makes all calls, so nobody waits; see TestConservation for the others.
func driveFair(t testing.TB, data []byte) {
	if len(data) < 2 || len(data) > 300 {
		return
	}
	mode, size := data[0], data[1]
	keys := 2 + int(size>>5)
	o := Options[int, int]{Capacity: 1 + int(size&15), Newcomers: Newcomers(mode & 1), TrackWait: mode&16 != 0}
	if mode&2 != 0 {
		o.KeyCapacity = 1 + o.Capacity/2
	}
	weights := map[int]int{}
	if mode&4 != 0 {
		for k := range keys {
			weights[k] = 1 + k%3
		}
		o.Weight = func(k int) int { return max(1, weights[k]) }
	}
	var evicted []int
	keyOf := map[int]int{}
	if mode&8 != 0 {
		o.WhenFull = EvictHeaviest
		if mode&32 != 0 {
			o.WhenFull = EvictOldest
		}
		o.OnEvict = func(key, item int) {
			require.Equal(t, keyOf[item], key)
			evicted = append(evicted, item)
		}
	}
	q := New(func(item int) int { return keyOf[item] }, &o)
	m := newModel(o.Newcomers, weights)
	var counts Stats
	tickets := map[int]Ticket{}

	// push tells what must happen, and makes it happen to the model.
	push := func(key, item int) (victims []int, err error) {
		heaviest, victim, oldest := m.heaviest()
		items := 0
		if k := m.keys[key]; k != nil {
			items = len(k.items)
		}
		if o.WhenFull == EvictOldest {
			victim = oldest
			if heaviest[key] {
				victim = m.keys[key].items[0]
			}
		}
		switch {
		case o.KeyCapacity > 0 && o.KeyCapacity < o.Capacity && items >= o.KeyCapacity:
			counts.Refused++
			return nil, ErrKeyFull
		case m.len() < o.Capacity:
		case o.WhenFull == Reject || o.WhenFull == EvictHeaviest && heaviest[key]:
			counts.Refused++
			return nil, ErrFull
		default:
			counts.Evicted++
			m.remove(victim)
			victims = []int{victim}
		}
		counts.Pushed++
		m.push(key, item)
		return victims, nil
	}
	for i, b := range data[2:] {
		key, item := int(b>>3)%keys, 100*i
		keyOf[item] = key
		evicted = nil
		switch op := b & 7; op {
		case 0, 1:
			victims, want := push(key, item)
			require.ErrorIs(t, q.Push(item), want, "step %d", i)
			require.Equal(t, victims, evicted, "step %d", i)
		case 2:
			victims, want := push(key, item)
			ticket, err := q.Add(item)
			require.ErrorIs(t, err, want, "step %d", i)
			require.Equal(t, victims, evicted, "step %d", i)
			if err == nil {
				tickets[item] = ticket
			}
		case 3:
			var batch, victims []int
			var want error
			accepted := 0
			for j := range int(b >> 4) {
				batch = append(batch, item+j)
				keyOf[item+j] = key + j/2%2
				if want == nil {
					v, err := push(keyOf[item+j], item+j)
					if want = err; err == nil {
						accepted++
						victims = append(victims, v...)
					}
				}
			}
			n, err := q.PushBatch(batch)
			require.ErrorIs(t, err, want, "step %d", i)
			require.Equal(t, accepted, n, "step %d", i)
			require.Equal(t, victims, evicted, "step %d", i)
		case 4, 5:
			_, want, wantOK := m.pop()
			got, ok := q.Pop()
			require.Equal(t, fmt.Sprint(want, wantOK), fmt.Sprint(got, ok), "step %d", i)
			if ok {
				counts.Popped++
			}
		case 6:
			switch {
			case b>>3 < 8:
				got := make([]int, b>>3)
				n := q.PopBatch(got)
				for _, item := range got[:n] {
					_, want, ok := m.pop()
					require.True(t, ok)
					require.Equal(t, want, item, "step %d", i)
				}
				counts.Popped += uint64(n)
				require.True(t, n == len(got) || m.len() == 0)
			case b>>3 < 10:
				want := []int{}
				for m.len() > 0 {
					_, item, _ := m.pop()
					want = append(want, item)
				}
				require.Equal(t, want, q.Drain(), "step %d", i)
				counts.Drained += uint64(len(want))
				// A drained queue begins anew.
				m = newModel(o.Newcomers, weights)
			default:
				for item, ticket := range tickets {
					_, queued := position(m, item)
					got, ok := q.Remove(ticket)
					require.Equal(t, queued, ok, "step %d: remove %d", i, item)
					if ok {
						require.Equal(t, item, got)
						m.remove(item)
						counts.Removed++
					}
					delete(tickets, item)
					break
				}
			}
		case 7:
			if b>>3 < 6 {
				var want []int
				if k := m.keys[key]; k != nil {
					want = append(want, k.items...)
				}
				require.Equal(t, want, q.RemoveKey(key), "step %d", i)
				for _, item := range want {
					m.remove(item)
					counts.Removed++
				}
			}
		}
		compareFair(t, q, m, counts)
	}
}

func compareFair(t testing.TB, q *FairQueue[int, int], m *model, counts Stats) {
	require.NoError(t, q.Check())
	compare(t, &q.queue, m, nil, nil)
	s := q.Stats()
	counts.Len, counts.Keys, counts.Capacity = m.len(), len(m.keys), q.options.Capacity
	s.OldestAge, s.Wait = 0, Histogram{}
	require.Equal(t, counts, s)
	require.Equal(t, s.Pushed, s.Popped+s.Removed+s.Evicted+s.Drained+uint64(s.Len))

	// A snapshot is what will be popped, in two parts.
	snapshot := q.Snapshot()
	behind := 0
	for key, items := range snapshot.Queues {
		behind += len(items)
		all := m.keys[key].items
		require.Equal(t, all[len(all)-len(items):], items)
	}
	require.Len(t, snapshot.Round, m.len()-behind)
	require.Len(t, snapshot.Round, len(m.round))
	i := 0
	for _, round := range m.future() {
		for _, turn := range round {
			if i < len(snapshot.Round) {
				require.Equal(t, turn.given, snapshot.Round[i])
			}
			i++
		}
	}
}

func TestFairQueueAgainstModel(t *testing.T) {
	for seed := range uint64(1500) {
		random := rand.New(rand.NewPCG(seed, 2))
		data := make([]byte, 2+random.IntN(120))
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) { driveFair(t, data) }) {
			return
		}
	}
}

func FuzzFairQueue(f *testing.F) {
	f.Add([]byte{0x08, 0x04, 0, 0, 0, 0, 8, 0, 4, 4, 4, 4, 4})
	f.Add([]byte{0x1f, 0x45, 2, 2, 10, 18, 0xfb, 4, 0xfe, 4, 0x7b, 0x4e, 2, 7})
	f.Add([]byte{0x28, 0x63, 0, 0, 0, 8, 8, 16, 0x33, 4, 0, 4, 4})
	f.Add([]byte{0x0b, 0xe7, 0, 8, 16, 24, 32, 40, 48, 0x36, 0, 8, 0x46})
	f.Fuzz(func(t *testing.T, data []byte) { driveFair(t, data) })
}

// TestConservation has many goroutines push, pop, remove and give up at random, and then accounts for every item: none is
// lost, none is delivered twice, and one that was not accepted is not delivered.
func TestConservation(t *testing.T) {
	for seed := range uint64(24) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { conserve(t, seed) })
	}
}

func conserve(t *testing.T, seed uint64) {
	const producers, items, keys = 6, 1500, 5
	var out [producers * items]atomic.Int32 // how often each item came out
	take := func(item int) { out[item].Add(1) }
	o := Options[int, int]{Capacity: 2 + int(seed>>3&1)*5, TrackWait: seed%3 == 0, Newcomers: Newcomers(seed & 1)}
	if seed&2 != 0 {
		o.KeyCapacity = 1 + o.Capacity/4
	}
	if seed&4 != 0 || seed > 15 {
		o.WhenFull = EvictHeaviest
		if seed > 15 {
			o.WhenFull = EvictOldest
		}
		o.OnEvict = func(_, item int) { take(item) }
	}
	q := New(func(item int) int { return item % keys }, &o)
	impatient := func(r *rand.Rand) (context.Context, context.CancelFunc) {
		if r.IntN(2) == 0 {
			return t.Context(), func() {}
		}
		return context.WithTimeout(t.Context(), time.Duration(r.IntN(50))*time.Microsecond)
	}
	var accepted [producers * items]bool
	var working, consuming sync.WaitGroup
	for p := range producers {
		working.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(p)))
			for i := p * items; i < (p+1)*items; i++ {
				var err error
				switch r.IntN(5) {
				case 0:
					err = q.Push(i)
				case 1:
					var ticket Ticket
					if ticket, err = q.Add(i); err == nil && r.IntN(2) == 0 {
						if item, ok := q.Remove(ticket); ok {
							take(item)
						}
					}
				case 2:
					n, _ := q.PushBatch([]int{i})
					accepted[i] = n == 1
					continue
				default:
					ctx, cancel := impatient(r)
					err = q.PushWait(ctx, i)
					cancel()
				}
				accepted[i] = err == nil
			}
		})
	}
	for c := range 4 {
		consuming.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(100+c)))
			batch := make([]int, 3)
			for {
				switch r.IntN(6) {
				case 0:
					if item, ok := q.Pop(); ok {
						take(item)
					}
				case 1:
					for _, item := range batch[:q.PopBatch(batch)] {
						take(item)
					}
				case 2:
					if err := q.Check(); err != nil {
						t.Error(err)
					}
					if r.IntN(20) == 0 {
						for _, item := range append(q.RemoveKey(r.IntN(keys)), q.Drain()...) {
							take(item)
						}
					}
				default:
					ctx, cancel := impatient(r)
					item, err := q.PopWait(ctx)
					cancel()
					if err == nil {
						take(item)
					} else if errors.Is(err, ErrClosed) {
						return
					}
				}
			}
		})
	}
	working.Wait()
	q.Close()
	consuming.Wait()
	s := q.Stats()
	require.Zero(t, s.Len+s.WaitingPop+s.WaitingPush)
	require.Equal(t, s.Pushed, s.Popped+s.Removed+s.Evicted+s.Drained)
	require.NoError(t, q.Check())
	for i := range out {
		want := int32(0)
		if accepted[i] {
			want = 1
		}
		require.Equal(t, want, out[i].Load(), "item %d", i)
	}
}
