package admit_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/admit"
)

// acquire waits for a permit in a goroutine. Then it sends the name, and holds the permit for a
// time.
func acquire(t *testing.T, l *admit.Limiter[string], key, name string, hold time.Duration,
	got chan<- string,
) {
	go func() {
		p, err := l.Acquire(t.Context(), key)
		if err != nil {
			got <- name + ": " + err.Error()
			return
		}
		got <- name
		time.Sleep(hold)
		p.Release()
	}()
	synctest.Wait()
}

func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := admit.New[string](1, nil)
		got := make(chan string, 100)
		held, err := l.Acquire(t.Context(), "hog")
		require.NoError(t, err)
		for i := range 3 {
			acquire(t, l, "hog", fmt.Sprint("hog", i), 2*time.Second, got)
		}
		acquire(t, l, "short", "short0", time.Second, got)
		acquire(t, l, "short", "short1", time.Second, got)
		time.Sleep(time.Second)
		require.Equal(t, time.Second, l.Stats().OldestWait)
		held.Release() // the hog has used a second
		time.Sleep(time.Minute)
		var order []string
		for len(got) > 0 {
			order = append(order, <-got)
		}
		require.Equal(t, []string{"short0", "hog0", "short1", "hog1", "hog2"}, order)
		s := l.Stats()
		require.Equal(t, admit.Stats{Limit: 1, Admitted: 6}, s)
	})
}

// TestInvariants lets many goroutines make random calls, and checks the invariants after each
// moment.
func TestInvariants(t *testing.T) {
	seeds := 1000
	if testing.Short() {
		seeds = 30
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) { checkInvariants(t, uint64(seed)) })
	}
}

func checkInvariants(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 4))
	o := &admit.Options[int]{MaxPerKey: random.IntN(4)}
	if random.IntN(2) == 0 {
		o.MaxWaiting, o.MaxWaitingPerKey = 1+random.IntN(20), random.IntN(5)
	}
	if random.IntN(3) == 0 {
		o.Rate, o.Burst = 5, 3
	}
	if random.IntN(2) == 0 {
		o.Weight = func(key int) int { return 1 + key%3 }
	}
	limit := 1 + random.IntN(5)
	l := admit.New(limit, o)
	var mu sync.Mutex
	var held, admitted, refused int
	heldBy, turn, last, lastAt := map[int]int{}, map[int]int{}, map[int]int{}, map[int]time.Time{}
	work := func(p admit.Permit[int], key, mine int, d time.Duration) {
		mu.Lock()
		held++
		admitted++
		heldBy[key]++
		// Calls that get a permit at the same time may be seen in any order.
		if mine >= 0 && mine < last[key] && lastAt[key].Before(time.Now()) {
			t.Errorf("seed %d: first come, first served", seed)
		} else if mine >= 0 {
			last[key], lastAt[key] = max(mine, last[key]), time.Now()
		}
		if o.MaxPerKey > 0 && heldBy[key] > o.MaxPerKey {
			t.Errorf("seed %d: a key has too many", seed)
		}
		mu.Unlock()
		time.Sleep(d)
		mu.Lock()
		held--
		heldBy[key]--
		mu.Unlock()
		p.Release()
		p.Release() // has no effect
	}
	var all sync.WaitGroup
	for range 200 {
		key, d, patience := random.IntN(6), time.Duration(random.IntN(1000)),
			time.Duration(1+random.IntN(3000))
		units := int64(1 + random.IntN(5))
		switch random.IntN(10) {
		case 0:
			limit = 1 + random.IntN(5)
			require.NoError(t, l.SetLimit(limit))
		case 1:
			if p, err := l.TryAcquire(key); err == nil {
				all.Go(func() { work(p, key, -1, d*time.Millisecond) })
			} else {
				require.ErrorIs(t, err, admit.ErrFull)
				mu.Lock()
				refused++
				mu.Unlock()
			}
		default:
			mine := turn[key] + 1
			turn[key] = mine
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), patience*time.Millisecond)
				defer cancel()
				acquire := l.Acquire
				if o.Rate > 0 {
					acquire = func(ctx context.Context, key int) (admit.Permit[int], error) {
						return l.AcquireN(ctx, key, units)
					}
				}
				if p, err := acquire(ctx, key); err == nil {
					work(p, key, mine, d*time.Millisecond)
				} else if !errors.Is(err, context.DeadlineExceeded) {
					if !errors.Is(err, admit.ErrFull) {
						t.Errorf("seed %d: %v", seed, err)
					}
					mu.Lock()
					refused++
					mu.Unlock()
				}
			})
		}
		synctest.Wait()
		s := l.Stats()
		mu.Lock()
		require.Equal(t, held, s.Held, "seed %d", seed)
		eligible := 0
		for _, k := range l.KeyStats(math.MaxInt, fairq.ByBacklog) {
			require.Equal(t, heldBy[k.Key], k.Taken, "seed %d", seed)
			if k.Backlog > 0 && (o.MaxPerKey == 0 || k.Taken < o.MaxPerKey) {
				eligible += k.Backlog
			}
		}
		if o.Rate == 0 || s.Level > 0.0001 { // the timer fires a microsecond later
			require.False(t, eligible > 0 && s.Held < limit, "seed %d: a permit is free, and %d wait", seed,
				eligible)
		}
		mu.Unlock()
		time.Sleep(time.Duration(random.IntN(100)) * time.Millisecond)
	}
	all.Wait()
	s := l.Stats()
	require.Zero(t, s.Held+s.Waiting+s.Keys, "seed %d", seed)
	require.EqualValues(t, admitted, s.Admitted, "seed %d", seed)
	require.EqualValues(t, refused, s.Refused, "seed %d", seed)
}

