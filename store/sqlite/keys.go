package sqlite

import (
	"maps"
	"slices"
	"strconv"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/store/internal/columns"
	"github.com/fairq/fairq/store/internal/rows"
)

// KeyStats implements rows.View. It reads all tasks of the queue, or if n is 0 those of paused
// keys.
func (v *view) KeyStats(n int) ([]rows.Key, error) {
	var all []rows.Key
	stats := keyStats
	if n == 0 {
		stats = pausedStats
	}
	err := v.session.each(stats, func(c *cells) {
		k := rows.Key{Key: c.text()}
		for state := driver.Ready; state <= driver.Held; state++ {
			k.Tasks[state] = int(c.int())
			k.Tasks[0] += k.Tasks[state]
		}
		k.Oldest = c.int()
		all = append(all, k)
	}, v.queue)
	if err != nil {
		return all, err
	}
	paused := map[string]bool{}
	err = v.session.each(keyPaused, func(c *cells) { paused[c.text()] = true }, v.queue)
	first := all[:0]
	for i, k := range all {
		if k.Paused = paused[k.Key]; k.Paused || i < n {
			first = append(first, k)
		}
		delete(paused, k.Key)
	}
	for _, key := range slices.Sorted(maps.Keys(paused)) {
		first = append(first, rows.Key{Key: key, Paused: true})
	}
	return first, err
}

// CountKeys implements rows.View.
func (v *view) CountKeys(from string, n int) (keys int, next string, err error) {
	err = v.session.each(countKeys, func(c *cells) {
		if next, keys = c.text()+"\x00", keys+1; keys < n {
			next = ""
		}
	}, v.queue, from, int64(n))
	return keys, next, err
}

// Ended implements rows.View. A mark is the greatest number given, because everything written
// later gets a greater one.
func (v *view) Ended(mark string) (ended []*rows.Outcome, next string, err error) {
	next = strconv.FormatUint(v.head.number, 10)
	if mark == "" {
		return nil, next, nil
	}
	since, err := strconv.ParseInt(mark, 10, 64)
	if err == nil {
		row := columns.Outcomes.Cells()
		defer columns.Outcomes.Done(row)
		err = v.session.each(selectEnded, reader(row, &ended), v.queue, since)
	}
	return ended, next, err
}
