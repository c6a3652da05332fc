package admit

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/fairshare"
	"github.com/fairq/fairq/internal/printable"
)

// Stats has the counters and gauges of a [Limiter].
type Stats struct {
	Limit   int  `json:"limit"`   // number of permits
	Held    int  `json:"held"`    // permits that are held; more than Limit after SetLimit
	Waiting int  `json:"waiting"` // calls of Acquire that wait
	Keys    int  `json:"keys"`    // keys that hold permits or wait
	Closed  bool `json:"closed"`

	Admitted uint64 `json:"admitted"` // permits given since the Limiter was made
	Refused  uint64 `json:"refused"`  // calls that returned ErrFull

	// OldestWait is how long the first waiting call has waited.
	OldestWait time.Duration `json:"oldest_wait_ns"`

	// Level is the number of units in the budget, below 0 if too many were taken. It is 0 without
	// a Rate.
	Level float64 `json:"level"`
}

// String shows the fields that are not zero.
func (s Stats) String() string { return printable.Fields(s) }

// KeyStat has the counters and gauges of one key of a [Limiter].
type KeyStat[K comparable] struct {
	Key        K             `json:"key"`
	Weight     int           `json:"weight"` // when it came last
	Held       int           `json:"held"`
	Waiting    int           `json:"waiting"`
	OldestWait time.Duration `json:"oldest_wait_ns"`

	// Admitted and Refused are as in [Stats], and Used is the charge of the key: nanoseconds of
	// permits while a call waited, or units with a Rate. All three restart at 0 when the key is
	// forgotten.
	Admitted uint64  `json:"admitted"`
	Refused  uint64  `json:"refused"`
	Used     float64 `json:"used"`
}

// String shows the Key and the fields that are not zero.
func (s KeyStat[K]) String() string { return printable.Fields(s) }

// Stats returns counters and gauges of one moment. It is O(keys), some nanoseconds for each, with
// the lock held.
func (l *Limiter[K]) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.refillLocked()
	s := l.counts
	s.Limit, s.Keys = l.limit, l.shares.Active()
	if l.budget.rate > 0 {
		s.Level = l.budget.level
	}
	for k := range l.shares.All {
		s.OldestWait = max(s.OldestWait, k.Data.oldest(now))
	}
	return s
}

// KeyStats returns the first n of the active keys and of the remembered idle ones. The orders are:
// by waiting calls, then held permits; by the wait of the first call; by the charge, then
// admissions; or by refusals. If there are fewer keys, it returns all. It is O(keys · log keys);
// the lock is held for O(keys), some nanoseconds for each.
func (l *Limiter[K]) KeyStats(n int, by fairq.KeyOrder) []KeyStat[K] {
	stats := l.keyStats()
	slices.SortFunc(stats, func(a, b KeyStat[K]) int {
		switch by {
		case fairq.ByOldest:
			return cmp.Compare(b.OldestWait, a.OldestWait)
		case fairq.ByServed:
			return cmp.Or(cmp.Compare(b.Used, a.Used), cmp.Compare(b.Admitted, a.Admitted))
		case fairq.ByRefused:
			return cmp.Compare(b.Refused, a.Refused)
		}
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.Held, a.Held))
	})
	return stats[:max(0, min(n, len(stats)))]
}

func (l *Limiter[K]) keyStats() (stats []KeyStat[K]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Since(l.epoch)
	for k := range l.shares.All {
		stats = append(stats, keyStat(k, now))
	}
	return stats
}

// KeyStat returns the stats of one key; every field but Key is zero if the key is unknown. It is
// O(1).
func (l *Limiter[K]) KeyStat(key K) KeyStat[K] {
	if l.hashes {
		hash(key)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := l.shares.Find(key); k != nil {
		return keyStat(k, time.Since(l.epoch))
	}
	return KeyStat[K]{Key: key}
}

func keyStat[K comparable](k *fairshare.Key[K, line[K]], now time.Duration) KeyStat[K] {
	return KeyStat[K]{
		Key: k.Key, Weight: k.Weight(), Held: k.Held(), Waiting: k.Waiting(),
		OldestWait: k.Data.oldest(now),
		Admitted:   k.Data.admitted, Refused: k.Data.refused, Used: k.Data.used,
	}
}

// oldest returns how long the first of the line has waited.
func (l *line[K]) oldest(now time.Duration) time.Duration {
	if l.first == nil {
		return 0
	}
	return now - l.first.came
}

// RetryAfter returns after how long a call refused with err might be admitted, for a header or a
// reply: a second to a minute. It is the time that the waiting calls will take at the recent rate
// of admissions. If the key's own share is full, only the calls of that key count.
func (l *Limiter[K]) RetryAfter(err error) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	ahead := l.counts.Waiting + 1
	var full *fairq.FullError
	if errors.As(err, &full) && full.PerKey {
		ahead = min(ahead, (full.Len+1)*max(1, l.shares.Active()))
	}
	interval := max(l.interval, l.shares.Clock(time.Since(l.epoch))-l.admitted)
	return time.Duration(min(max(1, float64(ahead)*interval.Seconds()), 60) * float64(time.Second))
}
