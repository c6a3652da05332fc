// Modelserver: four tenants share a model that reads 100,000 tokens a second, and one of them asks
// for five times as much. Their requests have 100 to 100,000 tokens, so who serves the tenants in
// turn does not share the model. Time is simulated, so the minute is over at once.
//
//	go run ./examples/modelserver
package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/fairq/fairq"
)

const modelRate = 100_000 // tokens a second

// A tenant sends requests of the same size at even intervals.
type tenant struct {
	name   string
	tokens int64 // in a request
	rate   int64 // requests a second
}

// A fair share is 25,000 tokens a second. All but one ask for 20,000, so they should hardly wait.
var tenants = []tenant{
	{"embeddings", 100, 200},
	{"chat", 1_000, 20},
	{"agents", 10_000, 2},
	{"documents", 100_000, 5},
}

type request struct {
	tenant string
	tokens int64 // of the prompt, and as many as the answer may have
	sent   time.Duration
}

func main() {
	owner := func(r request) string { return r.tenant }
	nobody := func(request) string { return "" } // a fair queue of one key is a FIFO
	unlimited := fairq.Options[string, request]{Capacity: fairq.Unbounded}
	byTokens := unlimited
	byTokens.Cost = func(r request) int64 { return r.tokens }
	byTokens.Quantum = 1_000 // a tenth of a request of middling size

	results := []map[string]*usage{
		serve(fairq.New(nobody, &unlimited)),
		serve(fairq.New(owner, &unlimited)),
		serve(fairq.New(owner, &byTokens)),
	}
	fmt.Printf("%-12s%8s%22s%22s%22s\n", "", "", "FIFO", "fair by count", "fair by tokens")
	fmt.Printf("%-12s%8s", "tenant", "tokens")
	for range results {
		fmt.Printf("%8s%14s", "served", "longest wait")
	}
	fmt.Println()
	for _, t := range tenants {
		fmt.Printf("%-12s%8d", t.name, t.tokens)
		for _, used := range results {
			u := used[t.name]
			fmt.Printf("%6d %%%14s", 100*u.served/u.sent, u.longest.Round(100*time.Millisecond))
		}
		fmt.Println()
	}
}

// usage is what came of a tenant's requests in the minute.
type usage struct {
	sent, served int
	longest      time.Duration // that a request waited, of those served
}

// serve lets the model work for a minute, on one request after the other.
func serve(queue *fairq.FairQueue[string, request]) map[string]*usage {
	const end = time.Minute
	arrivals, used := traffic(end), map[string]*usage{}
	for _, t := range tenants {
		used[t.name] = &usage{}
	}
	for now := time.Duration(0); now < end; {
		for len(arrivals) > 0 && arrivals[0].sent <= now {
			if err := queue.Push(arrivals[0]); err != nil {
				panic(err) // there is no limit, and each cost is in range
			}
			used[arrivals[0].tenant].sent++
			arrivals = arrivals[1:]
		}
		r, ok := queue.Pop()
		if !ok {
			now = arrivals[0].sent
			continue
		}
		u := used[r.tenant]
		u.served++
		u.longest = max(u.longest, now-r.sent)
		now += time.Duration(r.tokens) * time.Second / modelRate
	}
	return used
}

// traffic returns what the tenants send, up to the end, in order of time.
func traffic(end time.Duration) (all []request) {
	for _, t := range tenants {
		every := time.Second / time.Duration(t.rate)
		for at := every; at <= end; at += every {
			all = append(all, request{t.name, t.tokens, at})
		}
	}
	slices.SortStableFunc(all, func(a, b request) int { return cmp.Compare(a.sent, b.sent) })
	return all
}
