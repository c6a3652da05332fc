package fairq_test

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fairq/fairq"
)

// work is the value in all benchmarks: two words, and the key is a string.
type work struct{ user string }

func user(w work) string { return w.user }

func users(n int) []work {
	all := make([]work, n)
	for i := range all {
		all[i] = work{fmt.Sprintf("user-%d", i)}
	}
	return all
}

// queue is a contender. Neither call waits.
type queue interface {
	Push(work) error
	Pop() (work, bool)
}

// channel is a buffered channel, used without waiting. These methods only fill and empty it: the
// benchmarks time exchange.
type channel chan work

func (c channel) Push(w work) error {
	select {
	case c <- w:
		return nil
	default:
		return fairq.ErrFull
	}
}

func (c channel) Pop() (w work, ok bool) {
	select {
	case w = <-c:
		return w, true
	default:
		return w, false
	}
}

// slice is a mutex around a ring in a slice, first-in first-out.
type slice struct {
	mu         sync.Mutex
	ring       []work
	first, len int
}

func (s *slice) Push(w work) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.len == len(s.ring) {
		return fairq.ErrFull
	}
	at := s.first + s.len
	if at >= len(s.ring) {
		at -= len(s.ring)
	}
	s.ring[at] = w
	s.len++
	return nil
}

func (s *slice) Pop() (w work, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.len == 0 {
		return w, false
	}
	w, s.ring[s.first] = s.ring[s.first], w
	if s.first++; s.first == len(s.ring) {
		s.first = 0
	}
	s.len--
	return w, true
}

// naive is the obvious queue in rounds: when a round is used up, it takes the oldest item of every
// key and sorts them.
type naive struct {
	mu    sync.Mutex
	clock int
	keys  map[string][]stamped
	round []stamped
}

type stamped struct {
	work
	at int
}

func (n *naive) Push(w work) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.clock++
	n.keys[w.user] = append(n.keys[w.user], stamped{w, n.clock})
	return nil
}

func (n *naive) Pop() (w work, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.round) == 0 {
		for user, items := range n.keys {
			n.round = append(n.round, items[0])
			if len(items) == 1 {
				delete(n.keys, user)
			} else {
				n.keys[user] = items[1:]
			}
		}
		slices.SortFunc(n.round, func(a, b stamped) int { return a.at - b.at })
	}
	if len(n.round) == 0 {
		return w, false
	}
	w, n.round = n.round[0].work, n.round[1:]
	return w, true
}

// contenders returns the queues to compare, each with room for n items.
func contenders(n int) []struct {
	name string
	queue
} {
	return []struct {
		name string
		queue
	}{
		{"FairQueue", fairq.New(user, &fairq.Options[string, work]{Capacity: n})},
		{"channel", make(channel, n)},
		{"mutex+slice", &slice{ring: make([]work, n)}},
		{"naive", &naive{keys: map[string][]stamped{}}},
	}
}

// exchange pushes and pops in turn. It uses a channel directly, as programs do, and other queues
// through an interface.
func exchange(q queue, all []work, next func() bool) {
	i := 0
	if c, ok := q.(channel); ok {
		for ; next(); i++ {
			if i == len(all) {
				i = 0
			}
			select {
			case c <- all[i]:
			default:
			}
			select {
			case <-c:
			default:
			}
		}
		return
	}
	for ; next(); i++ {
		if i == len(all) {
			i = 0
		}
		_ = q.Push(all[i])
		q.Pop()
	}
}

// BenchmarkPushPop pushes and pops in turn on one goroutine. Every key has one item queued all the
// time.
func BenchmarkPushPop(b *testing.B) {
	for _, n := range []int{1, 100, 10_000} {
		all := users(n)
		for _, c := range contenders(2 * n) {
			b.Run(fmt.Sprintf("%s/keys=%d", c.name, n), func(b *testing.B) {
				for _, w := range all {
					_ = c.Push(w)
				}
				b.ReportAllocs()
				exchange(c.queue, all, b.Loop)
			})
		}
		b.Run(fmt.Sprintf("Queue/keys=%d", n), func(b *testing.B) {
			var q fairq.Queue[string, work]
			for _, w := range all {
				q.Push(w.user, w)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if i == n {
					i = 0
				}
				q.Push(all[i].user, all[i])
				q.Pop()
			}
		})
	}
}

