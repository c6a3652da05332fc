package pool_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"regexp"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/memory"
)

var errNo = errors.New("no")

// quiet is a Logger for tests in which tasks are meant to fail.
var quiet = slog.New(slog.DiscardHandler)

// chance returns random numbers, and prints the seed.
func chance(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 12))
}

// inBubble runs a test by the clock of package synctest.
func inBubble(t *testing.T, f func(t *testing.T, ctx context.Context)) {
	synctest.Test(t, func(t *testing.T) { f(t, t.Context()) })
}

// gate is a handler that holds each task until it is let go.
type gate struct {
	leave chan error

	mu            sync.Mutex // protects all that follows
	running, most int
	started       []int // payloads
	at            []time.Time
}

func newGate() *gate { return &gate{leave: make(chan error)} }

func (g *gate) handle(ctx context.Context, t *task.Task[int]) error { return g.do(ctx, t.Payload) }

func (g *gate) do(ctx context.Context, payload int) error {
	g.mu.Lock()
	g.running++
	g.most = max(g.most, g.running)
	g.started = append(g.started, payload)
	g.at = append(g.at, time.Now())
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.running--
	}()
	select {
	case err := <-g.leave:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// let lets n tasks go, and waits for the effects.
func (g *gate) let(n int) {
	for range n {
		g.leave <- nil
	}
	synctest.Wait()
}

// now returns how many tasks run, and the payloads of all that were started.
func (g *gate) now() (running int, started []int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.running, append([]int(nil), g.started...)
}

// mailbox keeps letters.
type mailbox[V any] struct {
	mu      sync.Mutex
	letters []pool.DeadLetter[V]
}

func (m *mailbox[V]) sink(_ context.Context, letter *pool.DeadLetter[V]) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.letters = append(m.letters, *letter)
	return nil
}

func (m *mailbox[V]) all() []pool.DeadLetter[V] {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]pool.DeadLetter[V](nil), m.letters...)
}

// wait waits until all tasks are done and counted.
func wait[V any](t *testing.T, p *pool.Pool[V]) {
	t.Helper()
	require.NoError(t, p.Wait(t.Context()))
	synctest.Wait()
}

// end shuts a pool down, and checks that its queues are empty.
func end[V any](t *testing.T, ctx context.Context, p *pool.Pool[V]) {
	t.Helper()
	require.NoError(t, p.Shutdown(ctx))
	require.Empty(t, p.Leftovers())
}

// goroutines returns the number of goroutines in the caller's bubble, without the caller and two
// of package testing.
func goroutines() int {
	synctest.Wait()
	stacks := make([]byte, 1<<18)
	stacks = stacks[:runtime.Stack(stacks, true)]
	bubble := regexp.MustCompile(`synctest bubble \d+]:`).Find(stacks)
	return bytes.Count(stacks, bubble) - 3
}

// cleanUp shuts a pool down by force at the end of the test, so that a failing test in a bubble
// shows its reason.
func cleanUp(t *testing.T, shutdown func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	t.Cleanup(func() { _ = shutdown(ctx) })
}

// openFunc opens a pool with queues of its own.
func openFunc[V any](t *testing.T, handler pool.Handler[*task.Task[V]],
	o pool.Options[V],
) *pool.Pool[V] {
	if o.Logger == nil {
		o.Logger = quiet
	}
	p := pool.Func(handler, &o)
	cleanUp(t, p.Shutdown)
	return p
}

// requireLeft checks that an error of Shutdown says how many tasks are in Leftovers.
func requireLeft[V any](t *testing.T, p *pool.Pool[V], err error, n int) {
	t.Helper()
	require.Len(t, p.Leftovers(), n)
	require.ErrorIs(t, err, pool.ErrShutdown)
	require.ErrorContains(t, err, fmt.Sprintf("with %d of its tasks", n))
}

// openNew opens a pool that drains a queue.
func openNew[V any](t *testing.T, q *task.Queue[V], handler pool.Handler[*task.Task[V]],
	o pool.Options[V],
) *pool.Pool[V] {
	if o.Logger == nil {
		o.Logger = quiet
	}
	p := pool.New(q, handler, &o)
	cleanUp(t, p.Shutdown)
	return p
}

// openQueue opens a task queue in memory.
func openQueue[V any](t *testing.T, options *task.Options[V]) *task.Queue[V] {
	t.Helper()
	q, err := task.Open(t.Context(), new(memory.Store), "q", options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, q.Close(context.Background())) })
	return q
}

// on returns an Observer of one kind of event.
func on(kind pool.EventKind, f func(pool.Event[int])) func(context.Context, pool.Event[int]) {
	return func(_ context.Context, e pool.Event[int]) {
		if e.Kind == kind {
			f(e)
		}
	}
}
