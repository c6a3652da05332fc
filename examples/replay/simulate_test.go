package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/fairq/fairq"
	"github.com/stretchr/testify/require"
)

// diary is an observer that writes down who starts when.
type diary struct{ starts []string }

func (d *diary) arrived(int64, job)  {}
func (d *diary) finished(int64, job) {}

func (d *diary) started(now int64, j job) {
	d.starts = append(d.starts, fmt.Sprintf("%c%d@%d", 'A'+j.user, j.submit, now))
}

// A job is written as the letter of its user, its submit time, and its start as @time.
func TestSimulateByHand(t *testing.T) {
	const a, b = 0, 1
	long := []job{{a, 0, 10}, {a, 1, 10}, {a, 2, 10}, {b, 3, 10}}
	for _, c := range []struct {
		name    string
		jobs    []job
		servers int
		line    line
		want    string
	}{
		{"FIFO", long, 1, &fifo{}, "A0@0 A1@10 A2@20 B3@30"},
		{"fair", long, 1, newFair(fairq.Options[int, job]{}), "A0@0 A1@10 B3@20 A2@30"},
		{"newcomers", long, 1, newFair(fairq.Options[int, job]{Newcomers: fairq.ThisRound}), "A0@0 B3@10 A1@20 A2@30"},
		{"weights", long, 1, newFair(fairq.Options[int, job]{Weight: func(u int) int { return 2 - u }}), "A0@0 A1@10 A2@20 B3@30"},
		{"two servers", long, 2, &fifo{}, "A0@0 A1@1 A2@10 B3@11"},
		{"enough servers", long, 9, &fifo{}, "A0@0 A1@1 A2@2 B3@3"},
		{"a server is free in the second of the job's end", []job{{a, 0, 10}, {b, 10, 10}}, 1, &fifo{}, "A0@0 B10@10"},
		{
			"who waits comes before who arrives in the second of the job's end",
			[]job{{a, 0, 10}, {a, 5, 1}, {b, 10, 1}},
			1,
			newFair(fairq.Options[int, job]{Newcomers: fairq.ThisRound}), "A0@0 A5@10 B10@11",
		},
		{"no run time", []job{{a, 0, 0}, {a, 0, 0}, {b, 0, 5}, {b, 1, 0}, {a, 7, 0}}, 1, &fifo{}, "A0@0 A0@0 B0@0 B1@5 A7@7"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var d diary
			require.NoError(t, simulate(c.jobs, c.servers, c.line, &d))
			require.Equal(t, c.want, strings.Join(d.starts, " "))
		})
	}
}

type brokenLine struct{ fifo }

func (*brokenLine) Pop() (job, bool) { return job{}, false }

type fullLine struct{ fifo }

func (*fullLine) Push(job) error { return fairq.ErrFull }

type slowLearner struct{ fifo }

func (*slowLearner) done(job) error { return fairq.ErrCost }

func TestSimulateReportsLines(t *testing.T) {
	jobs := []job{{0, 0, 1}, {0, 0, 1}}
	require.EqualError(t, simulate(jobs, 1, &brokenLine{}, &diary{}), "the queue kept 2 of 2 jobs")
	require.ErrorIs(t, simulate(jobs, 1, &fullLine{}, &diary{}), fairq.ErrFull)
	require.ErrorIs(t, simulate(jobs, 1, &slowLearner{}, &diary{}), fairq.ErrCost)
}

func randomJobs(r *rand.Rand, users int) []job {
	jobs := make([]job, 1+r.IntN(80))
	for i := range jobs {
		user := min(r.IntN(users), r.IntN(users)) // some have more than others
		jobs[i] = job{user: user, submit: r.Int64N(60), run: max(0, r.Int64N(20)-2)}
	}
	slices.SortStableFunc(jobs, func(a, b job) int { return int(a.submit - b.submit) })
	return jobs
}

