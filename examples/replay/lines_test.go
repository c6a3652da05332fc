package main

import (
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairq/fairq"
	"github.com/stretchr/testify/require"
)

// inTime is a queue with ShareTime in a bubble of synctest, whose clock is the log's.
type inTime struct {
	fair
	start time.Time
}

func newInTime() inTime {
	return inTime{newFair(fairq.Options[int, job]{ShareTime: true}), time.Now()}
}

func (l inTime) at(now int64) { time.Sleep(time.Duration(now)*time.Second - time.Since(l.start)) }

func (l inTime) done(j job) error { return l.Done(j) }

func TestByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(3, 4))
		for range 200 {
			jobs, servers := randomJobs(r, 5), 1+r.IntN(6)
			var want, got diary
			require.NoError(t, simulate(jobs, servers, newInTime(), &want))
			require.NoError(t, simulate(jobs, servers, &byTime{}, &got))
			require.Equal(t, want, got)
		}
	})
}

// waits is an observer that records how long the jobs of each user wait.
type waits []sorted

func (w waits) started(now int64, j job) { w[j.user] = append(w[j.user], now-j.submit) }

// The main claims, on the whole log.
func TestBuiltInReplay(t *testing.T) {
	if testing.Short() {
		t.Skip("with the race detector it takes many seconds")
	}
	s, err := parse(nil, io.Discard)
	require.NoError(t, err)
	w, err := s.read()
	require.NoError(t, err)

	results, err := compare(w, s.servers, s.contenders(w))
	require.NoError(t, err)
	for _, r := range results {
		require.Len(t, r.waitsOf(w.groups()[0].users), len(w.jobs), "every job has a wait")
	}
	drawn, err := os.ReadFile("../../docs/replay.svg")
	require.NoError(t, err)
	if string(draw(w, s.servers, results)) != strings.ReplaceAll(string(drawn), "\r\n", "\n") {
		t.Error("docs/replay.svg is stale: go run ./examples/replay -svg docs/replay.svg")
	}

	fifo := figuresOf(w, results[0].waits)
	for i, most := range []figures{
		{few: 8_000, mean: 1, little: 1},
		{few: 180, mean: 1.6, little: 2.2},
		{few: 3, mean: 0.70, little: 0.05},
		{few: 30, mean: 0.55, little: 0.03},
	} {
		figuresOf(w, results[i].waits).check(t, results[i].name, most, fifo)
	}
	simulated := func(l line) figures {
		waits := make(waits, len(w.names))
		require.NoError(t, simulate(w.jobs, s.servers, l, waits))
		return figuresOf(w, waits)
	}
	synctest.Test(t, func(t *testing.T) {
		byTime := figuresOf(w, results[2].waits)
		require.Equal(t, byTime, simulated(newInTime()), "the queue itself")
	})
}

// figures show how a line serves.
type figures struct {
	few    float64 // the median wait of users with few jobs
	mean   float64 // the mean wait of all
	little float64 // the p95 of users with little work
}

func figuresOf(w *workload, waits []sorted) figures {
	r, groups := result{waits: waits}, w.groups()
	of := func(group int, m measure) float64 { return float64(m.of(r.waitsOf(groups[group].users))) }
	return figures{of(1, median), of(0, mean), of(2, p95)}
}

// check compares figures with their limits: few in seconds, the others as parts of the FIFO's.
func (f figures) check(t *testing.T, name string, most, fifo figures) {
	t.Logf("%-28s few jobs: median %4g; all: mean %5g; little work: p95 %6g", name, f.few, f.mean,
		f.little)
	require.LessOrEqual(t, f.few, most.few, name)
	require.LessOrEqual(t, f.mean/fifo.mean, most.mean, name)
	require.LessOrEqual(t, f.little/fifo.little, most.little, name)
}
