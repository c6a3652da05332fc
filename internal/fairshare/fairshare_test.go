package fairshare

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func always[T any](v T) func() T { return func() T { return v } }

// newWorld returns a world with the rule. The map gets the time for which each key held permits.
func newWorld(limit int, clients ...*client) (*world, map[int]time.Duration) {
	served := map[int]time.Duration{}
	w := &world{limit: limit, clients: clients}
	w.released = func(k *key, held time.Duration) { served[k.Key] += held }
	return w, served
}

// tenant returns clients of a key that ask again as soon as they are done.
func tenant(name, clients, weight int, hold func() time.Duration) (all []*client) {
	for range clients {
		all = append(all, &client{
			key: always(name), weight: weight, hold: hold,
			think: always(time.Duration(0)),
		})
	}
	return all
}

// TestLightTenants has the workload of docs/costs.md, and some other rules.
func TestLightTenants(t *testing.T) {
	least := func(w *world, order func(a, b *key) int) func() *key {
		return func() *key {
			return slices.MinFunc(w.line, func(a, b place[int, data]) int {
				return cmp.Or(order(a.key, b.key), cmp.Compare(a.first, b.first))
			}).key
		}
	}
	p99, long, short := lightTenants(nil)
	require.Less(t, p99, time.Second)
	require.InDelta(t, 0.0245, long, 0.0005)
	require.InDelta(t, 0.0242, short, 0.0005)
	fifo, _, short := lightTenants(func(w *world) func() *key {
		return least(w, func(a, b *key) int { return 0 })
	})
	held, _, _ := lightTenants(func(w *world) func() *key {
		return least(w, func(a, b *key) int { return cmp.Compare(a.held, b.held) })
	})
	require.Less(t, short, 0.002, "first come, first served")
	require.Greater(t, fifo, 20*p99, "first come, first served")
	require.Greater(t, held, 10*p99, "fewest held, then first come")
	t.Logf("p99 of light tenants: %v; first come %v; fewest held %v", p99, fifo, held)
}

// lightTenants returns how long light tenants wait, and the shares of one with long requests and
// of one with short ones.
func lightTenants(next func(*world) func() *key) (p99 time.Duration, long, short float64) {
	random := rand.New(rand.NewPCG(1, 1))
	about := func(d time.Duration) func() time.Duration {
		return func() time.Duration { return time.Duration(float64(d) * (0.9 + 0.2*random.Float64())) }
	}
	var clients []*client
	for name := range 20 {
		clients = append(clients, tenant(name, 5, 1, about(time.Second))...)
		clients = append(clients, tenant(20+name, 5, 1, about(20*time.Millisecond))...)
	}
	for name := range 10 {
		c := &client{
			key: always(40 + name), weight: 1, hold: about(20 * time.Millisecond),
			think: about(2 * time.Second),
		}
		c.at = time.Duration(random.Int64N(int64(2 * time.Second)))
		clients = append(clients, c)
	}
	w, served := newWorld(4, clients...)
	if next != nil {
		w.next = next(w)
	}
	var waits []time.Duration
	w.admitted = func(c *client) {
		if c.k.Key >= 40 && w.now > time.Minute {
			waits = append(waits, w.now-c.came)
		}
	}
	w.run(20*time.Minute, math.MaxInt)
	slices.Sort(waits)
	return waits[len(waits)*99/100], share(served, 0, w), share(served, 20, w)
}

func share(served map[int]time.Duration, name int, w *world) float64 {
	return float64(served[name]) / float64(w.now) / float64(w.limit)
}

// TestWeights shows why held / weight is rounded down: with fractions the key of weight 1 would
// get 0.25.
func TestWeights(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	hold := func() time.Duration { return time.Duration(random.ExpFloat64() * float64(time.Second)) }
	clients := slices.Concat(tenant(0, 8, 10, hold), tenant(1, 8, 10, hold), tenant(2, 8, 1, hold))
	w, served := newWorld(4, clients...)
	w.run(20*time.Hour, math.MaxInt)
	for name, due := range []float64{10. / 21, 10. / 21, 1. / 21} {
		require.InDelta(t, due, share(served, name, w), 0.01, "key %d", name)
	}
}

