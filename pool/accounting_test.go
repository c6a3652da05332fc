package pool_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

var (
	seed = flag.Uint64("seed", 0, "run the random tests with this seed only")
	runs = flag.Int("runs", 100, "how many runs the random tests make")
)

// forSeeds runs a test in a bubble for each seed. A failure names the seed; -seed repeats it.
func forSeeds(t *testing.T, f func(t *testing.T, seed uint64)) {
	first, n := uint64(1), *runs
	if *seed != 0 {
		first, n = *seed, 1
	}
	for s := first; s < first+uint64(n) && !t.Failed(); s++ {
		func() {
			defer func() {
				v := recover()
				if t.Failed() {
					t.Logf("seed %d", s) // that goroutines are left in the bubble then is no wonder
				} else if v != nil {
					panic(fmt.Sprintf("seed %d: %v", s, v))
				}
			}()
			synctest.Test(t, func(t *testing.T) { f(t, s) })
		}()
	}
}

// TestAccounting runs pools with random options and tasks, and accounts for each task: it was
// done, or is in exactly one place. Whenever nothing moves, no idle worker could run a task.
func TestAccounting(t *testing.T) {
	forSeeds(t, func(t *testing.T, seed uint64) {
		l := newLedger(t, seed)
		l.run()
		if !t.Failed() {
			l.balance()
		}
	})
}

// ledger drives a pool, and knows what becomes of each task.
type ledger struct {
	*testing.T
	rand    *rand.Rand // of the driver, not of the producers
	ctx     context.Context
	stop    context.CancelFunc // of ctx: calls that still wait for a task give up
	options pool.Options[*chore]
	p       *pool.Pool[*chore]
	classes []*testClass
	sinks   string // what DeadLetters do
	nesting bool   // handlers submit tasks, or use Yield
	slow    bool   // all calls are slow transactions
	closer  bool   // the caller closes a queue in between
	broken  bool   // the Observer panics, each time
	all     sync.WaitGroup
	encoded sync.Map // chores by id

	mu        sync.Mutex // protects all that follows
	chores    []*chore
	running   int  // handlers that are not in Yield
	nested    int  // workers in Yield
	most      int  // handlers that may run; 0 means that it is being changed
	paused    bool // for sure
	closing   bool // Shutdown was called
	forced    bool // with a limit
	ended     bool // one has returned
	abandoned bool
	events    [16]uint64 // of the Observer, by kind
	// failures of tasks whose attempts were used up, so that no handler was called
	spent uint64
}

func newLedger(t *testing.T, seed uint64) *ledger {
	l := &ledger{T: t, rand: rand.New(rand.NewPCG(seed, 21))}
	l.ctx, l.stop = context.WithCancel(t.Context())
	r := l.rand
	l.nesting, l.closer = r.IntN(2) == 0, r.IntN(10) == 0
	l.slow, l.broken = r.IntN(3) == 0, seed%4 == 0
	l.sinks = []string{"none", "take", "take", "fail", "moody"}[r.IntN(5)]
	o := &l.options
	o.Logger, o.Observer, o.AbandonAfter = slog.New(slog.DiscardHandler), l.observe,
		time.Duration(1+r.IntN(500))*time.Millisecond
	if seed%2 > 0 { // acks and takes are one call then
		o.Observer = nil
	}
	if l.sinks != "none" {
		o.DeadLetters = l.sink
	}
	if r.IntN(2) == 0 {
		o.Workers = 1 + r.IntN(4)
		l.most = o.Workers
	} else {
		o.Scale = pool.Scale{
			Max:         1 + r.IntN(4),
			IdleTimeout: time.Duration(1+r.IntN(300)) * time.Millisecond,
		}
		o.Scale.Min = r.IntN(o.Scale.Max + 1)
		l.most = o.Scale.Max
	}
	o.Policy = pool.Policy{
		MaxAttempts: r.IntN(5) - 1,
		Backoff: pool.Backoff{
			Base: 10 * time.Millisecond, Max: 100 * time.Millisecond,
			Jitter: float64(r.IntN(3)) / 2,
		},
	}
	if r.IntN(3) == 0 {
		o.Policy.Timeout = time.Duration(5+r.IntN(100)) * time.Millisecond
	}
	o.Prefetch = []int{0, -1, 1, 3, 20}[r.IntN(5)]
	if r.IntN(3) == 0 {
		o.Filter.Kinds = []string{"", "x"}
	}
	if r.IntN(3) == 0 {
		o.Filter.MaxPriority = new(r.IntN(3))
	}
	o.Strict = r.IntN(2) == 0
	l.open()
	return l
}

