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

// Kill ends processes that put tasks, and others that work on them, at random moments, and audits
// the journal. It kills four in five of them. Each ended process is replaced; the others go on.
func Kill(t *testing.T, open Opener, where string) { newKiller(t, where).run(open) }

// KillLate is Kill for a database whose servers are killed too, so that timed events may be late.
func KillLate(t *testing.T, open Opener, where string) {
	k := newKiller(t, where)
	k.late = true
	k.run(open)
}

func (k *killer) run(open Opener) {
	s, err := open(context.Background(), k.where)
	require.NoError(k.t, err)
	stop := bystanders(k.t, s, k.journal)
	var running []*Process
	for slot := range 2 {
		running = append(running, k.start("put", slot), k.start("work", slot))
	}
	for range k.rounds {
		i := k.random.IntN(len(running))
		p := running[i]
		k.end(p)
		running[i] = running[len(running)-1]
		running[len(running)-1] = k.start(p.Role, p.Slot)
	}
	for _, p := range running {
		p.kill(k.journal)
	}
	stop()
	k.audit(s)
}

// killer kills processes.
type killer struct {
	t       *testing.T
	where   string
	rounds  int
	random  *rand.Rand
	journal *journal
	path    string // of the journal
	started int
	late    bool // see audit
}

func newKiller(t *testing.T, where string) *killer {
	k := &killer{t: t, where: where, rounds: 30}
	if testing.Short() {
		k.rounds = 5
	}
	seed := rand.Uint64()
	t.Log("seed", seed)
	k.random = rand.New(rand.NewPCG(seed, 0))
	k.journal, k.path = newJournal(t)
	return k
}

func (k *killer) start(role string, slot int) *Process {
	k.started++
	return Start(k.t, Job{
		Role: role, Name: fmt.Sprint(role, k.started), Where: k.where, Journal: k.path,
		Seed: k.random.Uint64(), Slot: slot,
	})
}

// end ends a process after a while.
func (k *killer) end(p *Process) {
	how := k.random.IntN(5)
	if how > 0 { // one process in five is killed while it opens the database
		require.Equal(k.t, "ready", p.Await())
	}
	time.Sleep(time.Duration(k.random.IntN(150)) * time.Millisecond)
	if how == 1 {
		p.Stop()
	} else {
		p.kill(k.journal)
	}
}

// audit finishes the remaining tasks, and compares all outcomes with the journal.
func (k *killer) audit(s Store) {
	gone := drain(k.t, s, k.journal, killed...)
	require.NoError(k.t, s.Close())
	a := newAudit(k.t)
	a.late = k.late
	a.read(readJournal(k.t, k.path))
	a.end(gone)
	require.LessOrEqual(k.t, a.unrecorded, a.kills*24,
		"tasks have more attempts than there can have been")
	if k.rounds >= 50 { // of a few, perhaps none is killed while it has tasks
		require.NotZero(k.t, a.back)
	}
	k.t.Logf("%d kills, %d tasks put, %d leases of the dead came back, %d waited for outcomes, "+
		"%d leases of stalled processes lost, %d takes nobody knew of, the longest call took %v",
		a.kills, len(a.tasks), a.back, a.waits, a.lost, a.unrecorded, a.longest)
}

// bystanders puts tasks with unique keys, and waits for them, until the function that it returns
// is called.
func bystanders(t *testing.T, s Store, journal *journal) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var waits []func() error
	self := testSelf(ctx, s, journal)
	self.Slot = 10
	for _, name := range killed {
		l, err := self.open(name)
		require.NoError(t, err)
		waits = append(waits, l.start(2, (*load).putUnique))
		t.Cleanup(func() { l.queue.Close(context.Background()) })
	}
	return func() {
		cancel()
		for _, wait := range waits {
			assert.NoError(t, wait())
		}
	}
}

// testSelf is the process of the test itself.
func testSelf(stop context.Context, s Store, journal *journal) *Self {
	return &Self{Job: Job{Name: "test"}, Store: s, Journal: journal, Stop: stop}
}

// drain works until some queues are empty, and returns all tasks that have ever been in them.
func drain(t *testing.T, s Store, journal *journal, names ...string) map[string][]driver.Ended {
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
		l.outcomes(t, gone[name])
		require.NoError(t, l.queue.Close(context.Background()))
	}
	return gone
}

// drainSome does the tasks that can be taken without a longer wait, and returns how many are left.
func (l *load) drainSome(t *testing.T, wait time.Duration) int {
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

func (l *load) gone(t *testing.T) (all []driver.Ended) {
	for after := driver.ID(0); ; {
		page, err := l.Store.History(l.Stop, l.name, after, 1000)
		require.NoError(t, err)
		if len(page) == 0 {
			return all
		}
		for _, e := range page {
			require.Greater(t, e.ID, after)
			after = e.ID
		}
		all = append(all, page...)
	}
}

// outcomes asks for the outcome of the last task of each unique key.
func (l *load) outcomes(t *testing.T, gone []driver.Ended) {
	last := map[string]driver.Ended{}
	for _, e := range gone {
		if e.UniqueKey != "" {
			last[e.UniqueKey] = e
		}
	}
	for uniqueKey, e := range last {
		require.Equal(t, e.Outcome, l.queue.Wait(l.Stop, uniqueKey), uniqueKey)
	}
}
