package main

import (
	"bytes"
	"fmt"
	"math"
	"strconv"

	"golang.org/x/exp/stats"

	"github.com/fairq/fairq/examples/internal/chart"
)

// A result is the outcome of one simulation.
type result struct {
	name  string      // of the line
	waits [][]float64 // how long each user's jobs waited, in seconds
}

func (r *result) started(now int64, j job) {
	r.waits[j.user] = append(r.waits[j.user], float64(now-j.submit))
}

// A measure returns the number of seconds that stands for the waits of some users' jobs.
type measure func(waits []float64) float64

func median(waits []float64) float64 { return stats.Median(waits) }
func p95(waits []float64) float64    { return stats.Quantiles(waits, 0.95)[0] }
func mean(waits []float64) float64   { return stats.Mean(waits) }

// wait returns a measure of how long all jobs of the users wait. It is in whole seconds, because
// the last digits may differ between versions of package stats.
func (r *result) wait(m measure, users []int) int64 {
	var waits []float64
	for _, u := range users {
		waits = append(waits, r.waits[u]...)
	}
	return int64(math.Round(m(waits)))
}

// report is the tables.
func report(w *workload, servers int, results []*result) []byte {
	var b bytes.Buffer
	fmt.Fprintln(&b, subject(w, servers))
	fmt.Fprintln(&b, "\nWaiting time                median       p95      mean")
	for _, g := range w.groups() {
		fmt.Fprintf(&b, "%s%s: %s\n", g.name, g.who, g.size())
		for _, r := range results {
			fmt.Fprintf(&b, "  %-22s", r.name)
			for _, m := range []measure{median, p95, mean} {
				fmt.Fprintf(&b, "%10s", human(r.wait(m, g.users)))
			}
			fmt.Fprintln(&b)
		}
	}
	b.WriteString(notes)
	return b.Bytes()
}

// draw returns the picture: the waits of two groups in the queues that a program can have.
func draw(w *workload, servers int, results []*result) []byte {
	groups := w.groups()
	panel := func(g *group, what string, m measure) (p chart.Panel) {
		p.Name, p.Note = g.name, g.size()+": "+what
		for _, r := range results[:3] {
			wait := r.wait(m, g.users)
			p.Bars = append(p.Bars, chart.Bar{Name: r.name, Length: float64(wait), Text: human(wait)})
		}
		return p
	}
	return chart.Draw("How long jobs wait for a server", subject(w, servers),
		panel(&groups[1], "half of them wait for less than", median),
		panel(&groups[0], "mean wait", mean))
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
