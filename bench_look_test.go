package fairq_test

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"testing"

	"golang.org/x/exp/stats"

	"github.com/fairq/fairq"
)

// BenchmarkSnapshot takes a snapshot of 100,000 items in 10,000 keys.
func BenchmarkSnapshot(b *testing.B) {
	all := users(10_000)
	q := fairq.New(user, &fairq.Options[string, work]{Capacity: fairq.Unbounded})
	for i := range 100_000 {
		_ = q.Push(all[i%len(all)])
	}
	// While the collector marks, copying pointers costs more. So it runs between the snapshots, and
	// then whenever it likes.
	for name, percent := range map[string]int{"lock-held": -1, "lock-held-during-GC": 100} {
		b.Run(name, func(b *testing.B) {
			defer debug.SetGCPercent(debug.SetGCPercent(percent))
			var held []float64
			for i := 0; b.Loop(); i++ {
				if percent < 0 && i%50 == 0 {
					runtime.GC()
				}
				held = append(held, q.TimeSnapshot().Seconds()*1e6)
			}
			most := stats.Quantiles(held, 0.5, 0.99)
			b.ReportMetric(most[0], "µs/median")
			b.ReportMetric(most[1], "µs/p99")
		})
	}
	b.Run("whole", func(b *testing.B) {
		for b.Loop() {
			q.Snapshot()
		}
	})
}

// BenchmarkLook asks small and large queues for their numbers.
func BenchmarkLook(b *testing.B) {
	for _, n := range []int{10, 1_000_000} {
		all := users(n)
		q := fairq.New(user, &fairq.Options[string, work]{Capacity: fairq.Unbounded, TrackWait: true})
		for _, w := range all {
			_ = q.Push(w)
		}
		for name, look := range map[string]func(){
			"Len":            func() { q.Len() },
			"Stats":          func() { q.Stats() },
			"KeyStats(10)":   func() { q.KeyStats(10, fairq.ByBacklog) },
			"KeyStat":        func() { q.KeyStat(all[n/2].user) },
			"Upcoming(1000)": func() { q.Upcoming(1000) },
		} {
			b.Run(fmt.Sprintf("%s/keys=%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					look()
				}
			})
		}
	}
}
