package pool

import (
	"cmp"
	"math/rand/v2"
	"time"
)

// Backoff is the delay between a failure and the next attempt: Base after the first failure, and
// each time twice as long, up to Max. With a Base of Max the delay is always the same. The zero
// value goes from one second to one hour, without jitter.
type Backoff struct {
	Base time.Duration // the first delay; 0 means a second, or Max if that is shorter
	Max  time.Duration // the longest delay; 0 means an hour, or Base if that is longer

	// Jitter, from 0 to 1, is the part of each delay that is random. With 0.5 a delay of 8 s is
	// anything from 4 to 8 s. So tasks that failed together are not tried again together.
	Jitter float64
}

// delay returns how long a task waits after its nth failure, from 1 on.
func (b Backoff) delay(n int) time.Duration {
	base := cmp.Or(b.Base, min(time.Second, cmp.Or(b.Max, time.Second)))
	limit := cmp.Or(b.Max, max(base, time.Hour))
	d := limit
	if base <= limit>>(n-1) { // never base<<(n-1) > limit, which overflows
		d = base << (n - 1)
	}
	return d - time.Duration(b.Jitter*rand.Float64()*float64(d))
}

// validate returns an error, with this name, if the backoff makes no sense.
func (b Backoff) validate(name string) error {
	switch {
	case b.Max > 0 && b.Max < b.Base:
		return invalid("%s.Max is %v; it must be 0 or at least Base, which is %v", name, b.Max, b.Base)
	case !(b.Jitter >= 0 && b.Jitter <= 1):
		return invalid("%s.Jitter is %v; it must be 0 to 1", name, b.Jitter)
	}
	return nil
}
