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
// their primary keys, and of others the entries of indexes. Of ranges with Each, which are short,
// it then reads the rows.
func (v *view) Fetch(ranges ...rows.Range) error { return v.fetch(nil, ranges) }

func (v *view) fetch(spans []Span, ranges []rows.Range) error {
	var keys [][]byte
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
			spans = append(spans, v.span(&r, at))
		}
	}
	if err := v.tx.Fetch(keys, spans...); err != nil {
		return v.fail("read", nil, err)
	}
	keys = nil
	for _, r := range ranges {
		if !r.Each {
			continue
		}
		found, err := table[rows.Row]{v, &tasks}.find(&r)
		if err != nil {
			return err
		}
		for _, h := range found {
			keys = append(keys, v.withPayloads([][]byte{table[rows.Row]{v, &tasks}.primary(h.key)}, &r)...)
		}
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
