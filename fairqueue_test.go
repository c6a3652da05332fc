package fairq_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
)

// The items of most tests are strings such as A7; A is the key.
func letter(item string) string { return item[:1] }

type options = fairq.Options[string, string]

func TestOrder(t *testing.T) {
	weights := func(key string) int {
		if key == "A" {
			return 2
		}
		return 1
	}
	for _, c := range []struct {
		name string
		opts options
		// script has pushes, and between slashes the pops that must follow. A push marked ! must be
		// refused.
		script string
	}{
		{"oldest of each key first", options{}, "A1 A2 A3 B4 / A1 B4 A2 A3"},
		{"a round that has begun is closed", options{}, "A1 B2 / A1 / A3 A4 / B2 A3 A4"},
		{
			"rounds fill while earlier ones are delivered",
			options{},
			"A1 B2 A3 / A1 / A4 A5 / B2 / B6 / A3 B6 A4 A5",
		},
		{"three keys", options{}, "A1 B2 A3 A4 B5 C6 C7 C8 C9 / A1 B2 C6 A3 B5 C7 A4 C8 C9"},
		{"by arrival, not by key", options{}, "A1 A2 B3 B4 C5 / A1 B3 C5 A2 B4"},
		{"by arrival in the second round too", options{}, "A1 B2 B3 A4 / A1 B2 B3 A4"},
		{"newcomers wait for the next round", options{}, "A1 A2 A3 / A1 / B4 B5 / A2 B4 A3 B5"},
		{"weights", options{Weight: weights}, "A1 A2 A3 A4 B5 B6 / A1 A2 B5 A3 A4 B6"},
		{
			"evict the heaviest",
			options{Capacity: 4, WhenFull: fairq.EvictHeaviest, OnEvict: func(key, item string) {
				require.Equal(t, "A A4", key+" "+item)
			}},
			"A1 A2 A3 A4 B5 A6! / A1 B5 A2 A3",
		},
		{
			"evict the oldest of the heaviest",
			options{Capacity: 4, WhenFull: fairq.EvictOldest, OnEvict: func(key, item string) {
				require.Equal(t, "A A1", key+" "+item)
			}},
			"A1 A2 A3 A4 B5 / A2 B5 A3 A4",
		},
		{
			"evict one's own oldest",
			options{Capacity: 2, WhenFull: fairq.EvictOldest, OnEvict: func(key, item string) {
				require.Equal(t, "B B2", key+" "+item)
			}},
			"A1 B2 B3 / A1 B3",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := fairq.New(letter, &c.opts)
			for i, part := range strings.Split(c.script, " / ") {
				for _, item := range strings.Fields(part) {
					if i%2 == 1 {
						popped, ok := q.Pop()
						require.True(t, ok)
						require.Equal(t, item, popped, "of %s", part)
					} else if name, refused := strings.CutSuffix(item, "!"); refused {
						require.ErrorIs(t, q.Push(name), fairq.ErrFull)
					} else {
						require.NoError(t, q.Push(item))
					}
				}
			}
			_, ok := q.Pop()
			require.False(t, ok)
		})
	}
}