// TestStress cancels calls at the moment when they get their permit: no permit is lost, and none
// is given twice.
func TestStress(t *testing.T) {
	const limit, callers = 2, 8
	l := admit.New[int](limit, nil)
	var held atomic.Int32
	var cancels [callers]atomic.Value // of the call that waits
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 5))
			for range 1000 {
				ctx, cancel := context.WithCancel(t.Context())
				cancels[i].Store(cancel)
				if p, err := l.Acquire(ctx, i%5); err == nil {
					if held.Add(1) > limit {
						t.Error("too many permits")
					}
					if random.IntN(3) == 0 {
						runtime.Gosched()
					}
					held.Add(-1)
					if c := cancels[random.IntN(callers)].Load(); c != nil {
						c.(context.CancelFunc)()
					}
					p.Release()
				}
				cancel()
			}
		})
	}
	all.Wait()
	require.Zero(t, l.Stats().Held+l.Stats().Waiting)
	p, err := l.TryAcquire(1)
	require.NoError(t, err)
	p.Release()
}

func TestRelease(t *testing.T) {
	l := admit.New[string](2, nil)
	a, err := l.Acquire(t.Context(), "a")
	require.NoError(t, err)
	copied := a
	a.Release()
	b, err := l.Acquire(t.Context(), "b") // reuses the call of a
	require.NoError(t, err)
	a.Release()
	copied.Release()
	require.Equal(t, 1, l.Stats().Held)
	require.Equal(t, 1, l.KeyStat("b").Taken)
	b.Release()
	require.Zero(t, l.Stats().Held)
	require.PanicsWithValue(t, "admit: Release of a zero Permit", admit.Permit[string]{}.Release)
}

