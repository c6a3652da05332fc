package rows

import (
	"context"
	"time"

	"github.com/fairq/fairq/task/driver"
)

// Stats implements [driver.Backend].
func (b *backend) Stats(ctx context.Context) (s driver.Stats, err error) {
	err = b.call(ctx, "Stats", call{order: puts, plan: func(_ *queue, p *wants) { p.Counts = true }, run: func(u *unit) error {
		tasks := must(u.v.Counts())
		s = u.stats // with what this transaction has done before
		s.Ready, s.Delayed, s.Taken = tasks[driver.Ready], tasks[driver.Delayed], tasks[driver.Taken]
		s.Buried, s.Held = tasks[driver.Buried], tasks[driver.Held]
		s.Keys = u.countKeys()
		s.Counted = u.q.settings.Counted(&tasks)
		s.Capacity, s.Paused = u.q.settings.Capacity, u.head.Paused
		return nil
	}})
	if err != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.queue.stats, err
	}
	return s, nil
}

// keyCount is how many keys had tasks when they were counted last.
type keyCount struct {
	keys  int
	until time.Time // they are not counted again before
}

// cheapKeyCount is up to how many keys they are counted each time. If there are more, counting is
// rarer, so that it takes a twentieth of the time at most.
const cheapKeyCount = 1000

// countKeys returns how many keys have tasks, or had not long ago. The database looks up one key
// after the other, so the cost is proportional to their number.
func (u *unit) countKeys() int {
	known, begin := &u.q.keyCount, time.Now()
	if begin.Before(known.until) {
		return known.keys
	}
	known.keys = must(u.v.CountKeys())
	if known.keys > cheapKeyCount {
		end := time.Now()
		known.until = end.Add(20 * end.Sub(begin))
	}
	return known.keys
}

// KeyStats implements [driver.Backend].
func (b *backend) KeyStats(ctx context.Context, n int) (stats []driver.KeyStat, err error) {
	err = b.call(ctx, "KeyStats", call{order: puts, run: func(u *unit) error {
		u.saveKeys()
		stats = nil
		for _, k := range must(u.v.KeyStats(n)) {
			stats = append(stats, driver.KeyStat{
				Key: k.Key, Ready: k.Tasks[driver.Ready], Delayed: k.Tasks[driver.Delayed], Taken: k.Tasks[driver.Taken],
				Buried: k.Tasks[driver.Buried], Held: k.Tasks[driver.Held], Paused: k.Paused, Oldest: timeOf(k.Oldest),
			})
		}
		return nil
	}})
	return stats, err
}
