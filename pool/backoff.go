package pool

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/fairq/fairq/task"
)

// Backoff says how long a task waits after a failure, before it is tried again. The delays grow
// along a curve, from Base to Max. The zero value is exponential, from one second to one hour,
// without jitter.
type Backoff struct {
	// Func, if not nil, returns the delays instead of a curve, for failures from 1 on. With it,
	// only Max and Jitter may be set: a Max of 0 then means [task.MaxDuration], and Jitter must
	// not be Decorrelated. If Func panics, the task gets the delay of the zero Backoff.
	Func func(failures int) time.Duration

	Curve  Curve
	Base   time.Duration // the first delay; 0 means a second, or Max if that is shorter
	Max    time.Duration // the longest delay; 0 means an hour, or Base if that is longer
	Degree float64       // of a Polynomial; 0 means 3
	Jitter Jitter
}

// Curve is how delays grow with the number n of failures. All of them end at Max.
type Curve uint8

// The curves.
const (
	Exponential Curve = iota // Base * 2^(n-1)
	Constant                 // Base
	Linear                   // Base * n
	Quadratic                // Base * n^2
	Polynomial               // Base * n^Degree
	Fibonacci                // Base * 1, 1, 2, 3, 5, 8 ...
	Logarithmic              // Base * (1 + log2 n)
	Random                   // anything from Base to Max, each as likely
)

var curveNames = [...]string{
	"exponential", "constant", "linear", "quadratic", "polynomial", "fibonacci", "logarithmic", "random",
}

// String returns the curve in lower case.
func (c Curve) String() string {
	if int(c) < len(curveNames) {
		return curveNames[c]
	}
	return fmt.Sprintf("Curve(%d)", uint8(c))
}

// Jitter spreads delays, so that tasks which failed together are not tried again together. d is
// the delay without it.
type Jitter uint8

// The jitters.
const (
	NoJitter   Jitter = iota // d
	FullJitter               // anything from 0 to d
	HalfJitter               // anything from d/2 to d

	// Decorrelated is anything from Base to three times the delay before, Max at most, without a
	// curve.
	Decorrelated
)

var jitterNames = [...]string{"none", "full", "half", "decorrelated"}

// String returns the jitter in lower case.
func (j Jitter) String() string {
	if int(j) < len(jitterNames) {
		return jitterNames[j]
	}
	return fmt.Sprintf("Jitter(%d)", uint8(j))
}

// Delay returns how long a task waits after its nth failure, from 0 to Max. Failures below 1 count
// as 1. It is 0 only with [FullJitter] or Func. With Random or a jitter each call draws anew. It
// takes a bounded number of steps.
func (b Backoff) Delay(failures int) time.Duration {
	failures = max(failures, 1)
	base, most := b.bounds()
	var d time.Duration
	switch {
	case b.Func != nil:
		d = min(max(b.Func(failures), 0), cmp.Or(max(b.Max, 0), task.MaxDuration))
	case b.Jitter == Decorrelated:
		return decorrelated(base, most, failures)
	default:
		d = b.curve(base, most, failures)
	}
	switch b.Jitter {
	case FullJitter:
		return between(0, d)
	case HalfJitter:
		return between(d-d/2, d)
	}
	return d
}

// bounds returns Base and Max with their defaults, such that 0 < base <= most even if b is not
// valid.
func (b Backoff) bounds() (base, most time.Duration) {
	base, most = b.Base, b.Max
	if base <= 0 {
		base = time.Second
	}
	if most <= 0 {
		most = max(base, time.Hour)
	}
	return min(base, most), most
}

func (b Backoff) curve(base, most time.Duration, n int) time.Duration {
	switch b.Curve {
	case Constant:
		return base
	case Linear:
		return times(base, n, most)
	case Quadratic:
		return times(times(base, n, most), n, most)
	case Polynomial:
		degree := b.Degree
		if !(degree > 0) { // NaN is none either
			degree = 3
		}
		return grow(base, math.Pow(float64(n), degree)-1, most)
	case Fibonacci:
		d, next := base, base
		for i := 1; i < n && d < most; i++ {
			d, next = next, d+min(next, most-d)
		}
		return d
	case Logarithmic:
		return grow(base, math.Log2(float64(n)), most)
	case Random:
		return between(base, most)
	}
	if base > most>>(n-1) { // never base<<(n-1) > most, which overflows
		return most
	}
	return base << (n - 1)
}

// times returns d*n, or most if that is less. d and n are positive.
func times(d time.Duration, n int, most time.Duration) time.Duration {
	if time.Duration(n) > most/d {
		return most
	}
	return d * time.Duration(n)
}

// grow returns base*(1+by) to the nearest nanosecond, or most if that is less. Only what is added
// goes through a float64, so that a long base is not rounded.
func grow(base time.Duration, by float64, most time.Duration) time.Duration {
	added := math.Round(float64(base) * by)
	if added < float64(most-base) {
		return base + time.Duration(added)
	}
	return most
}

// between returns any duration from low to high, both included, each as likely.
func between(low, high time.Duration) time.Duration {
	return low + time.Duration(rand.Uint64N(uint64(high-low)+1))
}

// maxDraws is after how many draws the distribution of the delay is taken to stay as it is. Two
// chains that are drawn from the same random numbers are the same from the moment on when the
// lower one is above Max/3; where they began is then forgotten. A chain from Base takes 27 draws
// in the median, and 255 at most in 200,000 trials, if Max is 3600 times Base. If it is 10^9 times
// Base, 1 of 100,000 takes more than 1000; in the most extreme case, from a nanosecond to a
// hundred years, 1 of 150.
const maxDraws = 1000

// decorrelated draws the whole chain from the first failure on, as nothing remembers the delay
// before. So each delay is distributed as it should be, but does not depend on the one that the
// task did wait. The source is "Exponential Backoff And Jitter" in the AWS Architecture Blog. It
// caps what is drawn, so that most delays end up at Max together; here Max caps the range to draw
// from.
func decorrelated(base, most time.Duration, failures int) time.Duration {
	d := base
	for range min(failures, maxDraws) {
		d = between(base, times(d, 3, most))
	}
	return d
}

// validate returns an error if the backoff makes no sense. name is what the error calls it.
func (b Backoff) validate(name string) error {
	for _, f := range []struct {
		name  string
		value time.Duration
	}{{"Base", b.Base}, {"Max", b.Max}} {
		if f.value < 0 || f.value > task.MaxDuration {
			return invalid("%s.%s is %v; it must be 0 to %v", name, f.name, f.value, task.MaxDuration)
		}
	}
	switch {
	case b.Max > 0 && b.Max < b.Base:
		return invalid("%s.Max is %v; it must be 0 or at least Base, which is %v", name, b.Max, b.Base)
	case b.Curve > Random:
		return invalid("%s.Curve is %d; it must be %d to %d", name, b.Curve, Exponential, Random)
	case b.Jitter > Decorrelated:
		return invalid("%s.Jitter is %d; it must be %d to %d", name, b.Jitter, NoJitter, Decorrelated)
	case !(b.Degree >= 0) || math.IsInf(b.Degree, 0):
		return invalid("%s.Degree is %v; it must be 0 or more, and finite", name, b.Degree)
	case b.Func != nil && (b.Curve != Exponential || b.Base != 0 || b.Degree != 0 || b.Jitter == Decorrelated):
		return invalid("%s.Func is set; with it only Max and Jitter may be, and Jitter must not be decorrelated", name)
	case b.Degree > 0 && b.Curve != Polynomial:
		return invalid("%s.Degree is %v; it must be 0 unless Curve is Polynomial", name, b.Degree)
	}
	return nil
}
