package kv

import (
	"slices"

	"github.com/fairq/fairq/store/internal/rows"
)

// primaries are how many fields the primary keys have.
var primaries = map[rows.Index]int{
	rows.TaskID: 1, rows.KeyName: 1, rows.ServedLine: 2, rows.ConsumerNumber: 1, rows.GroupName: 1,
	rows.OutcomeKey: 1, rows.HistoryID: 1,
}

// points returns the keys of a range that names each row by its primary key, nil if it does not.
func (v *view) points(r *rows.Range) [][]byte {
	notPrimary := func(p rows.Tuple) bool { return len(p) != primaries[r.Index] }
	if r.Prefixes == nil || r.Only != (rows.Only{}) || slices.ContainsFunc(r.Prefixes, notPrimary) {
		return nil
	}
	return v.beginnings(r)
}

// Fetch implements rows.View. It reads all at once that is known by now: rows that are named by
// their primary keys, and of others the entries of indexes.
func (v *view) Fetch(ranges ...rows.Range) error { return v.fetch(nil, ranges) }

func (v *view) fetch(spans []Span, ranges []rows.Range) error {
	var keys [][]byte
	var all []values
	for _, r := range ranges {
		apart := v.takesApart(&r)
		points := v.points(&r)
		switch {
		case points == nil && apart:
			points = v.likely(r.Limit)
			r.Limit *= v.head.lanes.window()
		case points == nil && v.db.options.Taking == Staged && v.takes(&r):
			continue
		}
		if keys = append(keys, v.withPayloads(points, &r)...); points != nil && !apart {
			continue
		}
		for _, at := range v.beginnings(&r) {
			if r.Each == 0 {
				spans = append(spans, v.span(&r, at))
				continue
			}
			spans = append(spans, seek(at, at))
			all = append(all, values{at, at, r})
		}
	}
	if err := v.tx.Fetch(keys, spans...); err != nil {
		return v.fail("read", nil, err)
	}
	return v.fetchEach(all)
}

// values are those in a range of tasks with Each that come behind the key from.
type values struct {
	at, from []byte
	rows.Range
}

// fetchEach reads what there is for each value of some ranges, of which the first were sought. In
// one exchange it reads the entries of a value of each range, and seeks the next; in the last one
// it reads the rows.
func (v *view) fetchEach(all []values) error {
	var keys [][]byte
	for len(all) > 0 {
		var spans []Span
		left := all[:0]
		for _, next := range all {
			at, err := v.nextValue(next.from, next.at, next.Each)
			if err != nil {
				return err
			}
			if at == nil {
				continue
			}
			next.from = behind(at)
			spans = append(spans, v.span(&next.Range, at), seek(next.from, next.at))
			left = append(left, next)
		}
		if err := v.tx.Fetch(nil, spans...); err != nil {
			return v.fail("read", nil, err)
		}
		for i, next := range left {
			var found [][]byte
			for e, err := range v.scan(spans[2*i]) {
				if err != nil {
					return err
				}
				found = append(found, table[rows.Row]{v, &tasks}.primary(e.Key))
			}
			keys = append(keys, v.withPayloads(found, &next.Range)...)
		}
		all = left
	}
	return v.fail("read", nil, v.tx.Fetch(keys))
}

// withPayloads returns the keys of a range, and those of the payloads if it asks for these.
func (v *view) withPayloads(keys [][]byte, r *rows.Range) [][]byte {
	if r.Payload {
		for _, key := range keys {
			keys = append(keys, v.payload(uintAt(last(key, 1))))
		}
	}
	return keys
}
