package metrics

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/totals"
	"github.com/fairq/fairq/monitor"
)

// keyTable has the counters of keys in the order of events, and then two gauges.
var keyTable = []metric{
	{
		"fairq.key.served", "{item}", "Items of a key that were delivered, or tasks that were taken.",
		Counter, "key", "",
	},
	{
		"fairq.key.refused", "{item}", "Items of a key for which there was no room.", Counter,
		"key", "",
	},
	{
		"fairq.key.evicted", "{item}", "Items of a key that were dropped to make room.", Counter,
		"key", "",
	},
	{
		"fairq.key.cost", "", "What the items of a key that were delivered have cost.", Counter,
		"key", "",
	},
	{
		"fairq.key.items", "{item}",
		"Items of one of the keys with most of them, or tasks that are ready, delayed or held.", Sum,
		"key", "",
	},
	{
		"fairq.key.oldest.age", "s", "How long the oldest item or ready task of these has waited.",
		Gauge, "key", "",
	},
}

func keyMetrics() (all []Metric) {
	for _, m := range keyTable {
		all = append(all, m.empty())
	}
	return all
}

// other is the label of all keys without one of their own.
const other = "other"

// A key gets a label when it has at least minShare of the items that its source has served or
// refused since the last look. The label stays until the key has had less for the time keep.
// Labels are few because each one costs a metrics system memory.
const (
	minShare = 0.01
	keep     = time.Hour
)

// events are the counters of a key: served, refused, evicted, and the cost.
type events [4]uint64

func eventsOf(c fairq.Counts) events { return events{c.Served, c.Refused, c.Evicted, c.Cost} }

// since returns the difference to earlier counts, or all counts if the counting has restarted.
func (e events) since(last events) events {
	for i := range e {
		if e[i] >= last[i] {
			e[i] -= last[i]
		}
	}
	return e
}

func (e events) plus(d events) events {
	for i := range e {
		e[i] += d[i]
	}
	return e
}

// keyValues has the exported values of a source's keys. The values in keys, gone and other sum up
// to the counts of the source.
type keyValues struct {
	total events
	last  map[string]events // of the keys that are counted
	keys  map[string]*labelled
	gone  events // the values of keys that lost their label
	other events
}

type labelled struct {
	value events
	until time.Time
}

// add counts the events since the last look.
func (t *keyValues) add(total events, stats []fairq.KeyStat[string], n int, now time.Time) {
	grown := total.since(t.total)
	t.total = total
	last := t.last
	t.last = make(map[string]events, len(stats))
	share := map[string]float64{}
	var most []string
	for _, k := range stats {
		counted := eventsOf(k.Total)
		lately := counted.since(last[k.Key])
		t.last[k.Key] = counted
		for i := range 2 { // served and refused
			if grown[i] > 0 {
				share[k.Key] = max(share[k.Key], float64(lately[i])/float64(grown[i]))
			}
		}
		most = append(most, k.Key)
	}
	for key, l := range t.keys {
		if now.After(l.until) && share[key] < minShare {
			t.gone = t.gone.plus(l.value)
			delete(t.keys, key)
		}
	}
	slices.SortFunc(most,
		func(a, b string) int { return cmp.Or(cmp.Compare(share[b], share[a]), cmp.Compare(a, b)) })
	for _, key := range most {
		l := t.keys[key]
		if share[key] >= minShare {
			if l == nil && len(t.keys) < n && key != other {
				l = &labelled{}
				t.keys[key] = l
			}
			if l != nil {
				l.until = now.Add(keep)
			}
		}
		if l != nil {
			l.value = l.value.plus(t.last[key].since(last[key]))
		}
	}
	named := t.gone
	for _, l := range t.keys {
		named = named.plus(l.value)
	}
	for i := range total { // a key may have been served since the source was asked
		t.other[i] = max(t.other[i], total[i]-min(total[i], named[i]))
	}
}

// metrics returns the metrics of the keys of a source.
func (t *keyValues) metrics(
	ctx context.Context, s *monitor.Source, stats any, n int, isUp bool,
) []Metric {
	keys, _ := s.KeyStats(ctx, math.MaxInt32, fairq.ByServed) // a closed queue has none
	refused, _ := s.KeyStats(ctx, math.MaxInt32, fairq.ByRefused)
	for _, k := range refused {
		if k.Total.Served == 0 { // otherwise it is among the keys served
			keys = append(keys, k)
		}
	}
	if t.keys == nil {
		t.keys = map[string]*labelled{}
	}
	m := keyMetrics()
	for i := range m {
		m[i].Values = map[string]float64{}
	}
	if len(keys)+len(t.keys) > 0 {
		t.add(eventsOf(totals.Of(stats)), keys, n, time.Now())
		for i := range t.other {
			m[i].Values[other] = float64(t.other[i])
			for key, l := range t.keys {
				m[i].Values[key] = float64(l.value[i])
			}
		}
	}
	longest, _ := s.KeyStats(ctx, n, fairq.ByBacklog)
	for _, k := range longest {
		if k.Backlog > 0 && isUp {
			m[4].Values[k.Key], m[5].Values[k.Key] = float64(k.Backlog), k.OldestAge.Seconds()
		}
	}
	return m
}

func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }
