package kv

import (
	"slices"

	"github.com/fairq/fairq/store/internal/rows"
)

// primaryLen is the number of fields in each primary key.
var primaryLen = map[rows.Index]int{
	rows.TaskID: 1, rows.KeyName: 1, rows.ServedLine: 2, rows.ConsumerNumber: 1, rows.GroupName: 1,
	rows.OutcomeKey: 1, rows.HistoryID: 1, rows.TurnLine: 4,
}

// primaryKeys returns the keys of a range that names each row by its primary key, nil for any
// other range.
func (v *view) primaryKeys(r *rows.Range) [][]byte {
	notPrimary := func(p rows.Tuple) bool { return len(p) != primaryLen[r.Index] }
	if r.Prefixes == nil || r.Only != (rows.Only{}) || slices.ContainsFunc(r.Prefixes, notPrimary) {
		return nil
	}
	return v.prefixes(r)
}

// Fetch implements rows.View. In one exchange it reads the rows that ranges name by primary key,
// and the index entries of other ranges. In a second exchange it reads the rows to which these
// entries lead, for ranges of tasks with Each, which are short.
func (v *view) Fetch(ranges ...rows.Range) error { return v.fetch(nil, ranges) }

// fetch is Fetch, and reads further spans in the first exchange.
func (v *view) fetch(spans []Span, ranges []rows.Range) error {
	var keys [][]byte
	for _, r := range ranges {
		rowKeys, takes := v.primaryKeys(&r), v.takes(&r)
		if takes {
			rowKeys = v.likelyTasks(r.Limit)
			r.Limit *= v.head.lanes.window()
		}
		if keys = append(keys, v.addPayloadKeys(rowKeys, &r)...); rowKeys != nil && !takes {
			continue
		}
		for _, at := range v.prefixes(&r) {
			spans = append(spans, v.span(&r, at))
		}
		if r.Index == rows.TaskLine { // of each line it reads the last task
			for _, p := range r.Prefixes {
				last := v.lastPut(rows.Line{Key: p[0].(string), Priority: int(p[1].(int64))})
				keys = append(keys, appendInt(v.index(rows.TaskID), int64(last)))
			}
		}
	}
	if err := v.tx.Fetch(keys, spans...); err != nil {
		return v.fail("read", nil, err)
	}
	keys = nil
	for _, r := range ranges {
		if !r.Each || primaryLen[r.Index] > 0 {
			continue
		}
		found, err := table[rows.Row]{v, &tasks}.find(&r)
		if err != nil {
			return err
		}
		for _, h := range found {
			keys = append(keys, v.addPayloadKeys([][]byte{table[rows.Row]{v, &tasks}.rowKey(h.key)}, &r)...)
		}
	}
	return v.fail("read", nil, v.tx.Fetch(keys))
}

// addPayloadKeys appends the keys of the payloads to the keys of a range, if it asks for payloads.
func (v *view) addPayloadKeys(keys [][]byte, r *rows.Range) [][]byte {
	if r.Payload {
		for _, key := range keys {
			keys = append(keys, v.payloadKey(uintAt(last(key, 1))))
		}
	}
	return keys
}
