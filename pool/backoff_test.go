package pool

import (
	"math"
	"math/big"
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
	b := Backoff{Curve: Curve(r.IntN(int(Random) + 2)), Jitter: Jitter(r.IntN(int(Decorrelated) + 2))}
	durations := []time.Duration{0, 1, time.Second, task.MaxDuration, longest, -1, math.MinInt64}
	degrees := []float64{0, 0.5, 1, 2.5, 3, 400, math.MaxFloat64, math.SmallestNonzeroFloat64, -1, math.NaN(), math.Inf(1), math.Inf(-1)}
	b.Base, b.Max, b.Degree = durations[r.IntN(len(durations))], durations[r.IntN(len(durations))], degrees[r.IntN(len(degrees))]
	if r.IntN(3) > 0 {
		b.Base = magnitude(r)
	}
	if r.IntN(3) > 0 {
		b.Max = magnitude(r)
	}
	return b
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

// limits says anew what Base and Max mean.
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
		if d := b.Delay(n); d < low || d > most {
			require.Failf(t, "out of range", "%+v.Delay(%d) = %d, not in %d to %d", b, n, d, low, most)
		}
	}
}

// model computes the delay from the formula, with numbers that do not overflow.
func model(b Backoff, n int) *big.Float {
	x := func(v int64) *big.Float { return new(big.Float).SetPrec(2000).SetInt64(v) }
	base, most := limits(b)
	d := x(int64(base))
	switch b.Curve {
	case Exponential:
		d.SetMantExp(d, n-1)
	case Linear:
		d.Mul(d, x(int64(n)))
	case Quadratic:
		d.Mul(d, x(int64(n))).Mul(d, x(int64(n)))
	case Polynomial: // whole or half degrees
		root := x(int64(n))
		root.Sqrt(root)
		degree := b.Degree
		if degree == 0 {
			degree = 3
		}
		for range int(2 * degree) {
			d.Mul(d, root)
		}
	case Fibonacci:
		f, next := big.NewInt(1), big.NewInt(1)
		for range min(n, 200) - 1 {
			f.Add(f, next)
			f, next = next, f
		}
		d.Mul(d, x(0).SetInt(f))
	case Logarithmic: // exact only for powers of 2
		d.Mul(d, x(0).SetFloat64(1+math.Log2(float64(n))))
	}
	if d.Cmp(x(int64(most))) > 0 {
		return x(int64(most))
	}
	return d
}