func TestNewPanics(t *testing.T) {
	evict := func(string, string) {}
	for want, o := range map[string]options{
		"Options.Capacity is 536870913; the limit is MaxLen, 536870912": {
			Capacity: fairq.MaxLen + 1,
		},
		"Options.KeyCapacity is -1; the limits are 0 and Options.Capacity, 128": {KeyCapacity: -1},
		"Options.KeyCapacity is 11; the limits are 0 and Options.Capacity, 10": {
			Capacity: 10, KeyCapacity: 11,
		},
		"Options.WhenFull is 4; the limits are Reject, 0, and EvictOldest, 3": {WhenFull: 4},
		"Options.CountKeys is -1; the limits are 0 and MaxLen, 536870912":     {CountKeys: -1},
		"Options.WhenFull is RejectOverShare and Options.Capacity is unlimited": {
			WhenFull: fairq.RejectOverShare, Capacity: fairq.Unbounded,
		},
		"and Options.Capacity is unlimited": {
			WhenFull: fairq.EvictOldest, Capacity: fairq.Unbounded, OnEvict: evict,
		},
		"Options.OnEvict is nil; with WhenFull EvictHeaviest it must be a function": {
			WhenFull: fairq.EvictHeaviest,
		},
		"Options.OnEvict is nil":                          {WhenFull: fairq.EvictOldest},
		"Options.Quantum is 5; without Cost it must be 0": {Quantum: 5},
		"Options.Quantum is 0; with costs, the limits are 1 and MaxQuantum, 4194304": {
			Cost: func(string) int64 { return 1 },
		},
		"Options.Quantum is -1; with costs, the limits are 1 and MaxQuantum, 4194304": {
			Cost: func(string) int64 { return 1 }, Quantum: -1,
		},
		"Options.Quantum is 4194305; with costs, the limits are 1 and": {
			Cost: func(string) int64 { return 1 }, Quantum: fairq.MaxQuantum + 1,
		},
		"Options.SettleCosts is true; without Cost it must be false, because nothing is declared": {
			SettleCosts: true,
		},
		"Options.ShareTime is true, so there are no costs: Cost must be nil, SettleCosts false, and": {
			ShareTime: true, Quantum: 1,
		},
		"Options.MaxInFlightPerKey is -1; it must not be below 0": {
			MaxInFlightPerKey: -1, ShareTime: true,
		},
		"Options.MaxInFlightPerKey is 2; it must not be below 0, and is 0 without ShareTime": {
			MaxInFlightPerKey: 2,
		},
		"Options.OnEvict is set; with WhenFull Reject it must be nil": {OnEvict: evict},
		"Options.OnEvict is set; with WhenFull RejectOverShare it must be nil": {
			OnEvict: evict, WhenFull: fairq.RejectOverShare,
		},
	} {
		func() {
			defer func() { require.Contains(t, fmt.Sprint(recover()), want) }()
			require.ErrorContains(t, o.Validate(), want)
			fairq.New(letter, &o)
		}()
	}
	require.PanicsWithValue(t, "fairq: New: the key function is nil", func() {
		fairq.New[string, string](nil, nil)
	})
}

func TestFull(t *testing.T) {
	q := fairq.New(letter, &options{KeyCapacity: 2})
	for _, item := range []string{"A1", "A2"} {
		require.NoError(t, q.Push(item))
	}
	err := q.Push("A3")
	require.ErrorIs(t, err, fairq.ErrKeyFull)
	require.ErrorIs(t, err, fairq.ErrFull)
	require.EqualError(t, err, "fairq: full for this key: it holds 2, its limit is 2 now")
	require.NotSame(t, err, q.Push("A3"), "an error that a caller changes is nobody else's")

	q = fairq.New(letter, nil)
	for i := range 128 {
		require.NoError(t, q.Push(fmt.Sprint("A", i)))
	}
	err = q.Push("B1")
	require.ErrorIs(t, err, fairq.ErrFull)
	require.NotErrorIs(t, err, fairq.ErrKeyFull)
	require.EqualError(t, err, "fairq: full: it holds 128, the limit is 128")
	require.Equal(t, fairq.MaxLen, fairq.New(letter, &options{Capacity: -7}).Stats().Capacity)
}

// badContext is a context that panics when it is asked for a channel to wait on.
type badContext struct{ context.Context }

func (badContext) Done() <-chan struct{} { panic("bad context") }

func TestBadContext(t *testing.T) {
	q := fairq.New(letter, &options{Capacity: 1})
	require.Panics(t, func() { _, _ = q.PopWait(badContext{t.Context()}) })
	require.NoError(t, q.Push("A1"))
	require.Panics(t, func() { _ = q.PushWait(badContext{t.Context()}, "A2") })
	require.Equal(t, []string{"A1"}, q.Drain())
	require.Zero(t, q.Stats().WaitingPop+q.Stats().WaitingPush)
}

