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

// KeyStats returns the first n of the active keys and of the remembered idle ones, or all if there
// are fewer. It is O(keys · log keys); the lock is held for O(keys), some nanoseconds for each.
// The orders are
//
//   - ByBacklog: by waiting calls, and then by held permits;
//   - ByOldest: by the wait of the key's first call;
//   - ByServed: by the charge, and then by admissions;
//   - ByRefused: by refusals.
//
// In a KeyStat the items are calls:
//
//   - Backlog is the number of waiting calls, OldestAge the wait of the first one, and Taken the
//     number of held permits. Weight is that of the last call.
//   - Total counts since the key was last forgotten, and so does Recent. In these Served is the
//     number of admissions, and Cost is the charge: nanoseconds of permits while a call waited, or
//     units with a Rate.
func (l *Limiter[K]) KeyStats(n int, by fairq.KeyOrder) []fairq.KeyStat[K] {
	stats := l.keyStats()
	slices.SortFunc(stats, func(a, b fairq.KeyStat[K]) int {
		switch by {
		case fairq.ByOldest:
			return cmp.Compare(b.OldestAge, a.OldestAge)
		case fairq.ByServed:
			return cmp.Or(cmp.Compare(b.Total.Cost, a.Total.Cost),
				cmp.Compare(b.Total.Served, a.Total.Served))
		case fairq.ByRefused:
			return cmp.Compare(b.Total.Refused, a.Total.Refused)
		}
		return cmp.Or(cmp.Compare(b.Backlog, a.Backlog), cmp.Compare(b.Taken, a.Taken))
	})
	return stats[:max(0, min(n, len(stats)))]
}

func (l *Limiter[K]) keyStats() (stats []fairq.KeyStat[K]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Since(l.epoch)
	for k := range l.shares.All {
		stats = append(stats, keyStat(k, now))
	}
	return stats
}

// KeyStat returns the stats of one key, as KeyStats does; every field but Key is zero if the key
// is unknown. It is O(1).
func (l *Limiter[K]) KeyStat(key K) fairq.KeyStat[K] {
	if l.hashes {
		hash(key)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := l.shares.Find(key); k != nil {
		return keyStat(k, time.Since(l.epoch))
	}
	return fairq.KeyStat[K]{Key: key}
}

func keyStat[K comparable](k *fairshare.Key[K, line[K]], now time.Duration) fairq.KeyStat[K] {
	counts := fairq.Counts{
		Served: k.Data.admitted, Refused: k.Data.refused, Cost: uint64(k.Data.used + 0.5),
	}
	return fairq.KeyStat[K]{
		Key: k.Key, Weight: k.Weight(), Taken: k.Held(), Backlog: k.Waiting(),
		OldestAge: k.Data.oldest(now), Total: counts, Recent: counts,
	}
}

// oldest returns how long the first of the line has waited.
func (l *line[K]) oldest(now time.Duration) time.Duration {
	if c := l.First(); c != nil {
		return now - c.Data.came
	}
	return 0
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
