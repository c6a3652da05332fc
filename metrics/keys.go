package metrics

import (
	"context"
	"strings"
	"sync"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/monitor"
)

func keyMetrics() []Metric {
	return []Metric{
		{Name: "fairq.key.served", Unit: "{item}", Help: "Items of a key that were delivered, or tasks that were taken.", Kind: Counter, Attribute: "key"},
		{Name: "fairq.key.refused", Unit: "{item}", Help: "Items of a key for which there was no room.", Kind: Counter, Attribute: "key"},
		{Name: "fairq.key.evicted", Unit: "{item}", Help: "Items of a key that were dropped to make room.", Kind: Counter, Attribute: "key"},
		{Name: "fairq.key.cost", Help: "What the items of a key that were delivered have cost.", Kind: Counter, Attribute: "key"},
	}
}

// told is the keys of a source whose metrics were returned last. They stay as long as they are
// among the first 2n, because each key that a system has ever been told of costs it memory.
type told struct {
	mu              sync.Mutex
	served, refused map[string]bool
}

// choose returns n of the first 2n keys of an order, those first that were chosen last.
func choose(last *map[string]bool, first []fairq.KeyStat[string], n int) (chosen []fairq.KeyStat[string]) {
	now := map[string]bool{}
	for _, again := range []bool{true, false} {
		for _, k := range first {
			if (*last)[k.Key] == again && !now[k.Key] && len(chosen) < n {
				now[k.Key], chosen = true, append(chosen, k)
			}
		}
	}
	*last = now
	return chosen
}

func (t *told) metrics(ctx context.Context, s *monitor.Source, n int) []Metric {
	m := keyMetrics()
	for i := range m {
		m[i].Values = map[string]float64{}
	}
	served, _ := s.KeyStats(ctx, 2*n, fairq.ByServed) // there are none of a queue that is closed
	refused, _ := s.KeyStats(ctx, 2*n, fairq.ByRefused)
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range append(choose(&t.served, served, n), choose(&t.refused, refused, n)...) {
		for i, n := range [...]uint64{k.Total.Served, k.Total.Refused, k.Total.Evicted, k.Total.Cost} {
			m[i].Values[k.Key] = float64(n)
		}
	}
	return m
}

func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }
