package metrics

import "github.com/fairq/fairq"

// Of returns the metrics of a Stats.
func Of(stats any) []Metric { return of(stats, true) }

// Choose returns the keys of some that are told of after others were.
func Choose(last *map[string]bool, n int, first ...string) (chosen []string) {
	var stats []fairq.KeyStat[string]
	for _, key := range first {
		stats = append(stats, fairq.KeyStat[string]{Key: key})
	}
	for _, s := range choose(last, stats, n) {
		chosen = append(chosen, s.Key)
	}
	return chosen
}
