package metrics

import (
	"fmt"
	"hash/fnv"
	"strings"
	"sync"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/printable"
)

func keyMetrics() []Metric {
	return []Metric{
		{Name: "fairq.key.served", Unit: "{item}", Help: "Items of a key that were delivered, or tasks that were taken or started.", Kind: Counter, Attribute: "key"},
		{Name: "fairq.key.refused", Unit: "{item}", Help: "Items of a key for which there was no room.", Kind: Counter, Attribute: "key"},
		{Name: "fairq.key.evicted", Unit: "{item}", Help: "Items of a key that were dropped to make room.", Kind: Counter, Attribute: "key"},
		{Name: "fairq.key.cost", Help: "What the items of a key that were delivered have cost.", Kind: Counter, Attribute: "key"},
	}
}

// heaviest returns a function that tells of n keys. It keeps to those that it has told of as long
// as they are among the first 2*n: each key that a system has ever been told of costs it memory.
func heaviest[K comparable](n int, counts func(n int) []fairq.KeyCount[K]) func() []Metric {
	if n <= 0 {
		return func() []Metric { return nil }
	}
	var mu sync.Mutex // protects told
	told := map[K]bool{}
	choose := func(first []fairq.KeyCount[K]) (chosen []fairq.KeyCount[K]) {
		mu.Lock()
		defer mu.Unlock()
		for _, again := range []bool{true, false} {
			for _, c := range first {
				if told[c.Key] == again && len(chosen) < n {
					chosen = append(chosen, c)
				}
			}
		}
		clear(told)
		for _, c := range chosen {
			told[c.Key] = true
		}
		return chosen
	}
	return func() []Metric {
		m := keyMetrics()
		for i := range m {
			m[i].Values = map[string]float64{}
		}
		for _, c := range choose(counts(2 * n)) {
			text := keyText(c.Key)
			for i, n := range [...]uint64{c.Total.Served, c.Total.Refused, c.Total.Evicted, c.Total.Cost} {
				m[i].Values[text] += float64(n)
			}
		}
		return m
	}
}

// maxKeyText is how many bytes are told of a key.
const maxKeyText = 100

// keyText returns a key as valid UTF-8 that is not long.
func keyText(key any) string {
	text := printable.Key(key)
	if len(text) > maxKeyText {
		h := fnv.New64a()
		_, _ = h.Write([]byte(text))
		text = fmt.Sprintf("%s... %016x", text[:maxKeyText], h.Sum64())
	}
	return valid(text)
}

func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }
