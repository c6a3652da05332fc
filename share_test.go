package fairq_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"text/tabwriter"

	"github.com/fairq/fairq"
	"github.com/stretchr/testify/require"
)

// shares makes a queue of keys that are their own items, with RejectOverShare.
func shares(capacity int, weights []int) *fairq.FairQueue[int, int] {
	return fairq.New(func(key int) int { return key }, &fairq.Options[int, int]{
		Capacity: capacity, WhenFull: fairq.RejectOverShare,
		Weight: func(key int) int { return weights[key] },
	})
}

// m keys that flood the queue each hold one part in m + 1, and one part stays free. To fill it
// takes keys whose weights, each plus 1, have a product of the capacity, without the lightest.
func TestShareOfFloods(t *testing.T) {
	for _, capacity := range []int{30, 128, 1000, 4096} {
		for floods := 1; floods <= 6; floods++ {
			q := shares(capacity, slices.Repeat([]int{1}, floods))
			for i := range capacity * floods {
				_ = q.Push(i % floods)
			}
			for key := range floods {
				require.InDelta(t, float64(capacity)/float64(floods+1), q.KeyStat(key).Backlog, 1.5)
			}
		}
		for weight := 1; weight <= 5; weight++ {
			q := shares(capacity, []int{weight})
			for range capacity {
				_ = q.Push(0)
			}
			require.InDelta(t, float64(capacity*weight)/float64(weight+1), q.Len(), 2)
		}
	}
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 7))
		capacity, weights := 1+r.IntN(60), make([]int, 2+r.IntN(12))
		for key := range weights {
			weights[key] = 1 + r.IntN(5)
		}
		q := shares(capacity, weights)
		for range 500 {
			_ = q.Push(r.IntN(len(weights)))
		}
		product, least := 1, 1000
		for key, weight := range weights {
			if q.KeyStat(key).Backlog > 0 {
				product, least = product*(weight+1), min(least, weight)
			}
		}
		require.True(t, q.Len() < capacity || product/(least+1) >= capacity, "seed %d", seed)
	}
	require.Equal(t, 8, keysThatFill(128))
	require.Equal(t, 11, keysThatFill(1024))
}

// keysThatFill returns the number of keys that fill a queue, if each pushes until it is refused
// before the next one begins.
func keysThatFill(capacity int) (keys int) {
	for q := shares(capacity, slices.Repeat([]int{1}, capacity)); q.Len() < capacity; keys++ {
		for q.Push(keys) == nil {
		}
	}
	return keys
}

// Hogs push three jobs a tick each, small one in ten ticks, and one a tick is done. With Reject
// the hogs fill the queue and small is refused. A KeyCapacity of half the queue helps against one
// hog.
func ExampleWhenFull() {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "small's jobs done, of 1,000\t1 hog\t2 hogs\t3 hogs\tjobs evicted\t")
	for _, o := range []fairq.Options[string, string]{
		{WhenFull: fairq.Reject},
		{WhenFull: fairq.Reject, KeyCapacity: 128 / 2},
		{WhenFull: fairq.RejectOverShare},
		{WhenFull: fairq.EvictHeaviest},
		{WhenFull: fairq.EvictOldest},
	} {
		fmt.Fprint(w, o.WhenFull)
		if o.KeyCapacity > 0 {
			fmt.Fprintf(w, ", KeyCapacity %d", o.KeyCapacity)
		}
		evicted := 0
		if o.WhenFull >= fairq.EvictHeaviest {
			o.OnEvict = func(string, string) { evicted++ }
		}
		for hogs := range 3 {
			fmt.Fprintf(w, "\t%d", flood(o, []string{"hog 1", "hog 2", "hog 3"}[:hogs+1]))
		}
		fmt.Fprintf(w, "\t%d\t\n", evicted)
	}
	w.Flush()
	// Output:
	// small's jobs done, of 1,000   1 hog   2 hogs   3 hogs   jobs evicted
	//                         Reject       6        3        2              0
	//         Reject, KeyCapacity 64    1000        3        2              0
	//                RejectOverShare    1000     1000     1000              0
	//                  EvictHeaviest    1000     1000     1000          71863
	//                    EvictOldest    1000     1000     1000         152619
}

func flood(o fairq.Options[string, string], hogs []string) (done int) {
	q := fairq.New(func(key string) string { return key }, &o)
	for tick := range 10_000 {
		for range 3 {
			for _, hog := range hogs {
				_ = q.Push(hog)
			}
		}
		if tick%10 == 0 {
			_ = q.Push("small")
		}
		if key, _ := q.Pop(); key == "small" {
			done++
		}
	}
	return done
}
