package life

import (
	"fmt"
	"math"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/driver"
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

// Tokens returns the number of tokens of an attempt at a task of that cost.
func Tokens(s *driver.Settings, cost int64) int64 {
	if s.Quantum == 0 || s.ShareTime {
		return 1
	}
	return cost
}

// Weight returns the weight of a key that has the given one by Options.Weight.
func Weight(given int, own *driver.KeyLimits) int {
	if own != nil && own.Weight > 0 {
		return own.Weight
	}
	return given
}