// TestNewKeyEachTime: clients with a new key for each request do not keep out an honest key that
// owes something.
func TestNewKeyEachTime(t *testing.T) {
	fresh := 1000
	var clients []*client
	for range 12 {
		clients = append(clients,
			&client{
				key: func() int { fresh++; return fresh }, weight: 1, hold: always(time.Second),
				think: always(time.Duration(0)),
			})
	}
	clients = append(clients, tenant(0, 1, 1, always(3*time.Second))...)
	w, served := newWorld(2, clients...)
	w.run(time.Hour, math.MaxInt)
	require.Greater(t, share(served, 0, w), 0.01)
}

// TestComesBack: a client that leaves after each of its long requests does not get a whole permit,
// because its debt is remembered.
func TestComesBack(t *testing.T) {
	clients := []*client{{
		key: always(0), weight: 1, hold: always(time.Minute),
		think: always(time.Millisecond),
	}}
	for name := range 20 {
		clients = append(clients, tenant(1+name, 2, 1, always(100*time.Millisecond))...)
	}
	w, served := newWorld(1, clients...)
	w.run(10*time.Hour, math.MaxInt)
	require.InDelta(t, 1./21, share(served, 0, w), 0.01)
}

// TestBounds checks the bounds of docs/design.md on random histories.
func TestBounds(t *testing.T) {
	histories := 100_000
	if testing.Short() {
		histories = 2000
	}
	var worst [2][9]float64
	for seed := range histories {
		limit, held, apart := checkBounds(t, uint64(seed))
		worst[held][limit] = max(worst[held][limit], apart)
	}
	t.Log("two keys that always wait differ, in D, by limit: ", worst[0],
		"; if one held permits before: ", worst[1])
}

func checkBounds(t *testing.T, seed uint64) (limit, held int, apart float64) {
	random := rand.New(rand.NewPCG(seed, 2))
	limit = 1 << random.IntN(4)
	const D = 1000 * time.Millisecond
	// A key's requests take up to a time of its own: D, a short time, or any.
	times := func() func() time.Duration {
		longest := D
		if random.IntN(2) == 0 {
			longest = D / time.Duration(1+random.IntN(50))
		}
		if random.IntN(3) == 0 {
			return always(longest)
		}
		return func() time.Duration { return 1 + time.Duration(random.Int64N(int64(longest))) }
	}
	// The keys 0 and 1 wait all the time from the begin. Others hold all permits then, or else one
	// of the two gets them all.
	var clients []*client
	held = random.IntN(2)
	for i := range limit * (1 - held) {
		clients = append(clients,
			&client{key: always(-1 - i), weight: 1, hold: times(), think: always(never / 2)})
	}
	clients = slices.Concat(clients, tenant(0, 2*limit+1, 1, times()),
		tenant(1, 2*limit+1, 1, times()))
	for range random.IntN(3 * limit) {
		name := 2 + random.IntN(10)
		thinks := time.Duration(1 + random.Int64N(int64(5*D)))
		c := &client{
			key: always(name), weight: 1, hold: times(),
			think: func() time.Duration { return time.Duration(random.Int64N(int64(thinks))) },
		}
		if random.IntN(5) == 0 {
			c.key = func() int { return random.IntN(1000) + 100 }
		}
		if random.IntN(3) == 0 {
			c.patience = times()
		}
		c.at = time.Duration(random.Int64N(int64(5 * D)))
		clients = append(clients, c)
	}
	w, _ := newWorld(limit, clients...)
	// keys that owed nothing when they came and have held nothing since
	type arrival struct {
		number   uint64
		at, most time.Duration
	}
	fresh := map[*key]arrival{}
	w.came = func(k *key) {
		if k.held == 0 && k.waiting == 0 && k.used == w.floor {
			fresh[k] = arrival{w.arrived, w.now, D + D*time.Duration(w.active-1)/time.Duration(limit)}
		}
	}
	w.left = func(k *key) { delete(fresh, k) }
	// The lead of key 0 over key 1 in held time, its minimum and its maximum.
	var holding [2]int
	var more, least, most, at time.Duration
	count := func(k *key, n int) {
		more += (w.now - at) * time.Duration(holding[0]-holding[1])
		least, most, at = min(least, more), max(most, more), w.now
		if k.Key >= 0 && k.Key < 2 {
			holding[k.Key] += n
		}
	}
	w.admitted = func(c *client) {
		count(c.k, 1)
		if mine, ok := fresh[c.k]; ok {
			require.LessOrEqual(t, w.now-mine.at, mine.most, "seed %d: (c)", seed)
			for _, other := range fresh {
				require.LessOrEqual(t, mine.number, other.number, "seed %d: (b)", seed)
			}
			delete(fresh, c.k)
		}
	}
	w.released = func(k *key, _ time.Duration) { count(k, -1) }
	w.run(never-1, 300)
	apart = float64(most-least) / float64(D)
	require.Less(t, apart, float64((1+held)*limit+1), "seed %d: (a)", seed)
	return limit, held, apart
}

