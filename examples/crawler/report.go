package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/fairq/fairq/task"
)

// report is what the crawl was like, as told by the events of its queue.
type report struct {
	begin      time.Time
	unfinished int // pages that are neither fetched nor buried
	hosts      []*hostReport
	dead       []*task.Task[link]
}

type hostReport struct {
	host    string
	retries int
	buried  int
	fetched []time.Duration // when each page was, from the beginning of the crawl
}

func newReport(begin time.Time) *report { return &report{begin: begin} }

func (r *report) add(e task.Event) {
	h := r.host(e.Task.Key)
	switch e.Type {
	case task.EventPut:
		r.unfinished++
	case task.EventRelease:
		if e.Task.State == task.Delayed { // else it was the last attempt, and EventBury comes next
			h.retries++
		}
	case task.EventBury:
		r.unfinished--
		h.buried++
	case task.EventDelete: // it had been fetched before
		r.unfinished--
	case task.EventAck:
		r.unfinished--
		h.fetched = append(h.fetched, e.Time.Sub(r.begin))
	}
}

// host returns the report of a host, a new one if there is none.
func (r *report) host(name string) *hostReport {
	for _, h := range r.hosts {
		if h.host == name {
			return h
		}
	}
	h := &hostReport{host: name}
	r.hosts = append(r.hosts, h)
	return h
}

func (r *report) buried() (n int) {
	for _, h := range r.hosts {
		n += h.buried
	}
	return n
}

// largest returns the host with the most pages.
func (r *report) largest() *hostReport {
	return slices.MaxFunc(r.hosts, func(a, b *hostReport) int { return len(a.fetched) - len(b.fetched) })
}

// until returns how many pages were fetched by then.
func (h *hostReport) until(then time.Duration) int {
	n, _ := slices.BinarySearch(h.fetched, then+1)
	return n
}

func (h *hostReport) last() time.Duration { return h.fetched[len(h.fetched)-1] }

// print writes the report. What it is told are the most requests that each host had in flight at
// once.
func (r *report) print(out io.Writer, atOnce map[string]int) {
	largest := r.largest()
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "host\tpages\tretries\tdead\tat once\tfirst\tmedian\tlast\tby then of %s\t\n", largest.host)
	for _, h := range r.hosts {
		if len(h.fetched) == 0 {
			fmt.Fprintf(table, "%s\t0\t%d\t%d\t%d\t\t\t\t\t\n", h.host, h.retries, h.buried, atOnce[h.host])
			continue
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%s\t%s\t%s\t%d\t\n", h.host, len(h.fetched), h.retries, h.buried, atOnce[h.host],
			ms(h.fetched[0]), ms(h.fetched[len(h.fetched)/2]), ms(h.last()), largest.until(h.last()))
	}
	table.Flush()
	fmt.Fprintln(out, "\ndead pages, and where a link to them is:")
	for _, t := range r.dead {
		err := t.Info().Err
		fmt.Fprintf(out, "  %s  %v (%d)  tries: %d  in %s\n", t.Payload.url, err, err.Code, t.Attempts, t.Payload.from)
	}
}

func ms(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }
