package life

import (
	"fmt"
	"math"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task/driver"
)

// A key has its own limits, which may be nil, and where these set none those of its queue.

// CheckLimits returns an error if the keys of a queue cannot have limits of their own.
func CheckLimits(s *driver.Settings) error {
	if s.LimitsKeys() {
		return nil
	}
	return &driver.FieldError{
		Field: "SetKey: Options.MaxInFlightPerKey", Value: s.MaxInFlightPerKey,
		Limit: fmt.Sprintf("set at Open, unless KeyRate is; %d is as good as no limit", fairq.MaxLen),
	}
}

// MaxInFlight returns the greatest number of tasks of a key that are taken at the same time.
func MaxInFlight(s *driver.Settings, own *driver.KeyLimits) int {
	limit := s.MaxInFlightPerKey
	if own != nil && own.MaxInFlight != 0 {
		limit = own.MaxInFlight
	}
	if limit <= 0 {
		return math.MaxInt
	}
	return limit
}

// Slots returns how many more tasks of a key may be taken within its limit, less than 0 if the
// limit was higher, and how many beyond that in a burst.
func Slots(s *driver.Settings, own *driver.KeyLimits, taken int) (within, burst int) {
	most := MaxInFlight(s, own)
	if most == math.MaxInt {
		return most, 0
	}
	burst = s.BurstPerKey
	if own != nil && own.Burst != 0 {
		burst = max(0, own.Burst)
	}
	return most - taken, burst
}

// Access says which takers get the tasks of a key.
type Access uint8

// Takers look for a task of a key that is Within its limit first. If there is none for their
// filter, they look once more, for one of a key that may Burst.
const (
	Within Access = iota
	Burst
	Blocked
)

// AccessOf returns the access to a key with such Slots. isHeld is true if the key is paused or
// waits.
func AccessOf(within, burst int, isHeld bool) Access {
	switch {
	case isHeld || within+burst <= 0:
		return Blocked
	case within <= 0:
		return Burst
	}
	return Within
}

// KeyRate returns the rate of a key, the zero Rate without a limit.
func KeyRate(s *driver.Settings, own *driver.KeyLimits) driver.Rate {
	switch {
	case own == nil || own.Rate.Limit == 0:
		return s.KeyRate
	case own.Rate.Limit < 0:
		return driver.Rate{}
	}
	return own.Rate
}

// Weight returns the weight of a key that has the given one by Options.Weight.
func Weight(given int, own *driver.KeyLimits) int {
	if own != nil && own.Weight > 0 {
		return own.Weight
	}
	return given
}
