package fairq_test

import (
	"fmt"
	"testing"

	"github.com/fairq/fairq"
	_ "golang.org/x/exp/stats"
)

type two struct{ key string }

func BenchmarkCore(b *testing.B) {
	for _, n := range []int{1, 100, 10000} {
		keys := make([]two, n)
		for i := range keys {
			keys[i] = two{fmt.Sprint("tenant-", i)}
		}
		b.Run(fmt.Sprint("primed-", n), func(b *testing.B) {
			var q fairq.Queue[string, two]
			for i := range keys {
				q.Push(keys[i].key, keys[i])
			}
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				q.Push(keys[i].key, keys[i])
				q.Pop()
				if i++; i == n {
					i = 0
				}
			}
		})
		b.Run(fmt.Sprint("empty-", n), func(b *testing.B) {
			var q fairq.Queue[string, two]
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				q.Push(keys[i].key, keys[i])
				q.Pop()
				if i++; i == n {
					i = 0
				}
			}
		})
		b.Run(fmt.Sprint("chan-", n), func(b *testing.B) {
			q := make(chan two, n+1)
			for i := range keys {
				q <- keys[i]
			}
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				select {
				case q <- keys[i]:
				default:
				}
				select {
				case <-q:
				default:
				}
				if i++; i == n {
					i = 0
				}
			}
		})
	}
}
