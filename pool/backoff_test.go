package pool

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/task"
)

const longest = time.Duration(math.MaxInt64)

// seeded returns random numbers, and prints the seed.
func seeded(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 11))
}

// magnitude returns an odd number of 1 to 63 bits, each length as likely.
func magnitude(r *rand.Rand) time.Duration { return time.Duration(r.Int64()>>r.IntN(63) | 1) }

// count does so too, with as many bits as an int has here.
func count(r *rand.Rand) int { return r.Int()>>r.IntN(bits.UintSize-1) | 1 }

// anyBackoff is not always valid.
func anyBackoff(r *rand.Rand) Backoff {
	any := func() time.Duration {
		if r.IntN(3) > 0 {
			return magnitude(r)
		}
		return []time.Duration{
			0, 1, time.Second, task.MaxDuration, longest, -1,
			math.MinInt64,
		}[r.IntN(7)]
	}
	return Backoff{Base: any(), Max: any(), Jitter: Jitter(r.IntN(int(Decorrelated) + 2))}
}

func anyFailures(r *rand.Rand) int {
	switch r.IntN(10) {
	case 0:
		return []int{math.MinInt, -1, 0, math.MaxInt - 1, math.MaxInt}[r.IntN(5)]
	case 1, 2, 3, 4:
		return 1 + r.IntN(100)
	}
	return count(r)
}

// limits is another implementation of Base and Max.
func limits(b Backoff) (base, most time.Duration) {
	base, most = time.Second, time.Hour
	if b.Base > 0 {
		base = b.Base
	}
	if b.Max > 0 {
		most = b.Max
	} else if base > most {
		most = base
	}
	if base > most {
		base = most
	}
	return base, most
}

func TestDelayIsInRange(t *testing.T) {
	r := seeded(t)
	for range 100_000 {
		b, n := anyBackoff(r), anyFailures(r)
		base, most := limits(b)
		low := base
		switch b.Jitter {
		case FullJitter:
			low = 0
		case HalfJitter:
			low = (base + 1) / 2
		}
		if d := b.delay(n); d < low || d > most {
			require.Failf(t, "out of range", "%+v.delay(%d) = %d, not in %d to %d", b, n, d, low, most)
		}
	}
}

func TestDelayZeroValueAndExtremes(t *testing.T) {
	for _, c := range []struct {
		b    Backoff
		n    int
		want time.Duration
	}{
		{Backoff{}, 0, time.Second},
		{Backoff{}, math.MinInt, time.Second},
		{Backoff{}, 1, time.Second},
		{Backoff{}, 12, 2048 * time.Second},
		{Backoff{}, 13, time.Hour},
		{Backoff{}, math.MaxInt, time.Hour},
		{Backoff{Base: 2 * time.Hour}, 3, 2 * time.Hour},
		{Backoff{Max: time.Millisecond}, 1, time.Millisecond},
		{Backoff{Base: 1, Max: longest}, 63, 1 << 62},
		{Backoff{Base: 1, Max: longest}, 64, longest},
		{Backoff{Base: 7, Max: 7, Jitter: Decorrelated}, math.MaxInt, 7},
		{Backoff{Base: 1, Jitter: HalfJitter}, 1, 1},
		{Backoff{Func: minutes}, 3, 3 * time.Minute},
		{Backoff{Func: minutes}, math.MinInt, time.Minute},
		{Backoff{Func: minutes, Max: 2 * time.Minute}, 3, 2 * time.Minute},
		{Backoff{Func: func(int) time.Duration { return -1 }}, 1, 0},
		{Backoff{Func: func(int) time.Duration { return longest }}, 1, task.MaxDuration},
		{Backoff{Func: func(int) time.Duration { return 1 }, Jitter: HalfJitter}, 1, 1},
	} {
		require.Equal(t, c.want, c.b.delay(c.n), "%+v.delay(%d)", c.b, c.n)
	}
}

func minutes(n int) time.Duration { return time.Duration(n) * time.Minute }

