package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// diary is an observer that records starts, as the letter of the user, the submit time, and the
// start as @time.
type diary struct{ starts []string }

func (d *diary) started(now int64, j job) {
	d.starts = append(d.starts, fmt.Sprintf("%c%d@%d", 'A'+j.user, j.submit, now))
}

// A server becomes free: a job that waits comes before a job that arrives in the same second.
func TestSameSecond(t *testing.T) {
	var d diary
	jobs := []job{{0, 0, 10}, {0, 5, 1}, {1, 10, 1}}
	require.NoError(t, simulate(jobs, 1, &byTime{}, &d))
	require.Equal(t, []string{"A0@0", "A5@10", "B10@11"}, d.starts)
}

func randomJobs(r *rand.Rand) []job {
	jobs := make([]job, 1+r.IntN(80))
	for i := range jobs {
		user := min(r.IntN(5), r.IntN(5)) // some have more than others
		jobs[i] = job{user: user, submit: r.Int64N(60), run: max(0, r.Int64N(20)-2)}
	}
	slices.SortStableFunc(jobs, func(a, b job) int { return int(a.submit - b.submit) })
	return jobs
}

// FIFO has a simple model: each job in turn gets the server that is free first.
func TestFIFOAgainstModel(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		jobs, free := randomJobs(r), make([]int64, 1+r.IntN(6))
		var want, got diary
		for _, j := range jobs {
			first := slices.Index(free, slices.Min(free))
			start := max(j.submit, free[first])
			free[first] = start + j.run
			want.started(start, j)
		}
		require.NoError(t, simulate(jobs, len(free), &fifo{}, &got))
		require.Equal(t, want, got)
	}
}
