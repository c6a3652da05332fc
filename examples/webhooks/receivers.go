package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// load says how many webhooks are sent: a flood of one tenant at once, and some of each other one,
// spread over a period.
type load struct {
	flood, others int
	period        time.Duration
}

// tenant has webhooks delivered to a receiver.
type tenant struct {
	name, receiver string
	floods         bool
	takes          time.Duration // what an answer takes; 0 means a millisecond
	down           time.Duration // at first
	gone           int           // one in so many addresses is; 0 means none
	busy           int           // percent of the answers are 429, or 500, or never come
	fails          int
	hangs          int
}

var tenants = []tenant{
	{name: "mallory", receiver: "well", floods: true},
	{name: "alice", receiver: "well"},
	{name: "bob", receiver: "fails now and then", busy: 1, fails: 15},
	{name: "carol", receiver: "slow", takes: 20 * time.Millisecond, hangs: 5},
	{name: "dave", receiver: "down at first", down: 300 * time.Millisecond},
	{name: "erin", receiver: "does not answer", hangs: 100},
	{name: "frank", receiver: "1 of 10 is gone", gone: 10},
}

// receivers are all served by one server, which tells them apart by the path.
type receivers struct {
	*httptest.Server
	since   time.Time
	answers atomic.Bool // none hangs any more
}

func openReceivers() *receivers {
	r := &receivers{since: time.Now()}
	mux := http.NewServeMux()
	for _, t := range tenants {
		mux.HandleFunc("/"+t.name+"/{number}", func(w http.ResponseWriter, q *http.Request) { r.answer(w, q, t) })
	}
	r.Server = httptest.NewServer(mux)
	return r
}

func (r *receivers) answer(w http.ResponseWriter, q *http.Request, t tenant) {
	number, _ := strconv.Atoi(q.PathValue("number"))
	switch dice := rand.IntN(100); {
	case t.gone > 0 && number%t.gone == 0:
		w.WriteHeader(http.StatusGone)
	case time.Since(r.since) < t.down:
		w.WriteHeader(http.StatusBadGateway)
	case dice < t.busy:
		w.Header().Set("Retry-After", "1") // second
		w.WriteHeader(http.StatusTooManyRequests)
	case dice < t.busy+t.fails:
		w.WriteHeader(http.StatusInternalServerError)
	case dice < t.busy+t.fails+t.hangs && !r.answers.Load():
		<-q.Context().Done() // the client gives up
	default:
		time.Sleep(max(t.takes, time.Millisecond))
	}
}

// report is what has become of the webhooks, by tenant.
type report struct {
	mu        sync.Mutex // protects all that follows
	sent      map[string]int
	attempts  map[string]int
	delivered map[string][]delivery
}

type delivery struct {
	url  string
	took time.Duration // from sending the webhook
}

// measured returns a handler that writes down what comes of another one.
func (r *report) measured(deliver pool.Handler[*task.Task[webhook]]) pool.Handler[*task.Task[webhook]] {
	return func(ctx context.Context, t *task.Task[webhook]) error {
		err := deliver(ctx, t)
		w, took := t.Payload, time.Since(t.Payload.Sent)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.attempts[w.Tenant]++
		if err == nil {
			r.delivered[w.Tenant] = append(r.delivered[w.Tenant], delivery{w.URL, took})
		}
		return err
	}
}

// print writes what has become of them. Those that were not delivered are letters.
func (r *report) print(out io.Writer) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "tenant\treceiver\tattempts\tletters\tdelivered\tp50\tp99\tmax\t")
	for _, t := range tenants {
		all := r.delivered[t.name]
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t", t.name, t.receiver, r.attempts[t.name], r.sent[t.name]-len(all), len(all))
		for _, part := range []float64{0.5, 0.99, 1} {
			if len(all) > 0 {
				fmt.Fprint(table, quantile(all, part).Milliseconds(), " ms")
			}
			fmt.Fprint(table, "\t")
		}
		fmt.Fprintln(table)
	}
	table.Flush()
}

// quantile returns what a part of the deliveries took at most.
func quantile(all []delivery, part float64) time.Duration {
	slices.SortFunc(all, func(a, b delivery) int { return cmp.Compare(a.took, b.took) })
	return all[int(part*float64(len(all)-1))].took
}