// TestDelayReachesItsEnds has ranges of a few nanoseconds; both ends must occur.
func TestDelayReachesItsEnds(t *testing.T) {
	for _, c := range []struct {
		b    Backoff
		want []time.Duration
	}{
		{Backoff{Base: 3, Jitter: FullJitter}, []time.Duration{0, 1, 2, 3}},
		{Backoff{Base: 5, Jitter: HalfJitter}, []time.Duration{3, 4, 5}},
		{Backoff{Base: 2, Jitter: Decorrelated}, []time.Duration{2, 3, 4, 5, 6}},
	} {
		seen := map[time.Duration]bool{}
		for range 1000 {
			seen[c.b.delay(1)] = true
		}
		got := []time.Duration{}
		for d := range seen {
			got = append(got, d)
		}
		slices.Sort(got)
		require.Equal(t, c.want, got, "%+v", c.b)
	}
}

// distance is that of Kolmogorov and Smirnov, between the distributions of two samples of the same
// size.
func distance(a, b []float64) float64 {
	slices.Sort(a)
	slices.Sort(b)
	most, j := 0.0, 0
	for i, x := range a {
		for j < len(b) && b[j] <= x {
			j++
		}
		if i+1 == len(a) || a[i+1] > x { // x is the last of equal values
			most = max(most, math.Abs(float64(i+1-j))/float64(len(a)))
		}
	}
	return most
}

// TestDecorrelatedIsAChain compares Delay with chains in which each delay follows from the one
// before. The last chain is longer than any chain of Delay, which must make no difference.
func TestDecorrelatedIsAChain(t *testing.T) {
	r := seeded(t)
	const samples = 5000
	for _, n := range []int{1, 2, 3, 8, 20, 60, 2 * maxDraws} {
		b := Backoff{Jitter: Decorrelated, Base: time.Millisecond, Max: 24 * time.Hour}
		base, most := b.Base.Seconds(), b.Max.Seconds()
		drawn, chains := make([]float64, samples), make([]float64, samples)
		for i := range samples {
			drawn[i] = b.delay(n).Seconds()
			chains[i] = base
			for range n {
				chains[i] = base + r.Float64()*(min(most, 3*chains[i])-base)
			}
			require.LessOrEqual(t, drawn[i], base*math.Pow(3, float64(n)))
		}
		// A greater distance has a chance of 1 in 100,000.
		require.Less(t, distance(drawn, chains), 0.05, "after %d failures", n)
	}
}

func TestBackoffValidate(t *testing.T) {
	for _, b := range []Backoff{
		{},
		{Base: 2 * time.Hour},
		{Max: time.Millisecond},
		{Base: task.MaxDuration, Max: task.MaxDuration},
		{Func: minutes, Max: time.Hour, Jitter: FullJitter},
	} {
		require.NoError(t, b.validate("B"), "%+v", b)
	}
	for want, b := range map[string]Backoff{
		"B.Base is -1ns; it must be 0 to 876000h0m0s":                  {Base: -1},
		"B.Base is 876000h0m0.000000001s; it must be 0 to 876000h0m0s": {Base: task.MaxDuration + 1},
		"B.Max is -1s; it must be 0 to 876000h0m0s":                    {Max: -time.Second},
		"B.Max is 876000h0m0.000000001s; it must be 0 to 876000h0m0s":  {Max: task.MaxDuration + 1},
		"B.Max is 1s; it must be 0 or at least Base, which is 2s": {
			Base: 2 * time.Second, Max: time.Second,
		},
		"B.Jitter is 4; it must be 0 to 3": {Jitter: Decorrelated + 1},
		"B.Func is set; with it only Max and Jitter may be, and Jitter must not be decorrelated": {
			Func: minutes, Base: 1,
		},
	} {
		err := b.validate("B")
		require.ErrorIs(t, err, task.ErrInvalid)
		require.EqualError(t, err, "pool: invalid: "+want)
	}
}
