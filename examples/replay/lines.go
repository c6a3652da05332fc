package main

import (
	"math"

	"github.com/fairq/fairq"
)

// A line is where jobs wait for a server.
type line interface {
	Push(job) error
	Pop() (job, bool)
	done(job) error // the job has run; a line can learn from it
}

// fifo is the plain line: first come, first served, whoever it is.
type fifo struct {
	jobs []job
	head int
}

func (f *fifo) Push(j job) error {
	f.jobs = append(f.jobs, j)
	return nil
}

func (f *fifo) Pop() (job, bool) {
	if f.head == len(f.jobs) {
		return job{}, false
	}
	f.head++
	return f.jobs[f.head-1], true
}

func (*fifo) done(job) error { return nil }

// fair is a line that is fair between users.
type fair struct {
	*fairq.FairQueue[int, job]
	learns bool
}

func newFair(o fairq.Options[int, job]) fair {
	o.Capacity = fairq.Unbounded
	return fair{fairq.New(func(j job) int { return j.user }, &o), o.PriorCost > 0}
}

func (f fair) done(j job) error {
	if !f.learns {
		return nil
	}
	return f.ReportCost(j, j.run)
}

// A contender is a line with the name under which it is shown.
type contender struct {
	name string
	line line
}

// contenders returns the lines to compare. The first one is that which the others are measured by.
func (s *settings) contenders(w *workload, weights []int) []contender {
	count := fairq.Options[int, job]{
		Newcomers: s.newcomers,
		Weight:    func(user int) int { return weights[user] },
	}
	return []contender{
		{"FIFO", &fifo{}},
		{"fair by count", newFair(count)},
		{"fair by learned time", newFair(learned(count, w, s.quantum))},
		{"fair by known time", newFair(known(count, w, s.quantum))},
	}
}

// known shares the servers' time as if it were known in advance how long each job will run. quantum
// is in mean run times.
func known(o fairq.Options[int, job], w *workload, quantum float64) fairq.Options[int, job] {
	o.Quantum = inRange(quantum*w.meanRun(), fairq.MaxQuantum)
	longest := longestRun(o.Quantum)
	o.Cost = func(j job) int64 { return inRange(float64(j.run), longest) }
	return o
}

// learned shares the servers' time with what is known when a job is about to get its turn: how long
// its user's last jobs ran.
func learned(o fairq.Options[int, job], w *workload, quantum float64) fairq.Options[int, job] {
	o.Quantum = inRange(quantum*w.meanRun(), fairq.MaxQuantum)
	o.PriorCost = inRange(w.meanRun(), longestRun(o.Quantum))
	return o
}

// longestRun is the most that a job can cost.
func longestRun(quantum int64) int64 { return min(quantum<<16, fairq.MaxCost) }

func inRange(x float64, limit int64) int64 {
	return int64(min(max(1, math.Round(x)), float64(limit)))
}
