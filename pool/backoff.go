package pool

import (
	"cmp"
	"math/rand/v2"
	"time"

	"github.com/fairq/fairq/task"
)

// Backoff is the delay between a failure and the next attempt: Base after the first failure, and
// each time twice as long, up to Max. With a Base of Max the delay is always the same. The zero
// value goes from one second to one hour, without jitter.
type Backoff struct {
	// Func, if not nil, returns the delays instead, for failures from 1 on. With it, only Max and
	// Jitter may be set: a Max of 0 then means [task.MaxDuration], and Jitter must not be
	// Decorrelated. If Func panics, the task gets the delay of the zero Backoff.
	Func func(failures int) time.Duration

	Base   time.Duration // the first delay; 0 means a second, or Max if that is shorter
	Max    time.Duration // the longest delay; 0 means an hour, or Base if that is longer
	Jitter Jitter
}

// Jitter spreads delays, so that tasks which failed together are not tried again together. d is
// the delay without it.
type Jitter uint8

// The jitters.
const (
	NoJitter   Jitter = iota // d
	FullJitter               // anything from 0 to d
	HalfJitter               // anything from d/2 to d

	// Decorrelated is anything from Base to three times the delay before, Max at most.
	Decorrelated
)

// delay returns how long a task waits after its nth failure, from 0 to Max. Failures below 1 count
// as 1. It is 0 only with [FullJitter] or Func. With a jitter each call draws again. It takes a
// bounded number of steps.
func (b Backoff) delay(failures int) time.Duration {
	failures = max(failures, 1)
	base, limit := b.bounds()
	var d time.Duration
	switch {
	case b.Func != nil:
		d = min(max(b.Func(failures), 0), cmp.Or(max(b.Max, 0), task.MaxDuration))
	case b.Jitter == Decorrelated:
		return decorrelated(base, limit, failures)
	default:
		d = double(base, limit, failures)
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
func (b Backoff) bounds() (base, limit time.Duration) {
	base, limit = b.Base, b.Max
	if base <= 0 {
		base = time.Second
	}
	if limit <= 0 {
		limit = max(base, time.Hour)
	}
	return min(base, limit), limit
}

// double returns base*2^(n-1), or most if that is less.
func double(base, limit time.Duration, n int) time.Duration {
	if base > limit>>(n-1) { // never base<<(n-1) > limit, which overflows
		return limit
	}
	return base << (n - 1)
}

// between returns any duration from low to high, both included, each as likely.
func between(low, high time.Duration) time.Duration {
	return low + time.Duration(rand.Uint64N(uint64(high-low)+1))
}

// maxDraws is the number of draws after which the distribution of the delay is taken as constant.
// Two chains from the same random numbers are equal once the lower one exceeds Max/3, wherever
// they began. If Max is 3600 times Base, a chain from Base takes a median of 27 draws for that,
// and at most 255 in 200,000 trials. If Max is 10^9 times Base, 1 of 100,000 takes more than 1000;
// in the most extreme case, from a nanosecond to a hundred years, 1 of 150.
const maxDraws = 1000

// decorrelated draws the whole chain from the first failure on, because nothing stores the delay
// before. So each delay has the right distribution, but does not depend on the delay before. The
// source is "Exponential Backoff And Jitter" in the AWS Architecture Blog. There the cap applies
// to the drawn value, so that most delays end up at Max together; here Max caps the range.
func decorrelated(base, limit time.Duration, failures int) time.Duration {
	d := base
	for range min(failures, maxDraws) {
		high := limit
		if d <= limit/3 {
			high = 3 * d
		}
		d = between(base, high)
	}
	return d
}

// validate returns an error, with this name, if the backoff makes no sense.
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
	case b.Jitter > Decorrelated:
		return invalid("%s.Jitter is %d; it must be %d to %d", name, b.Jitter, NoJitter, Decorrelated)
	case b.Func != nil && (b.Base != 0 || b.Jitter == Decorrelated):
		return invalid("%s.Func is set; with it only Max and Jitter may be, and Jitter "+
			"must not be decorrelated", name)
	}
	return nil
}