func TestStrangeKeysAndValues(t *testing.T) {
	values := fairq.New(func(v *int) bool { return v == nil }, nil)
	require.NoError(t, values.Push(nil))
	v, ok := values.Pop()
	require.True(t, ok, "nil is a value")
	require.Nil(t, v)

	anything := fairq.New(func(v any) any { return v }, nil)
	require.NoError(t, anything.Push(""))
	require.Panics(t, func() { _ = anything.Push([]int{1}) })
	require.Panics(t, func() { _ = anything.PushWait(t.Context(), map[int]int{}) })
	require.Panics(t, func() { anything.KeyStat(func() {}) })
	require.NoError(t, anything.Push(0))
	require.Equal(t, 1, anything.KeyStat("").Backlog)
	require.Equal(t, 2, anything.Len())
}

// A function that panics, and a weight out of range, push nothing.
func TestBadKeysAndWeights(t *testing.T) {
	q := fairq.New(letter, &options{
		Weight: func(key string) int { return int(key[0]) - 'A' },
		Cost:   func(item string) int64 { return int64(item[1]) }, Quantum: 10,
	})
	for item, pushed := range map[string]int{"": 0, "C": 0, "A": 1} {
		try := func(call func() error) {
			if pushed == 0 {
				require.Panics(t, func() { _ = call() })
				return
			}
			err := call()
			require.ErrorIs(t, err, fairq.ErrWeight)
			require.EqualError(t, err,
				`fairq: weight out of range: it is 0 for key "A"; the limits are 1 and 1000`)
		}
		try(func() error { return q.Push(item) })
		try(func() error { _, err := q.Add(item); return err })
		try(func() error { return q.PushWait(t.Context(), item) })
		try(func() error {
			n, err := q.PushBatch([]string{"B1", item, "B2"})
			require.Equal(t, 1, n)
			return err
		})
		require.Len(t, q.Drain(), pushed)
	}
	bare := fairq.Queue[string, int]{Weight: func(string) int { return fairq.MaxWeight + 1 }}
	require.Panics(t, func() { bare.Push("A", 1) })
	require.Zero(t, bare.Len())
}

// A closed queue takes nothing more, and delivers what it has.
func TestClose(t *testing.T) {
	q := fairq.New(letter, nil)
	require.NoError(t, q.Push("A1"))
	q.Close()
	q.Close()
	_, err := q.Add("A3")
	n, batch := q.PushBatch([]string{"A3", "A4"})
	require.Zero(t, n)
	for _, err := range []error{err, batch, q.Push("A3"), q.PushWait(t.Context(), "A3")} {
		require.ErrorIs(t, err, fairq.ErrClosed)
	}
	require.Zero(t, q.Stats().Refused)
	for item := range q.All(t.Context()) {
		require.Equal(t, "A1", item)
	}
	_, err = q.PopWait(t.Context())
	require.ErrorIs(t, err, fairq.ErrClosed)
}

// A ticket is of one queue, and void when its item has left.
func TestTickets(t *testing.T) {
	q, other := fairq.New(letter, nil), fairq.New(letter, nil)
	var tickets []fairq.Ticket
	for _, item := range []string{"A0", "A1", "A2"} {
		_, err := other.Add(item)
		require.NoError(t, err)
		ticket, err := q.Add(item)
		require.NoError(t, err)
		tickets = append(tickets, ticket)
	}
	q.Remove(tickets[0])
	q.Pop() // A1
	require.NoError(t, q.Push("C4"), "it reuses the place of A1")
	_, ok := other.Remove(tickets[2])
	require.False(t, ok)
	q.Drain()
	_, err := q.Add("A2")
	require.NoError(t, err)
	for i, stale := range append(tickets, fairq.Ticket{}) {
		_, ok = q.Remove(stale)
		require.False(t, ok, "%d", i)
		_, ok = q.Position(stale)
		require.False(t, ok, "%d", i)
	}
}