// passes reports whether the pool may take a task.
func (l *ledger) passes(t *task.Task[*chore]) bool {
	f := l.options.Filter
	return (f.Kinds == nil || slices.Contains(f.Kinds, t.Kind)) &&
		(f.MaxPriority == nil || t.Priority <= *f.MaxPriority)
}

// observe is the Observer.
func (l *ledger) observe(_ context.Context, e pool.Event[*chore]) {
	if t := e.Task; t != nil {
		if c := t.Payload; c != nil && (c.class.name != e.Class || c.key != t.Key) {
			l.Errorf("told of class %q and key %q: %v", e.Class, t.Key, c)
		}
		if e.Kind == pool.EventFailed && strings.Contains(e.Err.Error(), "has ended without a result") {
			l.count(&l.spent)
			if c := t.Payload; c != nil {
				assert.Equal(l, l.maxAttempts(c), t.Attempts)
			}
		}
	}
	if e.Kind != pool.EventDeadLetter || e.Err == nil {
		l.count(&l.events[e.Kind])
	}
	if l.broken {
		panic("the observer is broken")
	}
}

var errSink = errors.New("the sink is full")

// sink is DeadLetters.
func (l *ledger) sink(_ context.Context, letter *pool.DeadLetter[*chore]) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := letter.Payload
	mood := (c.id + len(c.refusals)) % 3
	if l.sinks == "fail" || l.sinks == "moody" && mood == 1 {
		c.refusals = append(c.refusals, letter.Reason)
		return errSink
	}
	if l.sinks == "moody" && mood == 2 {
		c.refusals = append(c.refusals, letter.Reason)
		panic(errSink)
	}
	c.letters = append(c.letters, *letter)
	return nil
}

// run lets producers submit, and interferes, until the pool is shut down.
func (l *ledger) run() {
	for i := range 1 + l.rand.IntN(4) {
		r := rand.New(rand.NewPCG(l.rand.Uint64(), uint64(i)))
		l.all.Go(func() { l.produce(r) })
	}
	for range 10 + l.rand.IntN(30) {
		l.interfere()
		if l.rand.IntN(2) == 0 {
			time.Sleep(time.Duration(l.rand.IntN(40)) * time.Millisecond)
		}
		synctest.Wait()
		l.checkIdle()
		if l.Failed() {
			break
		}
	}
	l.shutdown()
	l.stop()
	for _, n := range l.classes {
		if n.store != nil {
			l.look(n)
		}
	}
	l.all.Wait()
	time.Sleep(time.Second) // for transactions that nobody waits for any more
}

// interfere does something that changes what the pool may do.
func (l *ledger) interfere() {
	r := l.rand
	n := l.classes[r.IntN(len(l.classes))]
	switch r.IntN(14) {
	case 0:
		l.set(func() {}, l.p.Pause, func() { l.paused = !l.closing })
	case 1, 2:
		l.set(func() { l.paused = false }, l.p.Resume, func() {})
	case 3, 4:
		l.setWorkers()
	case 5, 6, 7:
		if n.store != nil {
			l.rival(n, r.Uint64())
		}
	case 8:
		if n.store != nil && !n.closed {
			l.kick(n)
		}
	case 9:
		if n.store != nil && !n.closed && l.closer {
			l.note(&n.closed) // handlers look at it
			require.NoError(l, n.queue.Close(l.ctx))
		}
	case 10:
		if n.store != nil && !n.closed {
			require.NoError(l, n.queue.PauseKey(l.ctx, choreKeys[0]))
		}
	case 11:
		if n.store != nil && !n.closed {
			require.NoError(l, n.queue.ResumeKey(l.ctx, choreKeys[0]))
		}
	}
}

func (l *ledger) kick(n *testClass) {
	buried, err := n.queue.List(l.ctx, task.ListOptions{State: task.Buried})
	require.NoError(l, err)
	for _, t := range buried {
		l.note(&t.Payload.kicked)
		if err := n.queue.KickID(l.ctx, t.ID); err != nil {
			require.ErrorIs(l, err, task.ErrNotFound) // its time was over just now
		}
	}
}

// set makes a change. Its effect is certain only when nothing moves any more, and no task that was
// taken before it waits for a worker.
func (l *ledger) set(before, change, after func()) {
	l.mu.Lock()
	before()
	l.mu.Unlock()
	change()
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.settled() {
		after()
	}
}

func (l *ledger) setWorkers() {
	most := l.rand.IntN(5)
	least := l.rand.IntN(most + 1)
	l.set(func() { l.most = 0 }, func() { require.NoError(l, l.p.SetWorkers(least, most)) }, func() {
		l.most = most
		if most == 0 {
			l.most = max(l.options.Workers, l.options.Scale.Max)
		}
	})
}
