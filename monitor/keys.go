package monitor

import (
	"cmp"
	"maps"
	"reflect"
	"slices"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/each"
)

// keyRow has the numbers of a key. The backlog of a limiter is the calls that wait.
type keyRow struct {
	each.KeyRow

	// Share is the key's part of the service in the last minute, 0 to 1. With costs it is the part
	// of the cost.
	Share  float64 `json:"share"`
	Minute *minute `json:"minute,omitempty"`

	first bool // among the first keys of an order
}

// keyOrders are the numbers by which rows are in order, the greatest first, by the name that a
// request gives.
var keyOrders = map[string]func(k *keyRow) uint64{
	"backlog": func(k *keyRow) uint64 { return uint64(k.Backlog) },
	"oldest":  func(k *keyRow) uint64 { return uint64(k.OldestAge) },
	"served":  func(k *keyRow) uint64 { return k.Recent.Served },
	"refused": func(k *keyRow) uint64 { return k.Recent.Refused },
	"paused": func(k *keyRow) uint64 {
		if k.Paused {
			return 1
		}
		return 0
	},
}

// inOrder returns rows in an order. Backlog and age order rows that are equal in it.
func inOrder(rows []keyRow, by string) []keyRow {
	of := keyOrders[by]
	return slices.SortedFunc(slices.Values(rows), func(a, b keyRow) int {
		return cmp.Or(cmp.Compare(of(&b), of(&a)), cmp.Compare(b.Backlog, a.Backlog),
			cmp.Compare(b.OldestAge, a.OldestAge), cmp.Compare(a.Key, b.Key))
	})
}

// keyRows are gathered while a source is looked at.
type keyRows[K comparable] struct {
	texts map[K]string
	rows  map[string]*keyRow
	keys  map[string]K // by text, including those of the next items
}

// newKeyRows returns the rows of the first keys of some orders.
func newKeyRows[K comparable](orders ...[]fairq.KeyStat[K]) *keyRows[K] {
	t := &keyRows[K]{map[K]string{}, map[string]*keyRow{}, map[string]K{}}
	for _, stats := range orders {
		for i := range stats {
			t.add(&stats[i], i < pageKeys)
		}
	}
	return t
}

// firstRows returns the rows of the first keys of all orders.
func firstRows[K comparable](
	keyStats func(n int, by fairq.KeyOrder) []fairq.KeyStat[K],
) *keyRows[K] {
	var orders [fairq.ByRefused + 1][]fairq.KeyStat[K]
	for by := range orders {
		orders[by] = keyStats(maxKeys, fairq.KeyOrder(by))
	}
	return newKeyRows(orders[:]...)
}

// add fills in the row of a key. What one order does not know of a key's tasks, another one may.
func (t *keyRows[K]) add(s *fairq.KeyStat[K], first bool) {
	row := t.of(s.Key)
	now, was := shownStat(s, row.Key), reflect.ValueOf(&row.KeyStat).Elem()
	for i := range was.NumField() {
		if f := reflect.ValueOf(now).Field(i); !f.IsZero() {
			was.Field(i).Set(f)
		}
	}
	row.first = row.first || first
}

// shownStats returns the numbers of keys as they are shown.
func shownStats[K comparable](
	stats []fairq.KeyStat[K], err error,
) (all []fairq.KeyStat[string], _ error) {
	for i := range stats {
		all = append(all, shownStat(&stats[i], keyText(any(stats[i].Key))))
	}
	return all, err
}

// shownStat returns the numbers of a key that is shown as that text.
func shownStat[K comparable](s *fairq.KeyStat[K], text string) fairq.KeyStat[string] {
	return fairq.KeyStat[string]{
		Key: text, Backlog: s.Backlog, Taken: s.Taken, Buried: s.Buried, Paused: s.Paused,
		WaitsUntil: s.WaitsUntil, HeldUntil: s.HeldUntil, Rounds: s.Rounds, Weight: s.Weight,
		Cost: s.Cost, OldestAge: s.OldestAge, Wait: s.Wait, Total: s.Total, Recent: s.Recent,
		Missed: s.Missed,
	}
}

// text returns how a key is shown.
func (t *keyRows[K]) text(key K) string {
	text, ok := t.texts[key]
	if !ok {
		text = keyText(any(key))
		t.texts[key], t.keys[text] = text, key
	}
	return text
}

// of returns the row of a key.
func (t *keyRows[K]) of(key K) *keyRow {
	text := t.text(key)
	row := t.rows[text]
	if row == nil {
		row = new(keyRow)
		row.Key = text
		t.rows[text] = row
	}
	return row
}

// unclear returns the keys whose texts do not determine them.
func (t *keyRows[K]) unclear() map[string]any {
	keys := map[string]any{}
	for text, key := range t.keys {
		if _, ok := keyOf[K](text); !ok {
			keys[text] = key
		}
	}
	return keys
}

// longest returns the rows, those of the keys with the longest backlog first.
func (t *keyRows[K]) longest() []keyRow {
	rows := make([]keyRow, 0, len(t.rows))
	for row := range maps.Values(t.rows) {
		rows = append(rows, *row)
	}
	return inOrder(rows, "backlog")
}