func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := admit.New(4, &admit.Options[string]{MaxPerKey: 2, MaxWaiting: 8, MaxWaitingPerKey: 7})
		got := make(chan string, 100)
		for range 6 {
			acquire(t, l, "a", "a", time.Hour, got)
		}
		require.Equal(t, 2, l.KeyStat("a").Taken, "of four")
		require.Equal(t, 4, l.KeyStat("a").Backlog)
		_, err := l.Acquire(t.Context(), "a")
		require.Equal(t, &fairq.FullError{Len: 4, Limit: 3, PerKey: true}, err,
			"half of the places are for others")
		_, err = l.TryAcquire("a")
		require.Equal(t, &fairq.FullError{Len: 2, Limit: 2, PerKey: true}, err)
		require.ErrorIs(t, err, admit.ErrKeyFull)
		for range 4 {
			acquire(t, l, "b", "b", time.Hour, got)
		}
		require.Equal(t, 4, l.Stats().Held, "a that waits, and may not go on, is not in b's way")
		acquire(t, l, "c", "c", time.Hour, got)
		acquire(t, l, "d", "d", time.Hour, got)
		_, err = l.Acquire(t.Context(), "e")
		require.Equal(t, &fairq.FullError{Len: 8, Limit: 8}, err)
		_, err = l.TryAcquire("e")
		require.Equal(t, &fairq.FullError{Len: 4, Limit: 4}, err)
		require.EqualValues(t, 4, l.Stats().Refused)
		require.EqualValues(t, 2, l.KeyStat("a").Total.Refused)

		require.ErrorContains(t, l.SetLimit(0), "admit: the limit is 0; the least is 1")
		require.NoError(t, l.SetLimit(6))
		synctest.Wait()
		require.Equal(t, []int{1, 1}, []int{l.KeyStat("c").Taken, l.KeyStat("d").Taken})
		require.NoError(t, l.SetLimit(1))
		l.Close()
		l.Close()
		_, err = l.Acquire(t.Context(), "e")
		require.ErrorIs(t, err, admit.ErrClosed)
		_, err = l.TryAcquire("e")
		require.ErrorIs(t, err, admit.ErrClosed)
		for _, by := range []fairq.KeyOrder{fairq.ByBacklog, fairq.ByRefused} {
			require.Equal(t, "a", l.KeyStats(1, by)[0].Key, "order %d", by)
		}
		time.Sleep(24 * time.Hour)
		s := l.Stats()
		require.Equal(t, admit.Stats{Limit: 1, Closed: true, Admitted: 12, Refused: 4}, s,
			"those that wait get theirs")
	})
}

// context panics at its n-th call.
type panics struct {
	context.Context
	left int
}

func (p *panics) use() {
	if p.left--; p.left < 0 {
		panic("mine")
	}
}

func (p *panics) Err() error            { p.use(); return p.Context.Err() }
func (p *panics) Done() <-chan struct{} { p.use(); return p.Context.Done() }

func TestPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := admit.New(1, &admit.Options[any]{Weight: func(key any) int {
			if key == "mine" {
				panic("mine")
			}
			return 1
		}})
		p, err := l.Acquire(t.Context(), 1)
		require.NoError(t, err)
		for left := range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			require.PanicsWithValue(t, "mine", func() { _, _ = l.Acquire(&panics{ctx, left}, 2) })
			cancel()
		}
		require.Panics(t, func() { _, _ = l.Acquire(t.Context(), []int{}) }, "no key of a map")
		require.Panics(t, func() { _, _ = l.TryAcquire("mine") })
		require.Panics(t, func() { l.KeyStat([]int{}) })
		require.Equal(t, 1, l.Stats().Keys)
		p.Release()
		_, err = l.Acquire(t.Context(), 3)
		require.NoError(t, err)
	})
}

