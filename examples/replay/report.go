package main

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// A result is the outcome of one simulation.
type result struct {
	name  string   // of the line
	waits []sorted // how long each user's jobs waited, in seconds
}

func newResult(name string, w *workload) *result {
	return &result{name, make([]sorted, len(w.names))}
}

func (r *result) started(now int64, j job) {
	r.waits[j.user] = append(r.waits[j.user], now-j.submit)
}

// finish sorts the waits. The reports read them after the simulation only.
func (r *result) finish() {
	for _, s := range r.waits {
		slices.Sort(s)
	}
}

// waitsOf returns the waits of all jobs of the users.
func (r *result) waitsOf(users []int) sorted {
	var s sorted
	for _, u := range users {
		s = append(s, r.waits[u]...)
	}
	slices.Sort(s)
	return s
}

// sorted are waits, the shortest first.
type sorted []int64

// A measure is a number that stands for many waits.
type measure struct {
	name string
	of   func(sorted) int64
}

var (
	median = measure{"median", func(s sorted) int64 { return s.quantile(0.5) }}
	p95    = measure{"p95", func(s sorted) int64 { return s.quantile(0.95) }}
	mean   = measure{"mean", sorted.mean}
)

// quantile returns the least wait that is at least as long as p of all waits; it is always an
// observed wait.
func (s sorted) quantile(p float64) int64 {
	return s[max(0, int(math.Ceil(p*float64(len(s))))-1)]
}

func (s sorted) mean() int64 {
	sum := 0.0
	for _, x := range s {
		sum += float64(x)
	}
	return int64(math.Round(sum / float64(len(s))))
}

// report is the tables.
func report(w *workload, servers int, results []*result) []byte {
	var b bytes.Buffer
	fmt.Fprintln(&b, subject(w, servers))
	columns := []measure{median, p95, mean}
	fmt.Fprintf(&b, "\n%-24s", "Waiting time")
	for _, m := range columns {
		fmt.Fprintf(&b, "%10s", m.name)
	}
	fmt.Fprintln(&b)
	longest := int64(0)
	for _, g := range w.groups() {
		fmt.Fprintf(&b, "%s%s: %s\n", g.name, g.who, g.size())
		for _, r := range results {
			waits := r.waitsOf(g.users)
			longest = max(longest, waits.quantile(1))
			fmt.Fprintf(&b, "  %-22s", r.name)
			for _, m := range columns {
				fmt.Fprintf(&b, "%10s", human(m.of(waits)))
			}
			fmt.Fprintln(&b)
		}
	}
	if longest == 0 {
		fmt.Fprint(&b, "\nNobody waited, so no line can make a difference.")
		if least := w.leastServers(); least > 0 {
			fmt.Fprintf(&b, " About %s would be busy all the time: try -servers auto.",
				plural(least, "server"))
		}
		fmt.Fprintln(&b)
	}

	b.WriteString(notes)
	return b.Bytes()
}

const notes = `
Fair by time is fairq.Options.ShareTime: the next server goes to the user who has the fewest, and
on a tie to the user who has used the least time. It needs no run times. The queue of the last line
knows them beforehand, from the log.
`

// subject describes the replayed log.
func subject(w *workload, servers int) string {
	s := fmt.Sprintf("%s: %s of %s on %s", w.title, plural(len(w.jobs), "job"),
		plural(len(w.names), "user"), plural(servers, "server"))
	if load := w.load(servers); load > 0 {
		s += fmt.Sprintf(", %.0f %% load", 100*load)
	}
	return s
}

// human writes seconds in at most two units, as people say them.
func human(seconds int64) string {
	switch {
	case seconds < 60:
		return fmt.Sprintf("%ds", seconds)
	case seconds < 60*60:
		return fmt.Sprintf("%dm %02ds", seconds/60, seconds%60)
	case seconds < 48*60*60:
		return fmt.Sprintf("%dh %02dm", seconds/3600, seconds/60%60)
	default:
		return fmt.Sprintf("%dd %02dh", seconds/86400, seconds/3600%24)
	}
}

func plural(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return thousands(n) + " " + noun
}

// thousands writes a number that is not negative in groups of three digits.
func thousands(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}
