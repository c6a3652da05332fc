package etcd

import (
	"context"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fairq/fairq/internal/storetest"
	"github.com/fairq/fairq/store/internal/kv"
	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/store/internal/rows/rowstest"
	"github.com/fairq/fairq/task"
)

// handle is the database of one process.
type handle struct {
	*kv.DB
	engine kv.Engine
}

// Reopen is called by rowstest.
func (h handle) Reopen(t *testing.T) rows.DB { return newHandle(t, h.engine) }

func newHandle(t *testing.T, e kv.Engine) handle {
	// the tests ask for the exact order
	db, err := kv.Open(t.Context(), "etcd", e, kv.Options{Strict: true})
	require.NoError(t, err)
	return handle{db, e}
}

// emptyEngine returns an engine over an empty database.
func emptyEngine(t *testing.T, client *clientv3.Client) *engine {
	_, prefix, _ := strings.Cut(newDatabase(t, 1), "#")
	return &engine{client: client, prefix: prefix, maxOps: maxOps}
}

// newClient returns a client of the shared cluster with n servers.
func newClient(t *testing.T, members int) *clientv3.Client {
	client, err := dial(t.Context(), newDatabase(t, members))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

func TestRows(t *testing.T)        { testRows(t, 1) }
func TestRowsMembers(t *testing.T) { testRows(t, 3) }

func testRows(t *testing.T, members int) {
	if testing.Short() {
		t.Skip("TestKill shows most of it")
	}
	client := newClient(t, members)
	rowstest.Run(t, func(t *testing.T) rows.DB {
		return teller{newHandle(t, emptyEngine(t, client))}
	})
}

// teller claims to report other processes' changes by itself.
type teller struct{ handle }

func (teller) ReportsChanges() bool { return true }

func (h teller) Reopen(t *testing.T) rows.DB { return teller{newHandle(t, h.engine)} }

// outside is an engine for a bubble of testing/synctest: goroutines outside the bubble make its
// calls, and may wait for the network.
type outside struct {
	kv.Engine
	callers chan *caller
}

type caller struct{ calls, done chan func() }

func newOutside(t *testing.T, e kv.Engine) outside {
	o := outside{e, make(chan *caller, 64)}
	for range cap(o.callers) {
		c := &caller{make(chan func()), make(chan func())}
		go func() {
			for f := range c.calls {
				f()
				c.done <- nil
			}
		}()
		t.Cleanup(func() { close(c.calls) })
		o.callers <- c
	}
	return o
}

func (o outside) call(f func()) {
	c := <-o.callers
	c.calls <- f
	<-c.done
	o.callers <- c
}

func (o outside) Begin(ctx context.Context) (x kv.Txn, err error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	o.call(func() { x, err = o.Engine.Begin(context.Background()) })
	return outsideTxn{x, o}, err
}

type outsideTxn struct {
	kv.Txn
	outside
}

func (x outsideTxn) Get(key []byte) (value []byte, err error) {
	x.call(func() { value, err = x.Txn.Get(key) })
	return value, err
}

func (x outsideTxn) Fetch(keys [][]byte, spans ...kv.Span) (err error) {
	x.call(func() { err = x.Txn.Fetch(keys, spans...) })
	return err
}

func (x outsideTxn) Scan(s kv.Span) iter.Seq2[kv.Entry, error] {
	return func(yield func(kv.Entry, error) bool) {
		type result struct {
			kv.Entry
			error
		}
		var all []result
		x.call(func() {
			for e, err := range x.Txn.Scan(s) {
				all = append(all, result{e, err})
			}
		})
		for _, r := range all {
			if !yield(r.Entry, r.error) {
				return
			}
		}
	}
}

func (x outsideTxn) Commit() (err error) {
	x.call(func() { err = x.Txn.Commit() })
	return err
}

// store is the store of one process.
type store struct {
	*rows.Store
	t      *testing.T
	engine *mortal
}

// mortal is an engine that can be killed.
type mortal struct {
	kv.Engine
	dead bool
}

func (m *mortal) Begin(ctx context.Context) (kv.Txn, error) {
	if m.dead {
		return nil, context.Canceled
	}
	return m.Engine.Begin(ctx)
}

func newStore(t *testing.T, e kv.Engine) task.Store {
	m := &mortal{Engine: e}
	db := newHandle(t, m)
	return &store{rows.New(db, rows.Options{MaxPayload: 2 << 20, Poll: 10 * time.Second}), t, m}
}

func (s *store) Reopen(t *testing.T) task.Store { return newStore(t, s.engine.Engine) }
func (s *store) Kill(*testing.T)                { s.engine.dead = true }

// TestStore expects the order of one process.
func TestStore(t *testing.T)        { testStore(t, 1) }
func TestStoreMembers(t *testing.T) { testStore(t, 3) }

func testStore(t *testing.T, members int) {
	if testing.Short() {
		t.Skip("it takes minutes")
	}
	t.Parallel()
	client := newClient(t, members)
	o := newOutside(t, nil)
	storetest.Run(t, func(t *testing.T) task.Store {
		return newStore(t, outside{emptyEngine(t, client), o.callers})
	})
}
