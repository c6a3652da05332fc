// Package kvtest tests stores over a [kv.Map] on a server.
package kvtest

import (
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/internal/storetest"
	"github.com/fairq/fairq/store/internal/faulttest"
	"github.com/fairq/fairq/store/internal/kv"
	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/store/internal/rows/rowstest"
	"github.com/fairq/fairq/task"
)

// handle is the database of one process. It claims to report other processes' changes by itself.
type handle struct {
	*kv.DB
	m kv.Map
}

func (handle) ReportsChanges() bool { return true }

// Again is Again of the DB without a pause, because time would pass in it.
func (h handle) Again(err error) (time.Duration, bool) {
	_, again := h.DB.Again(err)
	return 0, again
}

// Reopen is called by rowstest.
func (h handle) Reopen(t *testing.T) rows.DB { return newHandle(t, h.m) }

func newHandle(t *testing.T, m kv.Map) handle {
	// the tests ask for the exact order
	db, err := kv.Open(t.Context(), "kvtest", kv.Buffered{Map: m}, kv.Options{Strict: true})
	require.NoError(t, err)
	return handle{db, m}
}

// Rows tests the tables. empty returns an empty Map.
func Rows(t *testing.T, empty func(t *testing.T) kv.Map) {
	rowstest.Run(t, func(t *testing.T) rows.DB { return newHandle(t, empty(t)) })
}

// outside is a Map for a bubble of testing/synctest: goroutines outside the bubble make its calls,
// and may wait for the network.
type outside struct {
	kv.Map
	callers chan *caller
}

type caller struct{ calls, done chan func() }

func newCallers(t *testing.T) chan *caller {
	callers := make(chan *caller, 64)
	for range cap(callers) {
		c := &caller{make(chan func()), make(chan func())}
		go func() {
			for f := range c.calls {
				f()
				c.done <- nil
			}
		}()
		t.Cleanup(func() { close(c.calls) })
		callers <- c
	}
	return callers
}

func (o outside) call(f func()) {
	c := <-o.callers
	c.calls <- f
	<-c.done
	o.callers <- c
}

func (o outside) Read(
	_ context.Context, at any, keys [][]byte, spans []kv.Span,
) (found kv.Found, err error) {
	o.call(func() { found, err = o.Map.Read(context.Background(), at, keys, spans) })
	return found, err
}

func (o outside) Commit(
	_ context.Context, at any, guards []kv.Guard, clears []kv.Span, writes []*kv.Entry,
) (err error) {
	o.call(func() { err = o.Map.Commit(context.Background(), at, guards, clears, writes) })
	return err
}

// store is the store of one process, which can be killed.
type store struct {
	*rows.Store
	*mortal
}

type mortal struct {
	kv.Map
	dead bool
}

func (m *mortal) Read(
	ctx context.Context, at any, keys [][]byte, spans []kv.Span,
) (kv.Found, error) {
	if m.dead {
		return kv.Found{}, context.Canceled
	}
	return m.Map.Read(ctx, at, keys, spans)
}

func newStore(t *testing.T, m kv.Map) task.Store {
	s := store{mortal: &mortal{Map: m}}
	s.Store = rows.New(newHandle(t, s.mortal),
		rows.Options{MaxPayload: 2 << 20, Poll: 10 * time.Second})
	return s
}

func (s store) Reopen(t *testing.T) task.Store { return newStore(t, s.Map) }
func (s store) Kill(*testing.T)                { s.dead = true }

// Store tests a store, and expects the order of one process. empty returns an empty Map.
func Store(t *testing.T, empty func(t *testing.T) kv.Map) {
	callers := newCallers(t)
	storetest.Run(t, func(t *testing.T) task.Store { return newStore(t, outside{empty(t), callers}) })
}

// Faulty is a Map with a fault, "" meaning none.
type Faulty struct {
	kv.Map
	Fault string
}

// Unknown reports some commits as unknown, Unguarded commits have no guards.
const (
	Unknown   = "unknown"
	Unguarded = "unguarded"
)

// Commit implements kv.Map.
func (f Faulty) Commit(
	ctx context.Context, at any, guards []kv.Guard, clears []kv.Span, writes []*kv.Entry,
) error {
	if f.Fault == Unguarded {
		guards = nil
	}
	err := f.Map.Commit(ctx, at, guards, clears, writes)
	if f.Fault == Unknown && err == nil && rand.IntN(10) == 0 {
		err = kv.ErrUnknown
	}
	return err
}

// Finds checks that Kill finds the fault of a Map without guards, within a second. A test named
// TestUnguarded must call it. where returns where the tasks of that Map are.
func Finds(t *testing.T, open faulttest.Opener, where func() string) {
	const env = "FAIRQ_UNGUARDED"
	if where, ok := os.LookupEnv(env); ok {
		faulttest.Kill(t, open, where)
		return
	}
	t.Parallel()
	program, err := os.Executable()
	require.NoError(t, err)
	c := exec.CommandContext(t.Context(), program, "-test.run=^TestUnguarded$")
	c.Env = append(os.Environ(), env+"="+where())
	out, err := c.CombinedOutput()
	require.Error(t, err)
	t.Logf("%.500s", out)
}
