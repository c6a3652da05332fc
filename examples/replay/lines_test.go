package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/fairq/fairq"
	"github.com/stretchr/testify/require"
)

// roundRobin is deficit round robin (Shreedhar and Varghese 1995), what others build: each user in
// turn may have a quantum more of work done, and keeps what does not suffice for its next job.
type roundRobin struct {
	quantum float64
	cost    func(job) float64
	learn   func(job)
	jobs    map[int][]job
	deficit map[int]float64
	turns   []int // users with jobs, the next one first
	paid    bool  // the first of them has got its quantum
}

func newRoundRobin(quantum float64, cost func(job) float64, learn func(job)) *roundRobin {
	return &roundRobin{quantum: quantum, cost: cost, learn: learn, jobs: map[int][]job{}, deficit: map[int]float64{}}
}

func (r *roundRobin) Push(j job) error {
	if len(r.jobs[j.user]) == 0 {
		r.turns = append(r.turns, j.user)
		r.deficit[j.user] = 0
	}
	r.jobs[j.user] = append(r.jobs[j.user], j)
	return nil
}

func (r *roundRobin) Pop() (job, bool) {
	for len(r.turns) > 0 {
		u := r.turns[0]
		j := r.jobs[u][0]
		if !r.paid {
			r.deficit[u] += r.quantum
		}
		cost := r.cost(j)
		r.paid = cost <= r.deficit[u]
		if !r.paid {
			r.turns = append(r.turns[1:], u)
			continue
		}
		r.deficit[u] -= cost
		if r.jobs[u] = r.jobs[u][1:]; len(r.jobs[u]) == 0 {
			r.turns, r.paid = r.turns[1:], false
		}
		return j, true
	}
	return job{}, false
}

func (r *roundRobin) done(j job) error {
	r.learn(j)
	return nil
}

// learnedRoundRobin knows of run times what [fairq.FairQueue.Done] learns.
func learnedRoundRobin(w *workload, quantum float64) *roundRobin {
	mean := make([]float64, len(w.names))
	for u := range mean {
		mean[u] = w.meanRun()
	}
	return newRoundRobin(quantum*w.meanRun(),
		func(j job) float64 { return max(1, mean[j.user]) },
		func(j job) { mean[j.user] += (float64(j.run) - mean[j.user]) / 8 })
}

// waits is an observer that only notes how long the jobs of each user wait.
type waits []sorted

func (waits) arrived(int64, job)  {}
func (waits) finished(int64, job) {}

func (w waits) started(now int64, j job) { w[j.user] = append(w[j.user], now-j.submit) }

// The main claims, on the whole log.
func TestBuiltInReplay(t *testing.T) {
	if testing.Short() {
		t.Skip("with the race detector it takes many seconds")
	}
	s, err := parse(nil, io.Discard)
	require.NoError(t, err)
	w, err := s.read()
	require.NoError(t, err)
	weights, err := s.weightsOf(w)
	require.NoError(t, err)

	results, err := compare(w, s.servers, weights, s.contenders(w, weights), io.Discard)
	require.NoError(t, err)
	for i, r := range results {
		require.Len(t, r.waitsOf(w.groups()[0].users), len(w.jobs), "every job has a wait")
		if i > 0 {
			before, _ := results[i-1].all.jain()
			after, _ := r.all.jain()
			require.Greater(t, after, before, "Jain's index of %s", r.name)
		}
	}
	drawn, err := os.ReadFile("../../docs/replay.svg")
	require.NoError(t, err)
	if string(draw(w, s.servers, results)) != strings.ReplaceAll(string(drawn), "\r\n", "\n") {
		t.Error("docs/replay.svg is stale: go run ./examples/replay -svg docs/replay.svg")
	}

	fifo := figuresOf(w, results[0].waits)
	for i, most := range []figures{
		{few: 8_000, mean: 1, little: 1},
		{few: 180, mean: 1.6, little: 2.2},
		{few: 30, mean: 0.80, little: 0.15},
		{few: 30, mean: 0.55, little: 0.03},
	} {
		figuresOf(w, results[i].waits).check(t, results[i].name, most, fifo)
	}
	simulated := func(l line) figures {
		waits := make(waits, len(w.names))
		require.NoError(t, simulate(w.jobs, s.servers, l, waits))
		return figuresOf(w, waits)
	}
	var none fairq.Options[int, job]
	simulated(newFair(learned(none, w, 1, 0))).check(t, "learned, read at the push", figures{few: 75, mean: 1.10, little: 0.30}, fifo)

	one, forget := func(job) float64 { return 1 }, func(job) {}
	run := func(j job) float64 { return max(1, float64(j.run)) }
	simulated(newRoundRobin(1, one, forget)).check(t, "deficit round robin by count", figures{few: 130, mean: 1.6, little: 2.2}, fifo)
	simulated(learnedRoundRobin(w, 0.1)).check(t, "... by learned time", figures{few: 40, mean: 0.60, little: 0.07}, fifo)
	others := simulated(newRoundRobin(w.meanRun()/10, run, forget))
	others.check(t, "... by known time", figures{few: 10, mean: 0.51, little: 0.03}, fifo)

	o := fairq.Options[int, job]{Newcomers: fairq.ThisRound, TurnsAhead: 1}
	ours := simulated(newFair(known(o, w, 0.1)))
	ours.check(t, "known, ThisRound", figures{others.few, 1.01 * others.mean / fifo.mean, others.little / fifo.little}, fifo)
	simulated(newFair(learned(o, w, 0.1, 1))).check(t, "learned, ThisRound", figures{few: 10, mean: 0.66, little: 0.07}, fifo)
}