// BenchmarkNewKey is BenchmarkPushPop with an empty queue, and another key each time.
func BenchmarkNewKey(b *testing.B) {
	all := users(10_000)
	for _, c := range contenders(128) {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			exchange(c.queue, all, b.Loop)
		})
	}
}

// BenchmarkParallel is BenchmarkPushPop on all processors.
func BenchmarkParallel(b *testing.B) {
	all := users(100)
	for _, c := range contenders(1000) {
		b.Run(c.name, func(b *testing.B) {
			for _, w := range all {
				_ = c.Push(w)
			}
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) { exchange(c.queue, all, pb.Next) })
		})
	}
}

// BenchmarkWait runs producers and as many consumers, which wait for each other. In handing-over,
// two goroutines pass an item back and forth.
func BenchmarkWait(b *testing.B) {
	all, ctx := users(100), context.Background()
	cancelable, cancel := context.WithCancel(ctx)
	defer cancel()
	type waiting struct {
		push func(work)
		pop  func()
	}
	fair := func(ctx context.Context, capacity int) waiting {
		q := fairq.New(user, &fairq.Options[string, work]{Capacity: capacity})
		return waiting{func(w work) { _ = q.PushWait(ctx, w) }, func() { _, _ = q.PopWait(ctx) }}
	}
	for _, c := range []struct {
		name string
		open func(capacity int) waiting
	}{
		{"FairQueue", func(capacity int) waiting { return fair(ctx, capacity) }},
		{"channel", func(capacity int) waiting {
			q := make(chan work, capacity)
			return waiting{func(w work) { q <- w }, func() { <-q }}
		}},
		{"FairQueue+context", func(capacity int) waiting { return fair(cancelable, capacity) }},
		{"channel+context", func(capacity int) waiting {
			q := make(chan work, capacity)
			return waiting{func(w work) {
				select {
				case q <- w:
				case <-cancelable.Done():
				}
			}, func() {
				select {
				case <-q:
				case <-cancelable.Done():
				}
			}}
		}},
	} {
		b.Run("handing-over/"+c.name, func(b *testing.B) {
			b.ReportAllocs()
			there, back := c.open(16), c.open(16)
			go func() {
				for range b.N {
					there.pop()
					back.push(all[0])
				}
			}()
			for range b.N {
				there.push(all[0])
				back.pop()
			}
		})
		for _, n := range []int{1, 2, 8} {
			for _, capacity := range []int{16, 1024} {
				b.Run(fmt.Sprintf("goroutines=%d/capacity=%d/%s", n, capacity, c.name), func(b *testing.B) {
					b.ReportAllocs()
					q := c.open(capacity)
					var wg sync.WaitGroup
					for g := range n {
						wg.Go(func() {
							for i := g; i < b.N; i += n {
								q.push(all[i%len(all)])
							}
						})
						wg.Go(func() {
							for i := g; i < b.N; i += n {
								q.pop()
							}
						})
					}
					wg.Wait()
				})
			}
		}
	}
}

// BenchmarkBatch moves 64 items through a queue that holds 100 others, one by one or together.
// They belong to 64 keys, to 8 in runs, as when a few users submit several jobs each, or to one.
func BenchmarkBatch(b *testing.B) {
	for _, keys := range []int{64, 8, 1} {
		queued, in := users(100), []work{}
		for i := range 64 {
			in = append(in, queued[i*keys/64])
		}
		prime := func() *fairq.FairQueue[string, work] {
			q := fairq.New(user, &fairq.Options[string, work]{Capacity: 300})
			for _, w := range queued {
				_ = q.Push(w)
			}
			return q
		}
		single := func(q *fairq.FairQueue[string, work], next func() bool) {
			for out := make([]work, len(in)); next(); {
				for _, w := range in {
					_ = q.Push(w)
				}
				for i := range out {
					out[i], _ = q.Pop()
				}
			}
		}
		batch := func(q *fairq.FairQueue[string, work], next func() bool) {
			for out := make([]work, len(in)); next(); {
				_, _ = q.PushBatch(in)
				q.PopBatch(out)
			}
		}
		for name, run := range map[string]func(*fairq.FairQueue[string, work], func() bool){
			"single": single, "batch": batch,
		} {
			b.Run(fmt.Sprintf("%s/keys=%d", name, keys), func(b *testing.B) {
				q := prime()
				b.ReportAllocs()
				run(q, b.Loop)
			})
			b.Run(fmt.Sprintf("%s-parallel/keys=%d", name, keys), func(b *testing.B) {
				q := prime()
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) { run(q, pb.Next) })
			})
		}
	}
}