func TestAll(t *testing.T) {
	q := fairq.New(letter, nil)
	_, err := q.PushBatch([]string{"A1", "A2", "A3", "B4"})
	require.NoError(t, err)
	var got []string
	for item := range q.All(t.Context()) {
		got = append(got, item)
		if len(got) == 2 {
			break
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for item := range q.All(ctx) {
		got = append(got, item)
		cancel()
	}
	require.Equal(t, []string{"A1", "B4", "A2"}, got)
	require.Equal(t, 1, q.Len(), "what was not taken is still there")
}

// The queue must not keep delivered items alive.
func TestItemsAreForgotten(t *testing.T) {
	type big [1 << 10]byte
	q := fairq.New(func(b *big) string { return "key" }, nil)
	push := func() (weak.Pointer[big], fairq.Ticket) {
		b := new(big)
		ticket, err := q.Add(b)
		require.NoError(t, err)
		return weak.Make(b), ticket
	}
	popped, _ := push()
	removed, ticket := push()
	queued, _ := push()
	q.Pop()
	q.Remove(ticket)
	runtime.GC()
	require.Nil(t, popped.Value())
	require.Nil(t, removed.Value())
	require.NotNil(t, queued.Value())
	runtime.KeepAlive(q)
}

func TestHistogram(t *testing.T) {
	var h fairq.Histogram
	require.Zero(t, h.Quantile(0.5)+h.Mean())
	require.Equal(t, time.Microsecond, h.Bound(0))
	require.Equal(t, 2*time.Microsecond, h.Bound(1))
	require.Equal(t, time.Duration(math.MaxInt64), h.Bound(len(h.Buckets)-1))
	require.Equal(t, time.Microsecond<<35, h.Bound(35))
	for i := range len(h.Buckets) - 1 {
		h = fairq.Histogram{}
		h.Add(h.Bound(i))
		require.EqualValues(t, 1, h.Buckets[i])
		h.Add(h.Bound(i) + 1)
		require.EqualValues(t, 1, h.Buckets[i+1])
	}
	h = fairq.Histogram{}
	h.Add(0)
	h.Add(-1)
	h.Add(math.MaxInt64)
	require.EqualValues(t, 2, h.Buckets[0])
	require.EqualValues(t, 1, h.Buckets[len(h.Buckets)-1])
	h = fairq.Histogram{Count: 4}
	h.Buckets[0], h.Buckets[3] = 3, 1
	require.Equal(t, time.Microsecond, h.Quantile(0.75))
	require.Equal(t, 8*time.Microsecond, h.Quantile(0.76))
	require.Equal(t, 8*time.Microsecond, h.Quantile(2))
}

// Each order against a sort of all keys, which have several chunks of the table.
func TestKeyStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := func(item string) string { return item }
		q := fairq.New(key, &options{Capacity: 20_000, TrackWait: true, CountKeys: 5000})
		r := rand.New(rand.NewPCG(1, 2))
		lengths, oldest := map[string]int{}, map[string]time.Duration{}
		for range 19_000 {
			time.Sleep(time.Second)
			item := fmt.Sprint(int(r.ExpFloat64() * 3000))
			require.NoError(t, q.Push(item))
			if lengths[item]++; lengths[item] == 1 {
				oldest[item] = time.Duration(q.Stats().Pushed) * time.Second
			}
		}
		sorted := slices.SortedFunc(maps.Values(lengths), func(a, b int) int { return b - a })
		first := slices.Sorted(maps.Values(oldest))
		for _, n := range []int{-1, 0, 1, 10, 5000, 20_000} {
			longest := q.KeyStats(n, fairq.ByBacklog)
			require.Len(t, longest, max(0, min(n, q.Stats().Keys)))
			for i, k := range longest {
				require.Equal(t, []int{sorted[i], sorted[i]}, []int{k.Backlog, lengths[k.Key]})
				require.Equal(t, q.KeyStat(k.Key), k)
			}
			for i, k := range q.KeyStats(n, fairq.ByOldest) {
				require.Equal(t, 19_000*time.Second-first[i], k.OldestAge)
			}
		}
	})
}

func TestNoAllocations(t *testing.T) {
	q := fairq.New(letter, nil)
	in := slices.Repeat([]string{"A1", "B2"}, 32)
	out := make([]string, len(in))
	step := func() {
		_ = q.Push("A1")
		q.Pop()
		_, _ = q.PushBatch(in)
		q.PopBatch(out)
		_ = q.PushWait(context.Background(), "C1")
		_, _ = q.PopWait(context.Background())
		q.Len()
		q.KeyStat("A")
		q.Stats()
	}
	step()
	require.Zero(t, testing.AllocsPerRun(1000, step))
}