// FIFO has a simple model: each job in turn gets the server that is free first.
func TestFIFOAgainstModel(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		jobs, free := randomJobs(r, 5), make([]int64, 1+r.IntN(6))
		var want diary
		for _, j := range jobs {
			first := slices.Index(free, slices.Min(free))
			start := max(j.submit, free[first])
			free[first] = start + j.run
			want.started(start, j)
		}
		var got diary
		require.NoError(t, simulate(jobs, len(free), &fifo{}, &got))
		require.Equal(t, want, got)
	}
}

// account is an observer that keeps books second by second, in the slowest and plainest way.
type account struct {
	t        *testing.T
	servers  int
	now      int64
	queued   map[job]int
	running  map[job]int
	ends     map[int64]int
	weights  []int
	own, all tally
}

func newAccount(t *testing.T, servers int, weights []int) *account {
	n := len(weights)
	return &account{
		t: t, servers: servers, weights: weights,
		queued: map[job]int{}, running: map[job]int{}, ends: map[int64]int{},
		own: tally{make([]float64, n), make([]float64, n)},
		all: tally{make([]float64, n), make([]float64, n)},
	}
}

func total[K comparable](m map[K]int) (n int) {
	for _, x := range m {
		n += x
	}
	return n
}

// due finds the max-min fair shares by halving: the level at which all vessels together hold the
// servers.
func due(servers int, demand []float64, weights []int) []float64 {
	fill := func(level float64) (shares []float64, sum float64) {
		for u, d := range demand {
			shares = append(shares, min(d, level*float64(weights[u])))
			sum += shares[u]
		}
		return shares, sum
	}
	low, high := 0.0, 1e6
	for range 100 {
		if _, sum := fill((low + high) / 2); sum > float64(servers) {
			high = (low + high) / 2
		} else {
			low = (low + high) / 2
		}
	}
	shares, _ := fill(low)
	return shares
}

func (a *account) to(now int64) {
	require.GreaterOrEqual(a.t, now, a.now, "time runs backwards")
	for ; a.now < now; a.now++ {
		waiting, busy := total(a.queued), total(a.running)
		require.LessOrEqual(a.t, busy, a.servers)
		if waiting == 0 {
			continue
		}
		require.Equal(a.t, a.servers, busy, "a server idles while a job waits")
		n := len(a.weights)
		held, queued, demand := make([]float64, n), make([]float64, n), make([]float64, n)
		for j, k := range a.running {
			held[j.user] += float64(k)
			demand[j.user] += float64(k)
		}
		for j, k := range a.queued {
			queued[j.user] += float64(k)
			demand[j.user] += float64(k)
		}
		for u, share := range due(a.servers, demand, a.weights) {
			a.all.add(u, held[u], share)
			if queued[u] > 0 {
				a.own.add(u, held[u], share)
			}
		}
	}
}

func (a *account) arrived(now int64, j job) {
	a.to(now)
	require.Equal(a.t, j.submit, now)
	a.queued[j]++
}

func (a *account) started(now int64, j job) {
	a.to(now)
	require.Positive(a.t, a.queued[j], "a job starts that does not wait")
	a.queued[j]--
	a.running[j]++
	a.ends[now+j.run]++
}

func (a *account) finished(now int64, j job) {
	a.to(now)
	require.Positive(a.t, a.running[j], "a job ends that does not run")
	require.Positive(a.t, a.ends[now], "a job ends that should not")
	a.running[j]--
	a.ends[now]--
}

// both tells two observers.
type both [2]observer

func (b both) arrived(now int64, j job)  { b[0].arrived(now, j); b[1].arrived(now, j) }
func (b both) started(now int64, j job)  { b[0].started(now, j); b[1].started(now, j) }
func (b both) finished(now int64, j job) { b[0].finished(now, j); b[1].finished(now, j) }

