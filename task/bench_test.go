package task_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

type job struct {
	user string
	n    int
}

func names(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("user-%d", i)
	}
	return all
}

// BenchmarkTask times putting, taking and acking one task. Each key has one task queued.
func BenchmarkTask(b *testing.B) {
	for _, keys := range []int{1, 100, 10_000} {
		users := names(keys)
		b.Run(fmt.Sprintf("keys=%d/of=FairQueue", keys), func(b *testing.B) {
			q := fairq.New(func(j job) string { return j.user }, &fairq.Options[string, job]{Capacity: fairq.Unbounded})
			for _, u := range users {
				require.NoError(b, q.Push(job{user: u}))
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				_ = q.Push(job{users[i], i})
				q.Pop()
				if i++; i == keys {
					i = 0
				}
			}
		})
		b.Run(fmt.Sprintf("keys=%d/of=tasks", keys), func(b *testing.B) {
			ctx := context.Background()
			q, err := task.Open[job](ctx, new(task.Memory), "q", nil)
			require.NoError(b, err)
			for _, u := range users {
				_, err := q.Put(ctx, u, job{user: u}, task.PutOptions{})
				require.NoError(b, err)
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if _, err := q.Put(ctx, users[i], job{users[i], i}, task.PutOptions{}); err != nil {
					b.Fatal(err)
				}
				t, err := q.Take(ctx)
				if err != nil {
					b.Fatal(err)
				}
				if err := t.Ack(ctx); err != nil {
					b.Fatal(err)
				}
				if i++; i == keys {
					i = 0
				}
			}
		})
	}
}