// TestModel compares Shares with a model that scans all keys and forgets none.
func TestModel(t *testing.T) {
	histories := 20_000
	if testing.Short() {
		histories = 500
	}
	for seed := range histories {
		checkModel(t, uint64(seed))
	}
}

// model is a key in the model.
type model struct {
	held   int
	weight int
	used   float64
	begun  []time.Duration
	came   []uint64 // of waiting calls
}

func checkModel(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 3))
	s := &Shares[int, struct{}]{MaxHeld: random.IntN(4)}
	keys := map[int]*model{}
	var now, clock time.Duration
	var floor float64
	var arrived uint64
	dear := random.IntN(8) == 0 // so that numbers get too large
	limit, held, fresh := 1+random.IntN(5), 0, 1000
	next := func() (name int, best *model) {
		for n, m := range keys {
			if len(m.came) == 0 || s.MaxHeld > 0 && m.held >= s.MaxHeld {
				continue
			}
			if best == nil || cmp.Or(cmp.Compare(m.held/m.weight, best.held/best.weight),
				cmp.Compare(m.used, best.used), cmp.Compare(m.came[0], best.came[0])) < 0 {
				name, best = n, m
			}
		}
		return name, best
	}
	first := func(m *model) uint64 {
		if len(m.came) == 0 {
			return 0
		}
		return m.came[0]
	}
	ask := func(name int) {
		m := keys[name]
		if m == nil {
			m = &model{}
			keys[name] = m
		}
		if m.held+len(m.came) == 0 {
			m.used = max(m.used, floor)
		}
		// A waiting key keeps its place until the key changes.
		if m.weight = 1; !dear && name < 4 && m.held+len(m.came) == 0 {
			m.weight = 1 + random.IntN(3)
		} else if k := s.Find(name); k != nil && m.held+len(m.came) > 0 {
			m.weight = k.Weight()
		}
		k := s.Add(s.Find(name), name, m.weight)
		if _, n := next(); n == nil && held < limit && s.MayHold(k) {
			s.Hold(k)
			m.held++
			held++
			m.begun = append(m.begun, clock)
			return
		}
		arrived++
		m.came = append(m.came, arrived)
		s.Wait(k, first(m), now)
	}
	release := func(name, i int) {
		m := keys[name]
		charge := float64(clock - m.begun[i])
		if dear {
			charge *= 10_000
		}
		m.begun = slices.Delete(m.begun, i, i+1)
		m.held--
		held--
		m.used += charge / float64(m.weight)
		s.Release(s.Find(name), charge, now)
	}
	for range 200 {
		step := time.Duration(random.Int64N(int64(time.Second)))
		now += step
		if _, m := next(); m != nil {
			clock += step
		}
		name := random.IntN(8)
		m := keys[name]
		switch {
		case random.IntN(4) == 0 && m != nil && m.held > 0:
			release(name, random.IntN(m.held))
		case random.IntN(6) == 0 && m != nil && len(m.came) > 0:
			i := random.IntN(len(m.came))
			m.came = slices.Delete(m.came, i, i+1)
			s.Leave(s.Find(name), first(m), now)
		// keys that come once, and are forgotten
		case random.IntN(3) == 0 && s.Len() == 0 && held < limit:
			fresh++
			ask(fresh)
			release(fresh, 0)
			delete(keys, fresh)
		default:
			ask(name)
		}
		for held < limit && s.Len() > 0 {
			name, m := next()
			k := s.Next()
			require.Equal(t, name, k.Key, "seed %d", seed)
			floor = max(floor, m.used)
			m.came = m.came[1:]
			m.held++
			held++
			m.begun = append(m.begun, clock)
			s.Admit(k, first(m), now)
		}
		if name, m := next(); m == nil {
			require.Nil(t, s.Next(), "seed %d", seed)
		} else {
			require.Equal(t, name, s.Next().Key, "seed %d", seed)
		}
		require.Equal(t, clock, s.Clock(now), "seed %d", seed)
	}
}

