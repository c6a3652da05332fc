package fairq_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/exp/stats"

	"github.com/fairq/fairq"
)

// BenchmarkCost pushes an item of a random key and pops one, in turn, in a queue with costs and in
// one without. It reports the ratio of their times: the medians of short trials, made in turn, so
// that other load of the machine concerns both.
func BenchmarkCost(b *testing.B) {
	type job struct {
		user string
		cost int64
	}
	const calls = 5000
	cost := func(j job) int64 { return j.cost }
	for _, n := range []int{100, 10_000} {
		var all []job
		random := rand.New(rand.NewPCG(1, 1))
		names := users(n)
		for range 10 * n {
			i := random.IntN(n)
			all = append(all, job{names[i].user, 100 + int64(i%10)*200}) // 1,000 on average
		}
		fill := func(o fairq.Options[string, job]) *fairq.FairQueue[string, job] {
			o.Capacity = fairq.Unbounded
			q := fairq.New(func(j job) string { return j.user }, &o)
			for _, j := range all[:2*n] {
				require.NoError(b, q.Push(j))
			}
			return q
		}
		for _, c := range []struct {
			name string
			fairq.Options[string, job]
		}{
			{"none", fairq.Options[string, job]{}},
			{"known/quantum=1000", fairq.Options[string, job]{Cost: cost, Quantum: 1000}},
			{"known/quantum=100", fairq.Options[string, job]{Cost: cost, Quantum: 100}},
			{"settled", fairq.Options[string, job]{Cost: cost, Quantum: 1000, SettleCosts: true}},
		} {
			b.Run(fmt.Sprintf("%s/keys=%d", c.name, n), func(b *testing.B) {
				queues := []*fairq.FairQueue[string, job]{fill(c.Options), fill(fairq.Options[string, job]{})}
				var took [2][]float64
				at := 0
				for i := 0; b.Loop(); i++ {
					for j := range queues {
						q := queues[(i+j)%2]
						start := time.Now()
						for i := range calls {
							_ = q.Push(all[(at+i)%len(all)])
							q.Pop()
						}
						took[(i+j)%2] = append(took[(i+j)%2], time.Since(start).Seconds())
					}
					at = (at + calls) % len(all)
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(stats.Median(took[0])/stats.Median(took[1]), "x-without")
			})
		}
	}
}
