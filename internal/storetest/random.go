package storetest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/fairq/fairq/task/memory"
)

// seedVariable names the environment variable that says which single seed the random cases run
// with.
const seedVariable = "STORETEST_SEED"

// seeds returns the seeds that something random is run with: that of the environment, or the first
// n.
func seeds(t *testing.T, n int) (all []uint64) {
	if s := os.Getenv(seedVariable); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", seedVariable, err)
		}
		return []uint64{seed}
	}
	for seed := range n {
		all = append(all, uint64(seed)+1)
	}
	return all
}

// few returns a fifth of n if the tests are to be short.
func few(n int) int {
	if testing.Short() {
		return n / 5
	}
	return n
}

var randomCases = []testCase{
	{"Compare", "within a priority keys are served in rounds, as by a [fairq.Queue]", func(e *env) {
		for _, seed := range seeds(e.T, max(4, few(6))) {
			if compare(e.T, seed, new(memory.Store), Subject{Store: e.store}); e.Failed() {
				return
			}
		}
	}},
}

// run is a run of random calls.
type run struct {
	*rand.Rand
	e    *env
	q    *queue
	seed uint64
	log  []string
}

// seeds calls f with one seed after the other, each time with a new queue.
func (e *env) seeds(f func(*run)) {
	for _, seed := range seeds(e.T, max(1, few(3))) {
		q := e.openIn(e.store, fmt.Sprintf("seed-%d", seed))
		f(&run{Rand: rand.New(rand.NewPCG(seed, 0)), e: e, q: q, seed: seed})
		q.addsUp()
		q.close()
	}
}

func (r *run) did(format string, args ...any) {
	r.log = append(r.log, fmt.Sprintf(format, args...))
}

// fail ends the run.
func (r *run) fail(format string, args ...any) {
	r.e.Helper()
	for _, line := range r.log[max(0, len(r.log)-100):] {
		r.e.Log(line)
	}
	r.e.Fatalf("with %s=%d, call %d: %s", seedVariable, r.seed, len(r.log),
		fmt.Sprintf(format, args...))
}

func (r *run) ok(err error) {
	r.e.Helper()
	if err != nil {
		r.fail("error: %v", err)
	}
}

// key returns a random key, some more often than others.
func (r *run) key() string { return string(rune('a' + min(r.IntN(7), r.IntN(7)))) }
