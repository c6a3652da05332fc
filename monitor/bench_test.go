package monitor_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/monitor"
)

// BenchmarkLook looks at queues of 1,000,000 items, and tells how long each of the calls takes that
// hold the lock of the queue: none of them holds it for longer than that.
func BenchmarkLook(b *testing.B) {
	for _, keys := range []int{1, 100, 1_000_000} {
		q := fairq.New(userOf, &fairq.Options[string, work]{Capacity: fairq.Unbounded, TrackWait: true, CountKeys: 1000})
		for i := range 1_000_000 {
			_ = q.Push(work{fmt.Sprint("user ", i%keys), 1})
		}
		for range 1000 {
			q.Pop()
		}
		source := monitor.FairQueue("jobs", q, nil)
		b.Run(fmt.Sprintf("keys=%d/whole", keys), func(b *testing.B) {
			for b.Loop() {
				_ = monitor.Look(source)
			}
		})
		for name, call := range map[string]func(){
			"Upcoming":  func() { q.Upcoming(1000) },
			"KeyCounts": func() { q.KeyCounts(100) },
			"KeyStat":   func() { q.KeyStat("user 0") },
		} {
			b.Run(fmt.Sprintf("keys=%d/lock-held-by-%s", keys, name), func(b *testing.B) {
				var took []float64
				for b.Loop() {
					begin := time.Now()
					call()
					took = append(took, time.Since(begin).Seconds()*1e6)
				}
				slices.Sort(took)
				b.ReportMetric(took[len(took)/2], "µs/median")
				b.ReportMetric(took[len(took)*99/100], "µs/p99")
			})
		}
	}
}
