package task_test

import (
	"context"
	"fmt"
	"testing"

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
			q := fairq.New(func(w work) string { return w.user },
				&fairq.Options[string, work]{Capacity: fairq.Unbounded})
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
