package faulttest

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

func init() { ownRoles["pool"] = (*Self).pool }

// Outage is something that makes a database fail for a while.
type Outage struct {
	Name string
	Run  func(t *testing.T)
}

// Outages lets this process and another one put tasks, and their pools do them, while the database
// fails. It checks that they go on by themselves afterwards, and audits the journal.
func Outages(t *testing.T, open Opener, where string, outages []Outage) {
	journal, path := newJournal(t)
	s, err := open(context.Background(), where)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	own, err := testSelf(ctx, s, journal).startPool()
	require.NoError(t, err)
	defer func() { _ = own.stopped() }()
	defer cancel()
	other := Start(t, Job{Role: "pool", Name: "pool", Where: where, Journal: path})
	goOn := func(after string) {
		t.Helper()
		other.proceed()
		begun := time.Now()
		require.NoError(t, own.goesOn(), after)
		require.Equal(t, "goes on", other.Await(), after)
		t.Logf("%s: all went on %v later", after, time.Since(begun))
	}
	goOn("beginning")
	for range 2 {
		for _, o := range outages {
			o.Run(t)
			goOn(o.Name)
		}
	}
	other.Stop()
	cancel()
	require.NoError(t, own.end())
	a := newAudit(t)
	a.outages = true
	a.finish(s, journal, path, "plain")
	require.Eventually(t, func() bool { return len(goroutines()) == 0 }, timeout, time.Millisecond,
		"%v", goroutines())
}

// poolLoad puts tasks, and lets a pool do them.
type poolLoad struct {
	*load
	pool      *pool.Pool[string]
	stopped   func() error // waits for the producers
	put, done atomic.Int64
}

func (s *Self) startPool() (*poolLoad, error) {
	l, err := s.open("plain")
	if err != nil {
		return nil, err
	}
	c := &poolLoad{load: l}
	c.pool = pool.New(l.queue, c.handle, &pool.Options[string]{
		Workers: 4,
		Policy: pool.Policy{
			MaxAttempts: -1, Backoff: pool.Backoff{Base: time.Millisecond, Max: 10 * time.Millisecond},
		},
		Logger: slog.New(slog.DiscardHandler),
	})
	pace := time.Tick(time.Millisecond)
	c.stopped = sync.OnceValue(l.start(2, func(l *load) error { // puts, whatever the outcome
		<-pace
		p := l.newPut()
		p.MaxAttempts = 0
		if l.put(p) == nil {
			c.put.Add(1)
		}
		return nil
	}))
	return c, nil
}

// handle writes down how the pool will settle a task.
func (c *poolLoad) handle(_ context.Context, t *task.Task[string]) error {
	took := c.took(t)
	if rand.IntN(10) == 0 {
		c.begin("release", took)
		return fmt.Errorf("failed %s", t.Payload)
	}
	c.begin("ack", took)
	c.done.Add(1)
	return nil
}

// goesOn waits until some more tasks were put, and done.
func (c *poolLoad) goesOn() error {
	put, done, late := c.put.Load()+20, c.done.Load()+20, time.Now().Add(timeout)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for c.put.Load() < put || c.done.Load() < done {
		if <-tick.C; time.Now().After(late) {
			return fmt.Errorf("%s does not go on: of 20 puts %d are missing, of 20 tasks done %d",
				c.Name, put-c.put.Load(), done-c.done.Load())
		}
	}
	return nil
}

func (c *poolLoad) end() error {
	_ = c.stopped() // it is always nil
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := c.pool.Shutdown(ctx); err != nil {
		return err
	}
	return c.close(c.load)
}

// pool puts and does tasks, and reports progress whenever the test asks.
func (s *Self) pool() error {
	c, err := s.startPool()
	// others write all the time, and no call waits for long here
	for begun := time.Now(); err != nil && time.Since(begun) < timeout; {
		c, err = s.startPool()
	}
	if err != nil {
		return err
	}
	for s.await() == nil {
		if err := c.goesOn(); err != nil {
			return err
		}
		s.Say("goes on")
	}
	return c.end()
}

// goroutines returns the stacks of goroutines that run code of this repository, or of its
// dependencies, and are no tests.
func goroutines() (stacks []string) {
	text := make([]byte, 1<<20)
	text = text[:runtime.Stack(text, true)]
	for stack := range strings.SplitSeq(string(text), "\n\n") {
		foreign := strings.Contains(stack, "testing.tRunner") ||
			strings.Contains(stack, "faulttest.Start") ||
			strings.Contains(stack, "pgtest.") || strings.Contains(stack, "faulttest.goroutines")
		if !foreign && (strings.Contains(stack, "fairq") || strings.Contains(stack, "pgx")) {
			stacks = append(stacks, stack)
		}
	}
	return stacks
}
