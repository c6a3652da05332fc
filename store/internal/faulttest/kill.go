package faulttest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/task"
)

// killed are the queues of Kill.
var killed = []string{"plain", "limited"}

// Kill ends random processes, of some that put tasks and some that work on them: four in five by
// a kill, the others by Stop. New ones take their places. At last it audits the journal.
func Kill(t *testing.T, open Opener, where string) { kill(t, open, where, false) }

// KillLate is Kill for a database whose servers are killed too, so that timed events may be late.
func KillLate(t *testing.T, open Opener, where string) { kill(t, open, where, true) }

func kill(t *testing.T, open Opener, where string, late bool) {
	seed, rounds := rand.Uint64(), 30
	if testing.Short() {
		rounds = 5
	}
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	journal, path := newJournal(t)
	s, err := open(context.Background(), where)
	require.NoError(t, err)
	started := 0
	start := func(role string, slot int) *Process {
		started++
		return Start(t, Job{
			Role: role, Name: fmt.Sprint(role, started), Where: where, Journal: path,
			Seed: random.Uint64(), Slot: slot,
		})
	}
	var running []*Process
	for slot := range 2 {
		running = append(running, start("put", slot), start("work", slot))
	}
	for range rounds {
		i, how := random.IntN(len(running)), random.IntN(5)
		p := running[i]
		if how > 0 { // one process in five is killed while it opens the database
			require.Equal(t, "ready", p.Await())
		}
		time.Sleep(time.Duration(random.IntN(150)) * time.Millisecond)
		if how == 1 {
			p.Stop()
		} else {
			p.kill(journal)
		}
		running[i] = running[len(running)-1]
		running[len(running)-1] = start(p.Role, p.Slot)
	}
	for _, p := range running {
		p.kill(journal)
	}
	a := newAudit(t)
	a.late = late
	a.finish(s, journal, path, killed...)
	require.LessOrEqual(t, a.unrecorded, a.kills*24,
		"tasks have more attempts than there can have been")
	if rounds >= 50 { // of a few, perhaps none is killed while it has tasks
		require.NotZero(t, a.back)
	}
}

// finish does the remaining tasks, and compares all outcomes with the journal.
func (a *audit) finish(s Store, journal *journal, path string, queues ...string) {
	gone := drain(a.t, s, journal, queues...)
	require.NoError(a.t, s.Close())
	a.read(readJournal(a.t, path))
	a.end(gone)
	a.t.Logf("%d kills, %d tasks put, %d leases of the dead came back, %d waited for outcomes, "+
		"%d leases lost, %d takes nobody knew of, %d errors, the longest call took %v",
		a.kills, len(a.tasks), a.back, a.waits, a.lost, a.unrecorded, a.errors, a.longest)
}

// testSelf is the process of the test itself.
func testSelf(stop context.Context, s Store, journal *journal) *Self {
	return &Self{Job: Job{Name: "test"}, Store: s, Journal: journal, Stop: stop}
}

// drain works until some queues are empty, and returns all tasks that have ever been in them.
func drain(t testing.TB, s Store, journal *journal, names ...string) map[string][]driver.Ended {
	gone := map[string][]driver.Ended{}
	for _, name := range names {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		l, err := testSelf(ctx, s, journal).open(name)
		require.NoError(t, err)
		for left, wait := 1, 100*time.Millisecond; left > 0; wait *= 2 { // a Take may be slow here
			left = l.drainSome(t, wait)
		}
		journal.write(line{Op: "close"})
		gone[name] = l.gone(t)
		require.NoError(t, l.queue.Close(context.Background()))
	}
	return gone
}

// drainSome does the tasks that can be taken without a longer wait, and returns how many are left.
func (l *load) drainSome(t testing.TB, wait time.Duration) int {
	last, err := l.queue.Stats(l.Stop)
	require.NoError(t, err)
	held, err := l.queue.List(l.Stop, task.ListOptions{State: driver.Held, Limit: 1000})
	require.NoError(t, err)
	for _, h := range held {
		// An AtEnd or AtAbort task still waits for members that may end by themselves.
		if h.Info().Role == driver.Member || len(held) == last.Len() {
			require.NoError(t, l.endGroup("start", h.Info().Group))
		}
	}
	_, err = l.queue.Kick(l.Stop, task.ListOptions{Limit: 1000})
	require.NoError(t, err)
	for {
		ctx, cancel := context.WithTimeout(l.Stop, wait)
		taken, err := l.queue.TakeBatch(ctx, 100)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && l.Stop.Err() == nil {
			break
		}
		require.NoError(t, err, "%s: %+v", l.name, last)
		var wg sync.WaitGroup
		for _, one := range taken {
			lease := l.took(one)
			wg.Go(func() { assert.NoError(t, l.settle(lease, "ack")) })
		}
		wg.Wait()
	}
	stats, err := l.queue.Stats(l.Stop)
	require.NoError(t, err)
	require.GreaterOrEqual(t, stats.Len(), stats.Keys)
	return stats.Len()
}

// gone returns all tasks that have left, and checks the outcomes of the last of each unique key.
func (l *load) gone(t testing.TB) (all []driver.Ended) {
	last := map[string]error{}
	for after := driver.ID(0); ; {
		page, err := l.Store.History(l.Stop, l.name, after, 1000)
		require.NoError(t, err)
		for _, e := range page {
			require.Greater(t, e.ID, after)
			if after = e.ID; e.UniqueKey != "" {
				last[e.UniqueKey] = e.Outcome
			}
		}
		if all = append(all, page...); len(page) == 0 {
			break
		}
	}
	for uniqueKey, outcome := range last {
		require.Equal(t, outcome, l.queue.Wait(l.Stop, uniqueKey), uniqueKey)
	}
	return all
}