func TestDelayIsWhatTheFormulaSays(t *testing.T) {
	r := seeded(t)
	below := 0
	for range 100_000 {
		b := Backoff{Curve: Curve(r.IntN(int(Random))), Base: magnitude(r), Max: magnitude(r)}
		n := 1 + r.IntN(20)
		if r.IntN(2) == 0 {
			n = count(r)
		}
		var tolerance float64 // relative
		switch b.Curve {
		case Exponential:
			n = min(n, 1000)
		case Polynomial:
			b.Degree = float64(r.IntN(9)) / 2
			tolerance = 1e-14
		case Logarithmic:
			tolerance = 1e-14
			if r.IntN(2) == 0 {
				n = 1 << r.IntN(bits.UintSize-1)
			}
		}
		want := model(b, n)
		got := b.Delay(n)
		off, _ := new(big.Float).Sub(want, new(big.Float).SetInt64(int64(got))).Float64()
		if tolerance > 0 {
			off = max(math.Abs(off)-0.5, 0)
		}
		if math.Abs(off) > tolerance*float64(got) {
			require.Failf(t, "wrong", "%+v.Delay(%d) = %d, not %.1f", b, n, got, want)
		}
		if _, most := limits(b); got < most {
			below++
		}
	}
	require.Greater(t, below, 10_000, "too many were capped")
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
		{Backoff{Base: longest, Max: longest, Curve: Logarithmic}, 1, longest},
		// no float64 is this
		{Backoff{Base: longest - 1, Max: longest, Curve: Polynomial}, 1, longest - 1},
		{Backoff{Base: longest - 1, Max: longest, Curve: Polynomial}, 2, longest},
		{Backoff{Base: 1, Max: longest, Curve: Linear}, math.MaxInt, math.MaxInt},
		{Backoff{Base: 1 << 40, Max: longest, Curve: Linear}, math.MaxInt, longest},
		{Backoff{Base: 1 << 40, Max: longest, Curve: Quadratic}, 2896, 2896 * 2896 << 40},
		{Backoff{Base: 1 << 40, Max: longest, Curve: Quadratic}, 2897, longest},
		{Backoff{Base: 1, Max: longest, Curve: Fibonacci}, 92, 7_540_113_804_746_346_429},
		{Backoff{Base: 1, Max: longest, Curve: Fibonacci}, 93, longest},
		{Backoff{Base: 1, Max: longest, Curve: Fibonacci}, math.MaxInt, longest},
		{Backoff{Base: time.Second, Curve: Polynomial}, 3, 27 * time.Second},
		{Backoff{Base: time.Second, Curve: Polynomial, Degree: 0.5}, 9, 3 * time.Second},
		{Backoff{Base: 7, Max: 7, Curve: Random}, 1, 7},
		{Backoff{Base: 7, Max: 7, Jitter: Decorrelated}, math.MaxInt, 7},
		{Backoff{Base: 1, Jitter: HalfJitter}, 1, 1},
		{Backoff{Func: minutes}, 3, 3 * time.Minute},
		{Backoff{Func: minutes}, math.MinInt, time.Minute},
		{Backoff{Func: minutes, Max: 2 * time.Minute}, 3, 2 * time.Minute},
		{Backoff{Func: func(int) time.Duration { return -1 }}, 1, 0},
		{Backoff{Func: func(int) time.Duration { return longest }}, 1, task.MaxDuration},
		{Backoff{Func: func(int) time.Duration { return 1 }, Jitter: HalfJitter}, 1, 1},
	} {
		require.Equal(t, c.want, c.b.Delay(c.n), "%+v.Delay(%d)", c.b, c.n)
	}
}

func minutes(n int) time.Duration { return time.Duration(n) * time.Minute }

// TestDelaySpreads looks at where in their range the delays are: as many in each tenth of it.
func TestDelaySpreads(t *testing.T) {
	for name, c := range map[string]struct {
		b         Backoff
		n         int
		low, high time.Duration
	}{
		"full":             {Backoff{Jitter: FullJitter}, 4, 0, 8 * time.Second},
		"full, longest":    {Backoff{Jitter: FullJitter, Max: longest}, 99, 0, longest},
		"half":             {Backoff{Jitter: HalfJitter}, 4, 4 * time.Second, 8 * time.Second},
		"half, linear":     {Backoff{Curve: Linear, Jitter: HalfJitter}, 10, 5 * time.Second, 10 * time.Second},
		"decorrelated":     {Backoff{Jitter: Decorrelated}, 1, time.Second, 3 * time.Second},
		"decorrelated, at": {Backoff{Jitter: Decorrelated, Max: 2 * time.Second}, 9, time.Second, 2 * time.Second},
		"random":           {Backoff{Curve: Random, Max: 5 * time.Second}, 3, time.Second, 5 * time.Second},
		"random, longest":  {Backoff{Curve: Random, Base: 1, Max: longest}, 3, 1, longest},
	} {
		t.Run(name, func(t *testing.T) {
			const draws = 20_000
			var tenths [10]int
			for range draws {
				d := c.b.Delay(c.n)
				require.True(t, c.low <= d && d <= c.high, "%v is not in %v to %v", d, c.low, c.high)
				tenths[min(int(10*float64(d-c.low)/float64(c.high-c.low)), 9)]++
			}
			for _, count := range tenths {
				// seven times the standard deviation
				require.InDelta(t, draws/10, count, 300, "%v", tenths)
			}
		})
	}
}

