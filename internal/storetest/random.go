package storetest

import (
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
