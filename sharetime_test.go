package fairq_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/exp/stats"

	"github.com/fairq/fairq"
)

// TestShareTimeEnds: All calls Done for an item once, whatever the body of the loop does.
func TestShareTimeEnds(t *testing.T) {
	q := fairq.New(letter, &fairq.Options[string, string]{ShareTime: true})
	held := func(item string) bool { return q.Done(item) == nil }
	push := func(items ...string) {
		n, err := q.PushBatch(items)
		require.NoError(t, err)
		require.Len(t, items, n)
	}
	ends := map[string]func() bool{
		"break":  func() bool { return false },
		"panic":  func() bool { panic("the body") },
		"goexit": func() bool { runtime.Goexit(); return true },
	}
	for name, end := range ends {
		push("A1", "A2")
		var wg sync.WaitGroup
		wg.Go(func() {
			defer func() { _ = recover() }()
			for item := range q.All(context.Background()) {
				if item == "A2" && !end() {
					break
				}
			}
		})
		wg.Wait()
		require.False(t, held("A"), name)
	}
	push("A1", "A2", "A3", "B1", "B2", "C1")
	require.Equal(t, []string{"A1", "B1", "C1", "A2", "B2", "A3"},
		items(q.Upcoming(9)), "A has one more")
	require.Equal(t, 1, q.Upcoming(1)[0].Round)
	require.Empty(t, q.Snapshot().Round)
	batch := make([]string, 2)
	require.Equal(t, 2, q.PopBatch(batch))
	require.Equal(t, []string{"A1", "B1"}, batch)
	require.True(t, held("B1"))
	require.Equal(t, []string{"C1", "B2", "A2", "A3"}, q.Drain(),
		"B holds nothing, but its oldest came later")
	require.True(t, held("A1"), "Drain ends nothing")
	require.EqualError(t, q.Done("A1"), `fairq: Done: no item of key "A" is held`)
	require.EqualError(t, q.Done("Z"), `fairq: Done: no item of key "Z" is held`)
	require.EqualError(t, fairq.New(letter, nil).Done("A1"),
		"fairq: Done: nothing is held, because Options.ShareTime is false")
}

// TestShareTimeBehind: a key with an item in hand that falls behind, and then begins to wait, pays
// once for that item.
func TestShareTimeBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := fairq.New(letter, &fairq.Options[string, string]{ShareTime: true})
		_, err := q.PushBatch(append([]string{"B1"}, strings.Split(strings.Repeat("A", 21), "")...))
		require.NoError(t, err)
		q.Pop()
		for range 10 {
			require.Len(t, "AA", q.PopBatch(make([]string, 2)))
			time.Sleep(time.Second)
			require.NoError(t, errors.Join(q.Done("A"), q.Done("A")))
		}
		require.NoError(t, errors.Join(q.Push("B2"), q.Done("B1")))
		item, ok := q.Pop()
		require.True(t, ok)
		require.Equal(t, "B2", item, "of 17 s, while A has used 20 s")
	})
}

// TestMaxInFlightPerKey: no key has more in hand than the limit, and while a key is at it the
// others are served as if its backlog were not there.
func TestMaxInFlightPerKey(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 55))
			limit := 1 + random.IntN(3)
			o := &fairq.Options[string, string]{
				ShareTime: true, MaxInFlightPerKey: limit, Capacity: fairq.Unbounded,
			}
			both := []*fairq.FairQueue[string, string]{fairq.New(letter, o), fairq.New(letter, o)}
			for i, q := range both {
				for range limit + 100*i { // only one has a backlog
					require.NoError(t, q.Push("H"))
				}
				require.Equal(t, limit, q.PopBatch(make([]string, limit)))
				for range 300 { // so that no key begins where the others are
					require.NoError(t, errors.Join(q.Push("A"), q.Push("B"), q.Push("C")))
				}
			}
			held := map[string]int{}
			for range 300 {
				time.Sleep(time.Duration(random.IntN(1000)))
				item := string(rune('A' + random.IntN(3)))
				var ok [2]bool
				switch {
				case random.IntN(2) == 0:
					item, ok[0] = both[0].Pop()
					var other string
					other, ok[1] = both[1].Pop()
					require.Equal(t, item, other)
					if ok[0] {
						held[item]++
					}
				case held[item] > 0:
					held[item]--
					require.NoError(t, errors.Join(both[0].Done(item), both[1].Done(item)))
				}
				require.Equal(t, ok[0], ok[1])
				require.LessOrEqual(t, held[item], limit)
				require.Equal(t, held[item], both[1].KeyStat(item).Taken)
			}
			require.Equal(t, both[0].Stats().Len+100, both[1].Stats().Len)
			require.NoError(t, both[1].Done("H"))
			require.Len(t, both[1].Drain(), both[1].Stats().Len+int(both[1].Stats().Removed))
		})
	}
}

func TestShareTimeAllocations(t *testing.T) {
	q := fairq.New(letter, &fairq.Options[string, string]{ShareTime: true})
	_ = q.Push("B1")
	step := func() {
		_ = q.Push("A1")
		_ = q.Push("A2")
		for range 2 {
			item, _ := q.Pop()
			_ = q.Done(item)
		}
	}
	step()
	require.Zero(t, testing.AllocsPerRun(1000, step))
}

// BenchmarkShareTime pushes and pops alternately in a queue with ShareTime and in one without. It
// reports the ratio of their times.
func BenchmarkShareTime(b *testing.B) {
	const calls = 2000
	for _, n := range []int{1, 100, 10_000} {
		for _, each := range []int{1, 10} {
			b.Run(fmt.Sprintf("keys=%d/items=%d", n, each), func(b *testing.B) {
				all := users(n)
				var took [2][]float64 // nanoseconds for a pair of calls
				var queues [2]*fairq.FairQueue[string, work]
				for i := range queues {
					queues[i] = fairq.New(user,
						&fairq.Options[string, work]{Capacity: fairq.Unbounded, ShareTime: i == 1})
					for range each {
						for _, w := range all {
							require.NoError(b, queues[i].Push(w))
						}
					}
				}
				at := [2]int{}
				var popping, ending time.Duration
				popped := make([]work, 0, calls)
				b.ReportAllocs()
				for b.Loop() {
					for i, q := range queues {
						popped = popped[:0]
						start := time.Now()
						for range calls {
							_ = q.Push(all[at[i]])
							if at[i]++; at[i] == n {
								at[i] = 0
							}
							w, _ := q.Pop()
							popped = append(popped, w)
						}
						took[i] = append(took[i], float64(time.Since(start))/calls)
						if i == 1 {
							popping += time.Since(start)
							start = time.Now()
							for _, w := range popped {
								_ = q.Done(w)
							}
							ending += time.Since(start)
						}
					}
				}
				// The first decile, because other load of the machine only makes a pair longer.
				without, with := stats.Quantiles(took[0], 0.1)[0], stats.Quantiles(took[1], 0.1)[0]
				b.ReportMetric(with/without, "times")
				b.ReportMetric(with, "ns/pair")
				b.ReportMetric(float64(ending)/float64(popping)*with, "ns/Done")
			})
		}
	}
}

func items(upcoming []fairq.UpcomingItem[string, string]) (all []string) {
	for _, u := range upcoming {
		all = append(all, u.Item)
	}
	return all
}