func TestBadInput(t *testing.T) {
	for want, o := range map[string]admit.Options[int]{
		"Options.MaxPerKey is -1; the least is 0":            {MaxPerKey: -1},
		"Options.MaxWaiting is -2; the least is 0":           {MaxWaiting: -2},
		"Options.MaxWaitingPerKey is -3; the least is 0":     {MaxWaitingPerKey: -3},
		"Options.Rate is -1; the limits are 0 and MaxUnits":  {Rate: -1},
		"Options.Rate is NaN; the limits are 0 and MaxUnits": {Rate: math.NaN()},
		"Options.Burst is +Inf; the limits are 0 and":        {Rate: 1, Burst: math.Inf(1)},
		"Options.Burst is 1 and Options.Rate is 0":           {Burst: 1},
	} {
		require.ErrorContains(t, o.Validate(), "admit: "+want)
		require.PanicsWithError(t, o.Validate().Error(), func() { admit.New(1, &o) })
	}
	require.PanicsWithError(t, "admit: the limit is -1; the least is 1",
		func() { admit.New[int](-1, nil) })

	l := admit.New(1, &admit.Options[int]{Weight: func(key int) int { return key }, Rate: 1})
	for _, weight := range []int{0, 1001} {
		_, err := l.Acquire(t.Context(), weight)
		require.ErrorIs(t, err, admit.ErrWeight)
		_, err = l.TryAcquire(weight)
		require.ErrorContains(t, err,
			fmt.Sprintf("it is %d for key %d; the limits are 1 and 1000", weight, weight))
	}
	for _, n := range []int64{0, -1, admit.MaxUnits + 1} {
		_, err := l.AcquireN(t.Context(), 1, n)
		require.ErrorIs(t, err, admit.ErrCost)
		require.ErrorContains(t, err, fmt.Sprintf("it is %d; the limits are 1 and", n))
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := l.Acquire(done, 1)
	require.ErrorIs(t, err, context.Canceled)

	l = admit.New[int](1, nil)
	_, err = l.AcquireN(t.Context(), 1, 1)
	require.ErrorContains(t, err, "there are no units without Options.Rate")
	p, err := l.Acquire(t.Context(), 1)
	require.NoError(t, err)
	require.ErrorIs(t, p.ReleaseUsed(1), admit.ErrCost)
	require.Zero(t, l.Stats().Held)
}

func TestNaN(t *testing.T) {
	l := admit.New(3, &admit.Options[float64]{MaxPerKey: 1})
	nan := math.NaN()
	p, err := l.Acquire(t.Context(), nan)
	require.NoError(t, err)
	_, err = l.TryAcquire(-nan)
	require.ErrorIs(t, err, admit.ErrKeyFull)
	require.Equal(t, 1, l.KeyStat(nan).Taken)
	p.Release()
	for range 1000 {
		p, err := l.Acquire(t.Context(), nan)
		require.NoError(t, err)
		p.Release()
	}
	require.Len(t, l.KeyStats(10, fairq.ByBacklog), 1)
}

// TestMemory: many keys that have come and gone, one by one or all at once, leave no memory
// behind.
func TestMemory(t *testing.T) {
	n := 1_000_000
	if testing.Short() {
		n = 20_000
	}
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	l := admit.New[int](1, nil)
	before := heap()
	for key := range n {
		p, err := l.Acquire(t.Context(), key)
		require.NoError(t, err)
		p.Release()
	}
	require.Less(t, heap()-before, int64(100_000))
	p, err := l.Acquire(t.Context(), -1)
	require.NoError(t, err)
	var all sync.WaitGroup
	for key := range n / 10 {
		all.Go(func() {
			p, err := l.Acquire(context.Background(), key)
			if err == nil {
				p.Release()
			}
		})
	}
	for l.Stats().Waiting < n/10 {
		runtime.Gosched()
	}
	p.Release()
	all.Wait()
	require.LessOrEqual(t, len(l.KeyStats(n, fairq.ByBacklog)), 33)
	runtime.KeepAlive(l)
}

func TestNoAllocations(t *testing.T) {
	l := admit.New[string](1, nil)
	ctx := t.Context()
	run := func() {
		p, _ := l.Acquire(ctx, "key")
		p.Release()
	}
	require.Zero(t, testing.AllocsPerRun(1000, run))
}

func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := admit.New(10, &admit.Options[string]{Rate: 10, Burst: 20})
		ctx, start := t.Context(), time.Now()
		a, err := l.AcquireN(ctx, "a", 50) // more than Burst: the level falls below 0
		require.NoError(t, err)
		require.InDelta(t, -30, l.Stats().Level, 0)
		_, err = l.TryAcquire("b")
		require.Equal(t, &fairq.FullError{Len: 1, Limit: 1}, err)
		b, err := l.AcquireN(ctx, "b", 1)
		require.NoError(t, err)
		require.InDelta(t, 3, time.Since(start).Seconds(), 0.001)
		require.NoError(t, b.ReleaseUsed(21)) // 20 more than declared
		require.InDelta(t, -21, l.Stats().Level, 0.01)
		got := make(chan string, 2)
		acquire(t, l, "b", "b", 0, got)
		acquire(t, l, "c", "c", 0, got)
		require.NoError(t, a.ReleaseUsed(29)) // 21 fewer
		require.Equal(t, "c", <-got, "b has used 20 units")
		require.Equal(t, "b", <-got)
		require.InDelta(t, -1, l.Stats().Level, 0.01)
		require.InDelta(t, 30-21, l.KeyStat("a").Total.Cost, 0.01, "20 were there, and nobody waited")
		require.InDelta(t, 1+20+1, l.KeyStat("b").Total.Cost, 0.01)
		time.Sleep(time.Second)
		p, err := l.Acquire(ctx, "a")
		require.NoError(t, err)
		require.ErrorIs(t, p.ReleaseUsed(-1), admit.ErrCost)
		time.Sleep(time.Hour)
		require.InDelta(t, 20, l.Stats().Level, 0)
	})
}