// figures show how a line serves.
type figures struct {
	few    float64 // the median wait of users with few jobs
	mean   float64 // the mean wait of all
	little float64 // the p95 of users with little work
}

func figuresOf(w *workload, waits []sorted) figures {
	r, groups := result{waits: waits}, w.groups()
	of := func(group int, m measure) float64 { return float64(m.of(r.waitsOf(groups[group].users))) }
	return figures{of(1, median), of(0, mean), of(2, p95)}
}

// check compares figures with what they may be at most: few in seconds, the others as parts of the
// FIFO's.
func (f figures) check(t *testing.T, name string, most, fifo figures) {
	t.Logf("%-28s few jobs: median %4g; all: mean %5g; little work: p95 %6g", name, f.few, f.mean, f.little)
	require.LessOrEqual(t, f.few, most.few, name)
	require.LessOrEqual(t, f.mean/fifo.mean, most.mean, name)
	require.LessOrEqual(t, f.little/fifo.little, most.little, name)
}

// One server, and jobs of 1 second and of 3.
func TestRoundRobin(t *testing.T) {
	const a, b = 0, 1
	r := newRoundRobin(2, func(j job) float64 { return float64(j.run) }, func(job) {})
	for _, j := range []job{{a, 0, 3}, {a, 1, 1}, {a, 2, 3}, {b, 3, 1}, {b, 4, 1}, {b, 5, 1}} {
		require.NoError(t, r.Push(j))
	}
	var order []int64
	for j, ok := r.Pop(); ok; j, ok = r.Pop() {
		order = append(order, j.submit)
	}
	require.Equal(t, []int64{3, 4, 0, 1, 5, 2}, order)
	require.True(t, slices.IsSorted(r.turns))
}

// What a job takes in memory, beyond itself, if the whole log waits.
func BenchmarkMemory(b *testing.B) {
	w, err := (&settings{}).read()
	require.NoError(b, err)
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	fill := func(o fairq.Options[int, job]) func(b *testing.B) {
		return func(b *testing.B) {
			for b.Loop() {
				before := heap()
				l := newFair(o)
				for _, j := range w.jobs {
					require.NoError(b, l.Push(j))
				}
				beyond := float64(heap()-before)/float64(len(w.jobs)) - float64(unsafe.Sizeof(job{}))
				b.ReportMetric(beyond, "bytes/job")
				runtime.KeepAlive(l)
			}
		}
	}
	var none fairq.Options[int, job]
	b.Run("by count", fill(none))
	for _, quantum := range []float64{0.01, 0.1, 1, 10, 100} {
		b.Run(fmt.Sprint("known/", quantum), fill(known(none, w, quantum)))
		b.Run(fmt.Sprint("learned/", quantum), fill(learned(none, w, quantum, 1)))
	}
}