// BenchmarkEvict pushes to a full queue of 10,000 keys. The baseline pops before each push.
func BenchmarkEvict(b *testing.B) {
	all := users(10_000)
	for name, o := range map[string]fairq.Options[string, work]{
		// With one item more than two for every key, each push evicts an item of the key before it.
		"evict": {
			Capacity: 20_001, WhenFull: fairq.EvictHeaviest, OnEvict: func(string, work) {},
		},
		"push+pop": {Capacity: 20_001},
	} {
		b.Run(name, func(b *testing.B) {
			q := fairq.New(user, &o)
			for i := 0; q.Len() < o.Capacity; i++ {
				_ = q.Push(all[i%len(all)])
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if o.OnEvict == nil {
					q.Pop()
				}
				_ = q.Push(all[i%len(all)])
			}
			if o.OnEvict != nil && q.Stats().Evicted == 0 {
				b.Fatal("nothing was evicted")
			}
		})
	}
}

// BenchmarkLongest times every single call while 1,000,000 keys come and go, each with two items,
// with the collector off. It does so nine times, because the machine stalls at random. It takes
// the least time of each call, and reports the longest of these.
func BenchmarkLongest(b *testing.B) {
	const keys = 1_000_000
	all := users(keys)
	for _, c := range contenders(2*keys + 2) {
		if c.name == "channel" {
			continue
		}
		b.Run(c.name, func(b *testing.B) {
			defer debug.SetGCPercent(debug.SetGCPercent(-1))
			pushes, pops := make([]time.Duration, 2*keys), make([]time.Duration, 2*keys)
			for run := range 9 {
				runtime.GC()
				least := func(times []time.Duration, i int, start time.Time) {
					if took := time.Since(start); run == 0 || took < times[i] {
						times[i] = took
					}
				}
				for i := range pushes {
					start := time.Now()
					_ = c.Push(all[i%keys])
					least(pushes, i, start)
				}
				for i := range pops {
					start := time.Now()
					c.Pop()
					least(pops, i, start)
				}
			}
			b.ReportMetric(slices.Max(pushes).Seconds()*1e6, "µs/longest-push")
			b.ReportMetric(slices.Max(pops).Seconds()*1e6, "µs/longest-pop")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// BenchmarkMemory reports the heap of 1,000,000 items, without their values and keys, and the part
// of it that is left after they were popped.
func BenchmarkMemory(b *testing.B) {
	const items = 1_000_000
	all := users(items)
	measure := func(b *testing.B, keys int, quantum int64) (full, drained float64) {
		o := fairq.Options[string, work]{Capacity: fairq.Unbounded, Quantum: quantum}
		if quantum > 0 {
			o.Cost = func(work) int64 { return 1000 }
		}
		before := heap()
		q := fairq.New(user, &o)
		for i := range items {
			_ = q.Push(all[i%keys])
		}
		full = heap() - before
		for range items {
			q.Pop()
		}
		drained = heap() - before
		runtime.KeepAlive(q)
		b.ReportMetric(0, "ns/op")
		return full, drained
	}
	perItem := func(full float64) float64 { return full/items - 16 }
	for _, keys := range []int{1, 1000} {
		for _, quantum := range []int64{0, 1000, 100} { // of items that cost 1,000
			b.Run(fmt.Sprintf("keys=%d/quantum=%d", keys, quantum), func(b *testing.B) {
				full, drained := measure(b, keys, quantum)
				b.ReportMetric(perItem(full), "B/item")
				b.ReportMetric(drained, "B-drained")
			})
		}
	}
	b.Run("keys=1000000", func(b *testing.B) {
		few, _ := measure(b, 1000, 0)
		full, drained := measure(b, items, 0)
		b.ReportMetric((full-few)/items, "B/key")
		b.ReportMetric(drained, "B-drained")
	})
	runtime.KeepAlive(all)
}