// TestRateInRealTime: a call waits while permits are free, and the level crosses 0 at that moment.
// Virtual time stands still then.
func TestRateInRealTime(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	l := admit.New(4, &admit.Options[int]{Rate: 1e5, Burst: 1})
	for start := time.Now(); time.Since(start) < time.Second; {
		p, err := l.Acquire(ctx, 1)
		require.NoError(t, err, "%+v", l.Stats())
		p.Release()
	}
}

// TestRateFloor: a newcomer waits for the units that a key may still use, and not for the time for
// which the key has held a permit.
func TestRateFloor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := admit.New(2, &admit.Options[string]{Rate: 1, Burst: 100})
		got := make(chan string, 100)
		acquire(t, l, "slow", "", 9*time.Second, got)
		for range 12 {
			acquire(t, l, "busy", "", 2*time.Second, got)
		}
		for range 9 {
			acquire(t, l, "slow", "slow", time.Millisecond, got)
		}
		time.Sleep(8500 * time.Millisecond)
		acquire(t, l, "new", "new", 0, got)
		for range 6 {
			require.Empty(t, <-got)
		}
		require.Equal(t, []string{"slow", "slow", "new"}, []string{<-got, <-got, <-got})
		time.Sleep(time.Minute)
	})
}

// TestRateShares: keys share units, however many one request needs, and each window keeps the
// bound of AcquireN.
func TestRateShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate, burst, window, dear = 1000, 500, time.Minute, 3000
		l := admit.New(4, &admit.Options[int]{Rate: rate, Burst: burst})
		type use struct {
			at    time.Time
			units int64
		}
		var mu sync.Mutex
		var uses []use
		used := map[int]int64{}
		var all sync.WaitGroup
		end := time.Now().Add(time.Hour)
		for key := range 6 {
			units := int64(100)
			if key == 0 {
				units = dear
			}
			for i := range 5 {
				random := rand.New(rand.NewPCG(uint64(key), uint64(i)))
				all.Go(func() {
					for time.Now().Before(end) {
						p, err := l.AcquireN(t.Context(), key, units)
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						uses = append(uses, use{time.Now(), units})
						used[key] += units
						mu.Unlock()
						time.Sleep(time.Duration(random.IntN(200)) * time.Millisecond)
						p.Release()
					}
				})
			}
		}
		all.Wait()
		for key := range 6 {
			require.InDelta(t, 1./6, float64(used[key])/(3600*rate), 0.01, "key %d", key)
		}
		var sum, most int64 // of a window
		for i, first := 0, 0; i < len(uses); i++ {
			for sum += uses[i].units; uses[i].at.Sub(uses[first].at) > window; first++ {
				sum -= uses[first].units
			}
			most = max(most, sum)
		}
		require.Less(t, most, int64(burst+rate*window.Seconds()+dear))
	})
}

func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := admit.New(1, &admit.Options[string]{MaxWaiting: 20})
		require.Equal(t, time.Second, l.RetryAfter(admit.ErrFull))
		got := make(chan string, 100)
		for range 5 {
			acquire(t, l, "a", "a", 2*time.Second, got)
			acquire(t, l, "b", "b", 2*time.Second, got)
		}
		time.Sleep(6 * time.Second)
		synctest.Wait()
		require.Equal(t, 6, l.Stats().Waiting)
		require.Equal(t, 14*time.Second, l.RetryAfter(admit.ErrFull),
			"one every two seconds, and six wait")
		require.Equal(t, 4*time.Second, l.RetryAfter(&fairq.FullError{PerKey: true}), "two keys")
		time.Sleep(time.Minute)
		first := l.KeyStats(1, fairq.ByServed)
		require.Len(t, first, 1)
		require.InDelta(t, float64(10*time.Second), first[0].Total.Cost, 0,
			"but that of its last one, when nobody waited")
		acquire(t, l, "c", "c", time.Hour, got)
		acquire(t, l, "d", "d", time.Hour, got)
		time.Sleep(time.Second)
		acquire(t, l, "e", "e", time.Hour, got)
		require.Equal(t, "d", l.KeyStats(1, fairq.ByOldest)[0].Key)
		time.Sleep(24 * time.Hour)
	})
}
