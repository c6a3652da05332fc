package monitor_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/monitor"
	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/memory"
)

// BenchmarkLook reads queues of 1,000,000 items, and of as many tasks in memory. It reports the
// time of each call that locks the queue, an upper bound of the time for which the call holds the
// lock.
func BenchmarkLook(b *testing.B) {
	for _, keys := range []int{1, 100, 1_000_000} {
		q := fairq.New(userOf,
			&fairq.Options[string, work]{Capacity: fairq.Unbounded, TrackWait: true, CountKeys: 1000})
		for i := range 1_000_000 {
			_ = q.Push(work{fmt.Sprint("user ", i%keys), 1})
		}
		for range 1000 {
			q.Pop()
		}
		look(b, fmt.Sprintf("items/keys=%d", keys), monitor.FairQueue("jobs", q, nil), map[string]func(){
			"Stats":     func() { q.Stats() },
			"Upcoming":  func() { q.Upcoming(1000) },
			"ByServed":  func() { q.KeyStats(100, fairq.ByServed) },
			"ByBacklog": func() { q.KeyStats(100, fairq.ByBacklog) },
			"KeyStat":   func() { q.KeyStat("user 0") },
		})
	}
	for _, keys := range []int{1, 100, 1_000_000} {
		q, err := task.Open[int](b.Context(), new(memory.Store), "jobs",
			&task.Options[int]{CountKeys: 1000})
		require.NoError(b, err)
		for i := range 1_000_000 {
			id, err := q.Put(b.Context(), fmt.Sprint("user ", i%keys), i, task.PutOptions{})
			require.NoError(b, err)
			if i%100 == 0 {
				require.NoError(b, q.Bury(b.Context(), id, errors.New("no")))
			}
		}
		buried := task.ListOptions{State: task.Buried, NextFirst: true, Limit: 50}
		look(b, fmt.Sprintf("tasks/keys=%d", keys), monitor.TaskQueue("jobs", q, nil), map[string]func(){
			"Stats":    func() { _, _ = q.Stats(b.Context()) },
			"Upcoming": func() { _, _ = q.Upcoming(b.Context(), 1000) },
			"List":     func() { _, _ = q.List(b.Context(), buried) },
		})
	}
}

// look measures a look at a source, and the calls that it is made of.
func look(b *testing.B, name string, source *monitor.Source, calls map[string]func()) {
	b.Run(name+"/whole", func(b *testing.B) {
		for b.Loop() {
			_ = monitor.Look(source)
		}
	})
	for call, f := range calls {
		b.Run(name+"/"+call, func(b *testing.B) {
			var took []float64
			for b.Loop() {
				begin := time.Now()
				f()
				took = append(took, time.Since(begin).Seconds()*1e6)
			}
			slices.Sort(took)
			b.ReportMetric(took[len(took)/2], "µs/median")
			b.ReportMetric(took[len(took)*99/100], "µs/p99")
		})
	}
}
