package monitor

import (
	"cmp"
	"slices"
	"time"

	"github.com/fairq/fairq"
)

// keyRow tells how a key is doing.
type keyRow struct {
	Key      string `json:"key"`
	Len      int    `json:"len"`              // items queued; 0 for keys of tasks, which are not counted
	Upcoming int    `json:"upcoming"`         // those among what leaves next
	Weight   int    `json:"weight,omitempty"` // of keys of tasks, if something of them leaves soon

	Cost uint64 `json:"cost,omitempty"` // of what is queued
	// OldestAge is there with TrackWait; of tasks it is that of the first that leaves.
	OldestAge time.Duration `json:"oldest_age_ns,omitempty"`
	Wait      *quantiles    `json:"wait,omitempty"` // with TrackWait

	Share float64 `json:"share"`      // of the service lately, 0 to 1
	Fair  float64 `json:"fair_share"` // what it would be if the service were shared fairly

	Total  fairq.Counts `json:"total"`
	Recent fairq.Counts `json:"recent"`
	Missed uint64       `json:"missed"`

	first int // position of its first item among what leaves next
}

// leaves counts an item that is the one at a position among what leaves next, and tells whether it
// is the first.
func (k *keyRow) leaves(position int) (isFirst bool) {
	if k.Upcoming++; k.Upcoming == 1 {
		k.first = position
	}
	return k.Upcoming == 1
}

// waits tells whether the key has something queued.
func (k *keyRow) waits() bool { return k.Len > 0 || k.Upcoming > 0 }

func (k *keyRow) weight() int { return max(1, k.Weight) }

// quantiles of how long items have waited.
type quantiles struct {
	Half time.Duration `json:"p50_ns"`
	P90  time.Duration `json:"p90_ns"`
	P99  time.Duration `json:"p99_ns"`
}

func quantilesOf(h *fairq.Histogram) *quantiles {
	if h.Count == 0 {
		return nil
	}
	return &quantiles{h.Quantile(0.5), h.Quantile(0.9), h.Quantile(0.99)}
}

// keyRows are gathered while a source is looked at.
type keyRows[K comparable] struct {
	texts map[K]string
	rows  map[string]*keyRow
	keys  map[string]K // by text
}

func newKeyRows[K comparable](stats ...[]fairq.KeyStat[K]) *keyRows[K] {
	t := &keyRows[K]{map[K]string{}, map[string]*keyRow{}, map[string]K{}}
	for i := range stats {
		for j := range stats[i] {
			t.add(&stats[i][j])
		}
	}
	return t
}

// add fills in the row of a key.
func (t *keyRows[K]) add(s *fairq.KeyStat[K]) {
	row := t.of(s.Key)
	row.Len, row.Weight, row.Cost, row.OldestAge, row.Wait = s.Backlog, s.Weight, s.Cost, s.OldestAge, quantilesOf(&s.Wait)
	row.Total, row.Recent, row.Missed = s.Total, s.Recent, s.Missed
}

// of returns the row of a key.
func (t *keyRows[K]) of(key K) *keyRow {
	text, ok := t.texts[key]
	if !ok {
		text = keyText(any(key))
		t.texts[key] = text
	}
	row := t.rows[text]
	if row == nil {
		row = &keyRow{Key: text}
		t.rows[text], t.keys[text] = row, key
	}
	return row
}

// unclear returns the keys that cannot be told from their texts.
func (t *keyRows[K]) unclear() map[string]any {
	keys := map[string]any{}
	for text, key := range t.keys {
		if _, ok := keyOf[K](text); !ok {
			keys[text] = key
		}
	}
	return keys
}

// longest fills in the shares, and returns the rows of the keys with the longest backlog; if that is
// the same, those that leave first, and then those that were served most.
func (t *keyRows[K]) longest() []keyRow {
	rows := make([]keyRow, 0, len(t.rows))
	for _, row := range t.rows {
		rows = append(rows, *row)
	}
	share(rows)
	slices.SortFunc(rows, func(a, b keyRow) int {
		return cmp.Or(
			cmp.Compare(b.Len, a.Len), cmp.Compare(b.Upcoming, a.Upcoming),
			cmp.Compare(a.first, b.first), cmp.Compare(b.Share, a.Share), cmp.Compare(a.Key, b.Key),
		)
	})
	return slices.Clip(rows[:min(len(rows), maxKeys)])
}

// share fills in the shares: see the package documentation.
func share(rows []keyRow) {
	var cost, served, waiting, left float64
	for _, k := range rows {
		cost += float64(k.Recent.Cost)
		served += float64(k.Recent.Served)
	}
	left = 1
	for i := range rows {
		k := &rows[i]
		if cost > 0 {
			k.Share = float64(k.Recent.Cost) / cost
		} else if served > 0 {
			k.Share = float64(k.Recent.Served) / served
		}
		if k.waits() {
			waiting += float64(k.weight())
		} else {
			left -= k.Share
		}
	}
	for i := range rows {
		if k := &rows[i]; k.waits() {
			k.Fair = max(0, left*float64(k.weight())/waiting)
		} else {
			k.Fair = k.Share
		}
	}
}
