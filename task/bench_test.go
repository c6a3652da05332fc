package task_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/memory"
)

// work is the payload in all benchmarks, as in those of package fairq.
type work struct{ user string }

func users(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("user-%d", i)
	}
	return all
}

func open(b *testing.B, options *task.Options[work]) *task.Queue[work] {
	q, err := task.Open[work](b.Context(), new(memory.Store), "bench", options)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, q.Close(context.Background())) })
	return q
}

// cycle puts, takes and acks one task for each round of the loop, for one user after the other.
func cycle(b *testing.B, q *task.Queue[work], users []string) {
	ctx := b.Context()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		user := users[i%len(users)]
		if _, err := q.Put(ctx, user, work{user}, task.PutOptions{}); err != nil {
			b.Fatal(err)
		}
		t, err := q.Take(ctx)
		if err != nil {
			b.Fatal(err)
		}
		if err := t.Ack(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkTask times putting, taking and acking one task. Each user has one more task queued. The
// baseline is pushing and popping an item.
func BenchmarkTask(b *testing.B) {
	for _, keys := range []int{1, 100, 10_000} {
		users := users(keys)
		b.Run(fmt.Sprintf("keys=%d/of=FairQueue", keys), func(b *testing.B) {
			q := fairq.New(func(w work) string { return w.user }, &fairq.Options[string, work]{Capacity: fairq.Unbounded})
			for _, u := range users {
				require.NoError(b, q.Push(work{u}))
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				_ = q.Push(work{users[i%keys]})
				q.Pop()
			}
		})
		b.Run(fmt.Sprintf("keys=%d/of=task", keys), func(b *testing.B) {
			q := open(b, nil)
			for _, u := range users {
				_, err := q.Put(b.Context(), u, work{u}, task.PutOptions{})
				require.NoError(b, err)
			}
			cycle(b, q, users)
		})
	}
}

// BenchmarkBusyKeys times the same with MaxInFlightPerKey 1, for 100 users, while 1,000 others are
// busy: each has one task taken and ten ready. The baseline has nobody busy.
func BenchmarkBusyKeys(b *testing.B) {
	for _, busy := range []int{0, 1_000} {
		b.Run(fmt.Sprintf("busy=%d", busy), func(b *testing.B) {
			q := open(b, &task.Options[work]{MaxInFlightPerKey: 1})
			for range 11 {
				for i := range busy {
					_, err := q.Put(b.Context(), fmt.Sprintf("busy-%d", i), work{}, task.PutOptions{})
					require.NoError(b, err)
				}
			}
			for range busy {
				_, err := q.Take(b.Context())
				require.NoError(b, err)
			}
			cycle(b, q, users(100))
		})
	}
}

// BenchmarkDelayed says how many bytes a task needs that is delayed, beside its payload, and how
// many goroutines a million of them.
func BenchmarkDelayed(b *testing.B) {
	const tasks = 1_000_000
	users := users(1000)
	for b.Loop() {
		q := open(b, nil)
		before, goroutines := heap(), runtime.NumGoroutine()
		for i := range tasks {
			_, err := q.Put(b.Context(), users[i%1000], work{}, task.PutOptions{Delay: time.Hour + time.Duration(i*7919%tasks)})
			require.NoError(b, err)
		}
		// Each payload is boxed: 16 bytes.
		b.ReportMetric((heap()-before)/tasks-16, "B/task")
		b.ReportMetric(float64(runtime.NumGoroutine()-goroutines), "goroutines")
		runtime.KeepAlive(q)
	}
}

func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// BenchmarkStats times Stats in a short and a long queue.
func BenchmarkStats(b *testing.B) {
	for _, tasks := range []int{10, 1_000_000} {
		q := open(b, nil)
		for i := range tasks {
			_, err := q.Put(b.Context(), fmt.Sprint(i%1000), work{}, task.PutOptions{})
			require.NoError(b, err)
		}
		b.Run(fmt.Sprintf("tasks=%d", tasks), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := q.Stats(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkKinds takes, acks and puts a task of a key that has one of each kind, with a filter that
// names all kinds.
func BenchmarkKinds(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("kinds=%d", n), func(b *testing.B) {
			q, ctx, kinds := open(b, nil), b.Context(), users(n)
			for _, kind := range kinds {
				_, err := q.Put(ctx, "key", work{}, task.PutOptions{Kind: kind})
				require.NoError(b, err)
			}
			c := q.NewConsumer(task.Filter{Kinds: kinds})
			b.ReportAllocs()
			for b.Loop() {
				t, _, err := c.TryTake(ctx)
				if err == nil {
					err = t.Ack(ctx)
				}
				if err == nil {
					_, err = q.Put(ctx, "key", work{}, task.PutOptions{Kind: t.Kind})
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkPutBesideList puts tasks while others list all 100,000, or none of them.
func BenchmarkPutBesideList(b *testing.B) {
	q, ctx := open(b, nil), b.Context()
	for i := range 100_000 {
		_, err := q.Put(ctx, fmt.Sprint(i%1000), work{}, task.PutOptions{})
		require.NoError(b, err)
	}
	for name, options := range map[string]task.ListOptions{"list=all": {Limit: 1 << 20}, "list=none": {Kind: new("none")}} {
		b.Run(name, func(b *testing.B) {
			ctx, cancel := context.WithCancel(ctx)
			var lists sync.WaitGroup
			lists.Go(func() {
				for ctx.Err() == nil {
					_, _ = q.List(ctx, options)
				}
			})
			var took []time.Duration
			for b.Loop() {
				begun := time.Now()
				if _, err := q.Put(ctx, "key", work{}, task.PutOptions{}); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(begun))
				time.Sleep(100 * time.Microsecond) // or they would take all the time that there is
			}
			cancel()
			lists.Wait()
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "p50-ns")
			b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "p99-ns")
		})
	}
}
