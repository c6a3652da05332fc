package fairq

import (
	"errors"
	"fmt"
)

var (
	// ErrFull is returned when the queue, or the key's share of it, is full. The error is a
	// [*FullError].
	ErrFull = errors.New("fairq: full")

	// ErrKeyFull is returned when the key is at its KeyCapacity, or has its share of the queue with
	// RejectOverShare. It is also an ErrFull, as [errors.Is] reports. The error is a [*FullError].
	ErrKeyFull = fmt.Errorf("%w for this key", ErrFull)

	// ErrClosed is returned by pushes when the queue is closed, and by pops when it is closed and
	// empty.
	ErrClosed = errors.New("fairq: closed")

	// ErrWeight is returned when Options.Weight returns a weight that is out of range.
	ErrWeight = errors.New("fairq: weight out of range")

	// ErrCost is returned when Options.Cost returns a cost that is out of range.
	ErrCost = errors.New("fairq: cost out of range")
)

// FullError says how full the queue was that refused a push. [errors.Is] reports it as [ErrFull],
// and if PerKey is true as [ErrKeyFull] too.
type FullError struct {
	Len    int  // items queued, or, if PerKey is true, items queued under the pushing key
	PerKey bool // the limit is one for the key

	// Limit is the limit that was hit: Capacity, or, if PerKey is true, KeyCapacity or the key's
	// share at that moment. A share shrinks as other keys push, and may be less than Len.
	Limit int
}

// Error returns the length and the limit.
func (e *FullError) Error() string {
	switch {
	case !e.PerKey:
		return fmt.Sprintf("%v: it holds %d, the limit is %d", ErrFull, e.Len, e.Limit)
	case e.Len > e.Limit:
		return fmt.Sprintf("%v: it holds %d, and its share, which shrinks as others come, is %d now",
			ErrKeyFull, e.Len, e.Limit)
	default:
		return fmt.Sprintf("%v: it holds %d, its limit is %d now", ErrKeyFull, e.Len, e.Limit)
	}
}

// Unwrap returns ErrFull or ErrKeyFull.
func (e *FullError) Unwrap() error {
	if e.PerKey {
		return ErrKeyFull
	}
	return ErrFull
}
