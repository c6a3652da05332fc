package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// A job occupies one server for run seconds.
type job struct {
	user   int // its place in workload.names
	submit int64
	run    int64
}

// A workload is a log that was read.
type workload struct {
	title string
	jobs  []job    // in submit order; in the order of the log where that is the same
	names []string // of the users, in the order in which they come up
	count []int    // of the jobs of each user
	work  []int64  // seconds that each user's jobs run
	total int64    // seconds that all jobs run
}

// load is the arriving work, divided by the work that the servers can do in the time in which it
// arrives. It is 0 if all jobs arrive in the same second.
func (w *workload) load(servers int) float64 {
	span := w.jobs[len(w.jobs)-1].submit - w.jobs[0].submit
	if span == 0 {
		return 0
	}
	return float64(w.total) / float64(span) / float64(servers)
}

// leastServers is the least number of servers that can do the work in the time in which it
// arrives, 1 if all jobs arrive in the same second.
func (w *workload) leastServers() int { return max(1, int(math.Ceil(w.load(1)))) }

// A group is some of the users, at least one, whose waits are shown together.
type group struct {
	name, who string
	users     []int
	jobs      int
}

func (g *group) size() string {
	return plural(len(g.users), "user") + ", " + plural(g.jobs, "job")
}

const (
	fewJobs    = 100 // below, a user has few jobs
	littleWork = 0.1 // of a fair share of all work; below, a user has little work
)

// groups returns the groups of the log: the users that need a fair queue, and the users that pay
// for it.
func (w *workload) groups() []group {
	groups := []group{
		{name: "All users"},
		{name: "Users with few jobs", who: fmt.Sprintf(", fewer than %d each", fewJobs)},
		{
			name: "Users with little work",
			who:  fmt.Sprintf(", each less than %g of a fair share", littleWork),
		},
		{name: "The heaviest users", who: ", who have half of all work"},
	}
	add := func(to, u int) {
		groups[to].users = append(groups[to].users, u)
		groups[to].jobs += w.count[u]
	}
	for u := range w.names {
		add(0, u)
		if w.count[u] < fewJobs {
			add(1, u)
		}
		if float64(w.work[u]) < littleWork*float64(w.total)/float64(len(w.names)) {
			add(2, u)
		}
	}
	byWork := slices.Clone(groups[0].users)
	slices.SortStableFunc(byWork, func(u, v int) int { return cmp.Compare(w.work[v], w.work[u]) })
	for half := w.total / 2; len(groups[3].users) == 0 || half > 0; byWork = byWork[1:] {
		add(3, byWork[0])
		half -= w.work[byWork[0]]
	}
	return slices.DeleteFunc(groups, func(g group) bool { return len(g.users) == 0 })
}