// TestMemory: many keys that wait at the same time, and leave, leave no memory behind.
func TestMemory(t *testing.T) {
	const n = 100_000
	var s Shares[int, struct{}]
	for name := range n {
		s.Wait(s.Add(nil, name, 1), uint64(name), 0)
	}
	s.Hold(s.Add(nil, n, 1))
	for range n {
		k := s.Next()
		s.Admit(k, 0, 0)
		s.Release(k, 1, 0)
	}
	s.Release(s.Find(n), 0, 0)
	require.Zero(t, s.Active())
	require.LessOrEqual(t, len(s.keys), 2*spareKeys)
	require.LessOrEqual(t, s.peak, 8*spareKeys)
	require.LessOrEqual(t, cap(s.line), 8*spareKeys)
}

// TestNinetyPercent shows the price of the rule while there is room for all: half of the work is
// in requests of 1 s, half in requests of 20 ms, and together they need 0.9 of the permits.
func TestNinetyPercent(t *testing.T) {
	const keys, limit, longs, shorts = 10, 4, 0, 1
	until := time.Hour
	if testing.Short() {
		until = 10 * time.Minute
	}
	run := func(firstCome bool) (mean, p99 [2]time.Duration, done int) {
		random := rand.New(rand.NewPCG(1, 1))
		about := func(mean float64) func() time.Duration {
			return func() time.Duration { return time.Duration(random.ExpFloat64() * mean) }
		}
		var clients []*client
		for i := range 600 { // enough that requests arrive at random
			hold := float64(time.Second)
			if i%2 == shorts {
				hold /= 50
			}
			c := &client{
				key: always(i % (2 * keys)), weight: 1, hold: about(hold),
				think: about(hold * 600 / 0.9 / limit),
			}
			c.at = c.think()
			clients = append(clients, c)
		}
		w, _ := newWorld(limit, clients...)
		if firstCome {
			w.next = func() *key {
				return slices.MinFunc(w.line,
					func(a, b place[int, data]) int { return cmp.Compare(a.first, b.first) }).key
			}
		}
		var waits [2][]time.Duration
		w.admitted = func(c *client) { waits[c.k.Key%2] = append(waits[c.k.Key%2], w.now-c.came) }
		w.run(until, math.MaxInt)
		for kind, all := range waits {
			slices.Sort(all)
			for _, d := range all {
				mean[kind] += d / time.Duration(len(all))
			}
			p99[kind] = all[len(all)*99/100]
			done += len(all)
		}
		return mean, p99, done
	}
	mean, p99, done := run(false)
	meanFIFO, p99FIFO, doneFIFO := run(true)
	t.Logf("long and short requests wait %v, p99 %v; first come %v, p99 %v", mean, p99, meanFIFO,
		p99FIFO)
	require.InEpsilon(t, doneFIFO, done, 0.02)
	require.Less(t, mean[shorts], meanFIFO[shorts])
	require.Less(t, mean[longs], 3*meanFIFO[longs])
	require.Less(t, p99[longs], 5*p99FIFO[longs])
}