// Every job runs once and for as long as it should, no server idles while a job waits, and the
// shares are right.
func TestSimulateAndSharesAgainstAccount(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for i := range 100 {
		const users = 5
		jobs, servers, weights := randomJobs(r, users), 1+r.IntN(12), make([]int, users)
		for u := range weights {
			weights[u] = 1 + r.IntN(3)*(i%2)
		}
		for _, waiting := range []line{
			&fifo{},
			newFair(fairq.Options[int, job]{Weight: func(u int) int { return weights[u] }}),
			newFair(fairq.Options[int, job]{Newcomers: fairq.ThisRound}),
		} {
			a, s := newAccount(t, servers, weights), newShares(servers, weights)
			require.NoError(t, simulate(jobs, servers, waiting, both{a, s}))
			require.Zero(t, total(a.queued)+total(a.running)+total(a.ends), "a job is left")
			require.Empty(t, s.active)
			for u := range users {
				require.InDelta(t, a.own.held[u], s.own.held[u], 1e-6)
				require.InDelta(t, a.own.due[u], s.own.due[u], 1e-6)
				require.InDelta(t, a.all.held[u], s.all.held[u], 1e-6)
				require.InDelta(t, a.all.due[u], s.all.due[u], 1e-6)
			}
		}
	}
}

func TestLevel(t *testing.T) {
	for _, c := range []struct {
		servers int
		demand  []float64
		weights []int
		want    float64
	}{
		{10, []float64{1, 4, 20, 20}, []int{1, 1, 1, 1}, 3},
		{10, []float64{1, 2, 20, 20}, []int{1, 1, 1, 1}, 3.5},
		{12, []float64{1, 20, 20, 0}, []int{1, 1, 10, 1}, 1},
		{10, []float64{1, 20, 20}, []int{1, 1, 2}, 3},
		{100, []float64{1, 20, 20}, []int{1, 1, 2}, math.Inf(1)},
	} {
		s := newShares(c.servers, c.weights)
		for u, d := range c.demand {
			for range int(d) {
				s.arrived(0, job{user: u})
			}
		}
		require.InDelta(t, 0, 1/c.want-1/s.level(), 1e-12, "%+v", c)
	}
}

// Three servers. C and A start three jobs; A's third waits, alone until B's comes at 5. All three
// run out at 10.
//
//	time     due            held           waiting
//	0 to 5   A 2 C 1        A 2 C 1        A
//	5 to 10  A 1 B 1 C 1    A 2 B 0 C 1    A B
func TestSharesByHand(t *testing.T) {
	const a, b, c = 0, 1, 2
	s := newShares(3, []int{1, 1, 1})
	jobs := []job{{c, 0, 10}, {a, 0, 10}, {a, 0, 10}, {a, 0, 10}, {b, 5, 10}}
	require.NoError(t, simulate(jobs, 3, &fifo{}, s))
	require.Equal(t, tally{held: []float64{20, 0, 0}, due: []float64{15, 5, 0}}, s.own)
	require.Equal(t, tally{held: []float64{20, 0, 10}, due: []float64{15, 5, 10}}, s.all)
	own, n := s.own.jain()
	require.InDelta(t, 0.5, own, 1e-12)
	require.Equal(t, 2, n)
	all, n := s.all.jain()
	require.InDelta(t, (7./3)*(7./3)/(3*(16./9+1)), all, 1e-12)
	require.Equal(t, 3, n)
}

func TestJain(t *testing.T) {
	for _, c := range []struct {
		held, due []float64
		want      float64
		n         int
	}{
		{[]float64{2, 4, 0}, []float64{1, 2, 0}, 1, 2},
		{[]float64{5, 0, 0, 0}, []float64{5, 5, 5, 5}, 0.25, 4},
		{[]float64{0, 0}, []float64{5, 5}, 1, 2},
	} {
		got, n := tally{c.held, c.due}.jain()
		require.InDelta(t, c.want, got, 1e-12)
		require.Equal(t, c.n, n)
	}
}
