package main

import (
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

func (l inTime) done(j job) { _ = l.Done(j) }

func TestByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(3, 4))
		for range 200 {
			jobs, servers := randomJobs(r), 1+r.IntN(6)
			var want, got diary
			require.NoError(t, simulate(jobs, servers, newInTime(), &want))
			require.NoError(t, simulate(jobs, servers, &byTime{}, &got))
			require.Equal(t, want, got)
		}
	})
}

// The main claims, on the whole log.
func TestBuiltInReplay(t *testing.T) {
	if testing.Short() {
		t.Skip("with the race detector it takes many seconds")
	}
	s := settings{servers: 1600, quantum: 0.1}
	w, err := s.read()
	require.NoError(t, err)
	results, err := compare(w, s.servers, s.contenders(w))
	require.NoError(t, err)
	drawn, err := os.ReadFile("../../docs/replay.svg")
	require.NoError(t, err)
	if string(draw(w, s.servers, results)) != strings.ReplaceAll(string(drawn), "\r\n", "\n") {
		t.Error("docs/replay.svg is stale: go run ./examples/replay -svg docs/replay.svg")
	}

	groups := w.groups()
	wait := func(line, group int, m measure) float64 {
		return float64(results[line].wait(m, groups[group].users))
	}
	for i, most := range []struct {
		few          float64 // seconds: the median of users with few jobs
		mean, little float64 // parts of the FIFO's: the mean of all; the p95 of users with little work
	}{{8_000, 1, 1}, {180, 1.6, 2.2}, {3, 0.70, 0.05}, {30, 0.55, 0.03}} {
		name := results[i].name
		require.LessOrEqual(t, wait(i, 1, median), most.few, name)
		require.LessOrEqual(t, wait(i, 0, mean)/wait(0, 0, mean), most.mean, name)
		require.LessOrEqual(t, wait(i, 2, p95)/wait(0, 2, p95), most.little, name)
	}
	synctest.Test(t, func(t *testing.T) {
		queue, err := compare(w, s.servers, []contender{{results[2].name, newInTime()}})
		require.NoError(t, err)
		require.Equal(t, results[2], queue[0], "the rule and the queue itself")
	})
}
