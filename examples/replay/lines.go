package main

import (
	"math"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/fairshare"
)

// A line is where jobs wait for a server.
type line interface {
	at(now int64) // sets the time, in seconds, before the events of that time
	Push(job) error
	Pop() (job, bool)
	done(job) // it has run
}

// fifo is the plain line: first come, first served.
type fifo struct{ jobs []job }

func (*fifo) at(int64) {}

func (f *fifo) Push(j job) error {
	f.jobs = append(f.jobs, j)
	return nil
}

func (f *fifo) Pop() (j job, ok bool) {
	if len(f.jobs) == 0 {
		return job{}, false
	}
	j, f.jobs = f.jobs[0], f.jobs[1:]
	return j, true
}

func (*fifo) done(job) {}

// fair is a line that is fair between users.
type fair struct {
	*fairq.FairQueue[int, job]
}

func newFair(o fairq.Options[int, job]) fair {
	o.Capacity = fairq.Unbounded
	return fair{fairq.New(func(j job) int { return j.user }, &o)}
}

func (fair) at(int64) {}
func (fair) done(job) {}

// byTime is the line of a queue with fairq.Options.ShareTime. It repeats the queue's rule, because
// the queue reads the real clock, and here time is simulated. TestByTime compares the two.
type byTime struct {
	rule   fairshare.Shares[int, userTime]
	now    time.Duration
	pushed uint64
}

// userTime has the field of a user beyond the rule.
type userTime struct{ waiting []numbered }

type numbered struct {
	job
	number uint64
}

func (l *byTime) at(now int64) { l.now = time.Duration(now) * time.Second }

func (l *byTime) Push(j job) error {
	l.pushed++
	k := l.rule.Add(l.rule.Find(j.user), j.user, 1)
	k.Data.waiting = append(k.Data.waiting, numbered{j, l.pushed})
	l.rule.Wait(k, k.Data.waiting[0].number, l.now)
	return nil
}

func (l *byTime) Pop() (job, bool) {
	k := l.rule.Next()
	if k == nil {
		return job{}, false
	}
	j, next := k.Data.waiting[0].job, uint64(0)
	k.Data.waiting = k.Data.waiting[1:]
	if len(k.Data.waiting) > 0 {
		next = k.Data.waiting[0].number
	}
	l.rule.Admit(k, next, l.now)
	return j, true
}

func (l *byTime) done(j job) {
	l.rule.Release(l.rule.Find(j.user), 0, l.now)
}

// A contender is a line with the name under which it is shown.
type contender struct {
	name string
	line line
}

// contenders returns the lines to compare. The others are measured by the first one.
func (s *settings) contenders(w *workload) []contender {
	return []contender{
		{"FIFO", &fifo{}},
		{"fair by count", newFair(fairq.Options[int, job]{})},
		{"fair by time", &byTime{}},
		{"run times known", newFair(known(w, s.quantum))},
	}
}

// known shares the servers' time with run times known in advance. quantum is in mean run times.
func known(w *workload, quantum float64) fairq.Options[int, job] {
	mean := float64(w.total) / float64(len(w.jobs))
	inRange := func(x float64, limit int64) int64 {
		return int64(min(max(1, math.Round(x)), float64(limit)))
	}
	o := fairq.Options[int, job]{Quantum: inRange(quantum*mean, fairq.MaxQuantum)}
	longest := min(o.Quantum<<16, fairq.MaxCost)
	o.Cost = func(j job) int64 { return inRange(float64(j.run), longest) }
	return o
}
