package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/fairq/fairq"
	"github.com/stretchr/testify/require"
)

// diary is an observer that records starts.
type diary struct{ starts []string }

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
		{
			"newcomers", long, 1, newFair(fairq.Options[int, job]{Newcomers: fairq.ThisRound}),
			"A0@0 B3@10 A1@20 A2@30",
		},
		{
			"weights", long, 1, newFair(fairq.Options[int, job]{Weight: func(u int) int { return 2 - u }}),
			"A0@0 A1@10 A2@20 B3@30",
		},
		{"two servers", long, 2, &fifo{}, "A0@0 A1@1 A2@10 B3@11"},
		{"enough servers", long, 9, &fifo{}, "A0@0 A1@1 A2@2 B3@3"},
		{
			"a server is free in the second of the job's end",
			[]job{{a, 0, 10}, {b, 10, 10}},
			1, &fifo{},
			"A0@0 B10@10",
		},
		{
			"who waits comes before who arrives in the second of the job's end",
			[]job{{a, 0, 10}, {a, 5, 1}, {b, 10, 1}},
			1,
			newFair(fairq.Options[int, job]{Newcomers: fairq.ThisRound}), "A0@0 A5@10 B10@11",
		},
		{
			"no run time",
			[]job{{a, 0, 0}, {a, 0, 0}, {b, 0, 5}, {b, 1, 0}, {a, 7, 0}},
			1, &fifo{},
			"A0@0 A0@0 B0@0 B1@5 A7@7",
		},
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
