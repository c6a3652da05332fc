// Admission shows what one tenant with 200 requests at a time does to ten others: with no limit,
// behind a semaphore, and behind an admit.Limiter.
//
//	go run ./examples/admission
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"golang.org/x/exp/stats"

	"github.com/fairq/fairq/admit"
	"github.com/fairq/fairq/examples/internal/chart"
)

const (
	limit = 4                     // requests that are handled at the same time
	heavy = 200                   // requests of the one tenant at the same time
	slow  = 50 * time.Millisecond // each of its requests
	light = 10                    // other tenants
	quick = 5 * time.Millisecond  // each of their requests
	pause = 100 * time.Millisecond
)

// gates are the ways of requests to the handler.
var gates = []struct {
	name string
	gate func(http.Handler) http.Handler
}{
	{"no limit", func(next http.Handler) http.Handler { return next }},
	{"first come, first served", semaphore},
	{"fairq", func(next http.Handler) http.Handler {
		return admit.Handler(admit.New[string](limit, nil), tenant, next, nil)
	}},
}

func tenant(r *http.Request) string { return r.Header.Get("Tenant") }

// semaphore is first come, first served, like x/sync/semaphore: a channel serves waiting senders
// in order.
func semaphore(next http.Handler) http.Handler {
	permits := make(chan struct{}, limit)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		permits <- struct{}{}
		defer func() { <-permits }()
		next.ServeHTTP(w, r)
	})
}

func main() {
	length := flag.Duration("for", 10*time.Second, "how long each of the three runs")
	svg := flag.String("svg", "admission.svg", "write the picture to this `file`")
	flag.Parse()
	bars, _, err := run(os.Stdout, *length)
	if err != nil {
		log.Fatal(err)
	}
	picture := chart.Draw("How long one tenant's flood makes others wait", fmt.Sprintf(
		"One tenant always has %d requests of %d ms. The work has room for %d at a time.",
		heavy, slow.Milliseconds(), limit), chart.Panel{
		Name: fmt.Sprintf("%d tenants with a request of %d ms now and then", light,
			quick.Milliseconds()),
		Note: "Half of their requests take less than", Bars: bars,
	})
	if err := os.WriteFile(*svg, picture, 0o644); err != nil {
		log.Fatal("the picture: ", err)
	}
	fmt.Println("The picture is in", *svg)
}

// run prints a table, and returns a bar for each median and the p99 in milliseconds.
func run(out io.Writer, length time.Duration) (bars []chart.Bar, p99 []float64, err error) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w,
		"%d light tenants, beside one with %d requests at a time\tp50\tp99\trequests of the heavy one\n",
		light, heavy)
	for _, g := range gates {
		times, served := measure(g.gate, length)
		if len(times) == 0 {
			return nil, nil, fmt.Errorf("%s: no request of a light tenant was done in %v", g.name, length)
		}
		quantiles := stats.Quantiles(times, 0.5, 0.99)
		p99 = append(p99, quantiles[1])
		bars = append(bars, chart.Bar{
			Name: g.name, Length: quantiles[0], Text: fmt.Sprintf("%.0f ms", quantiles[0]),
		})
		fmt.Fprintf(w, "%s\t%.0fms\t%.0fms\t%.0f/s\n", g.name, quantiles[0], quantiles[1],
			float64(served)/length.Seconds())
	}
	return bars, p99, w.Flush()
}

// measure returns how many milliseconds the requests of light tenants took, and how many requests
// of the heavy one were done.
func measure(
	gate func(http.Handler) http.Handler, length time.Duration,
) (times []float64, served int64) {
	var active atomic.Int32
	server := gate(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		took := quick
		if tenant(r) == "heavy" {
			took = slow
		}
		// The work has room for this many requests; with more, each takes longer.
		n := active.Add(1)
		defer active.Add(-1)
		time.Sleep(took * time.Duration(max(limit, n)) / limit)
	}))
	start := time.Now()
	ask := func(name string) time.Duration {
		begun := time.Now()
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Tenant", name)
		server.ServeHTTP(httptest.NewRecorder(), r)
		return time.Since(begun)
	}
	var done atomic.Int64
	var mu sync.Mutex
	var all sync.WaitGroup
	for range heavy {
		all.Go(func() {
			for time.Since(start) < length {
				if ask("heavy"); time.Since(start) < length {
					done.Add(1)
				}
			}
		})
	}
	for i := range light {
		all.Go(func() {
			time.Sleep(length/10 + pause*time.Duration(i)/light) // when the heavy one has come
			for time.Since(start) < length {
				took := ask(fmt.Sprint("light ", i))
				mu.Lock()
				times = append(times, took.Seconds()*1000)
				mu.Unlock()
				time.Sleep(pause)
			}
		})
	}
	all.Wait()
	return times, done.Load()
}