// TestDelayReachesItsEnds has ranges of a few nanoseconds, of which both ends must come.
func TestDelayReachesItsEnds(t *testing.T) {
	for _, c := range []struct {
		b    Backoff
		want []time.Duration
	}{
		{Backoff{Base: 3, Jitter: FullJitter}, []time.Duration{0, 1, 2, 3}},
		{Backoff{Base: 5, Jitter: HalfJitter}, []time.Duration{3, 4, 5}},
		{Backoff{Base: 2, Jitter: Decorrelated}, []time.Duration{2, 3, 4, 5, 6}},
		{Backoff{Base: 4, Max: 6, Curve: Random}, []time.Duration{4, 5, 6}},
	} {
		seen := map[time.Duration]bool{}
		for range 1000 {
			seen[c.b.Delay(1)] = true
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
		if i+1 == len(a) || a[i+1] > x { // else there are more of the same
			most = max(most, math.Abs(float64(i+1-j))/float64(len(a)))
		}
	}
	return most
}

// TestDecorrelatedIsAChain compares with chains that remember the delay before. The last one is
// longer than Delay draws: that must not show.
func TestDecorrelatedIsAChain(t *testing.T) {
	r := seeded(t)
	const samples = 5000
	for _, n := range []int{1, 2, 3, 8, 20, 60, 2 * maxDraws} {
		b := Backoff{Jitter: Decorrelated, Base: time.Millisecond, Max: 24 * time.Hour}
		base, most := b.Base.Seconds(), b.Max.Seconds()
		drawn, chains := make([]float64, samples), make([]float64, samples)
		for i := range samples {
			drawn[i] = b.Delay(n).Seconds()
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
		{Curve: Random, Jitter: Decorrelated},
		{Curve: Polynomial, Degree: 0.5},
		{Curve: Linear, Degree: math.Copysign(0, -1)},
		{Func: minutes, Max: time.Hour, Jitter: FullJitter},
	} {
		require.NoError(t, b.validate("B"), "%+v", b)
	}
	for want, b := range map[string]Backoff{
		"B.Base is -1ns; it must be 0 to 876000h0m0s":                                            {Base: -1},
		"B.Base is 876000h0m0.000000001s; it must be 0 to 876000h0m0s":                           {Base: task.MaxDuration + 1},
		"B.Max is -1s; it must be 0 to 876000h0m0s":                                              {Max: -time.Second},
		"B.Max is 876000h0m0.000000001s; it must be 0 to 876000h0m0s":                            {Max: task.MaxDuration + 1},
		"B.Max is 1s; it must be 0 or at least Base, which is 2s":                                {Base: 2 * time.Second, Max: time.Second},
		"B.Curve is 8; it must be 0 to 7":                                                        {Curve: Random + 1},
		"B.Jitter is 4; it must be 0 to 3":                                                       {Jitter: Decorrelated + 1},
		"B.Degree is -1; it must be 0 or more, and finite":                                       {Curve: Polynomial, Degree: -1},
		"B.Degree is NaN; it must be 0 or more, and finite":                                      {Curve: Polynomial, Degree: math.NaN()},
		"B.Degree is +Inf; it must be 0 or more, and finite":                                     {Curve: Polynomial, Degree: math.Inf(1)},
		"B.Degree is 2; it must be 0 unless Curve is Polynomial":                                 {Curve: Linear, Degree: 2},
		"B.Func is set; with it only Max and Jitter may be, and Jitter must not be decorrelated": {Func: minutes, Base: 1},
	} {
		err := b.validate("B")
		require.ErrorIs(t, err, ErrInvalid)
		require.EqualError(t, err, "pool: invalid: "+want)
	}
}

func TestCurveAndJitterNames(t *testing.T) {
	require.Equal(t, "exponential", Exponential.String())
	require.Equal(t, "random", Random.String())
	require.Equal(t, "Curve(8)", (Random + 1).String())
	require.Equal(t, "none", NoJitter.String())
	require.Equal(t, "decorrelated", Decorrelated.String())
	require.Equal(t, "Jitter(255)", Jitter(255).String())
}
