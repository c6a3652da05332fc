package rows

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/fairq/fairq/internal/driver"
)

// Stats implements [driver.Backend].
func (b *backend) Stats(ctx context.Context) (s driver.Stats, err error) {
	var count keyCount
	from, begin := "", time.Now()
	plan := func(_ *queue, p *wants) { p.Counts = true }
	err = b.call(ctx, "Stats", call{order: puts, plan: plan, run: func(u *unit) error {
		tasks := must(u.v.Counts())
		s = u.stats // with what this transaction has done before
		s.Ready, s.Delayed, s.Taken = tasks[driver.Ready], tasks[driver.Delayed], tasks[driver.Taken]
		s.Buried, s.Held = tasks[driver.Buried], tasks[driver.Held]
		s.Counted = u.q.settings.Counted(&tasks)
		s.Capacity, s.Paused = u.q.settings.Capacity, u.head.Paused
		if count, from = u.q.keyCount, ""; !time.Now().Before(count.until) {
			count.keys, from = must2(u.v.CountKeys("", pageSize))
		}
		return nil
	}})
	for from != "" && err == nil {
		err = b.call(ctx, "Stats", call{order: puts, run: func(u *unit) error {
			n, next := must2(u.v.CountKeys(from, pageSize))
			u.onCommit(func() {
				if count.keys, from = count.keys+n, next; next == "" {
					end := time.Now()
					count.until = end.Add(20 * end.Sub(begin))
					u.q.keyCount = count
				}
			})
			return nil
		}})
	}
	s.Keys = count.keys
	return s, err
}

// keyCount is how many keys had tasks when the keys were last counted. They are counted in pages,
// so that no caller waits for the whole count. If there are several pages, the pauses between
// counts are so long that counting takes at most a twentieth of the time.
type keyCount struct {
	keys  int
	until time.Time // they are not counted again before
}

// KeyStats implements [driver.Backend].
func (b *backend) KeyStats(ctx context.Context, n int) (stats []driver.KeyStat, err error) {
	err = b.call(ctx, "KeyStats", call{order: puts, run: func(u *unit) error {
		u.saveKeys()
		stats = nil
		for _, k := range must(u.v.KeyStats(n)) {
			stats = append(stats, driver.KeyStat{
				Key: k.Key, Ready: k.Tasks[driver.Ready], Delayed: k.Tasks[driver.Delayed],
				Taken:  k.Tasks[driver.Taken],
				Buried: k.Tasks[driver.Buried], Held: k.Tasks[driver.Held], Paused: k.Paused,
				Oldest: timeOf(k.Oldest),
			})
		}
		u.addWaits(&stats, n)
		return nil
	}})
	return stats, err
}

// addWaits fills in until when keys wait. If n is 0, it adds up to a page of other keys that do.
func (u *unit) addWaits(stats *[]driver.KeyStat, n int) {
	if !u.keysWait() {
		return
	}
	known := map[string]int{}
	for i, k := range *stats {
		known[k.Key] = i
	}
	add := func(r Range) {
		for _, k := range must(u.v.Keys().Scan(r)) {
			i, ok := known[k.Key]
			if !ok {
				i, *stats = len(*stats), append(*stats, driver.KeyStat{Key: k.Key})
			}
			(*stats)[i].WaitsUntil, (*stats)[i].HeldUntil = timeOf(k.End()), timeOf(k.Hold)
		}
	}
	for names := range slices.Chunk(slices.Sorted(maps.Keys(known)), pageSize) {
		add(KeyRange(names))
	}
	if n == 0 {
		add(Range{Index: KeyUntil, Prefixes: at(bit(true)), Desc: true, Limit: pageSize})
	}
}
