package pool_test

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/memory"
)

var errStore = errors.New("the store is away")

// database is a Store whose calls by workers are slow transactions, one after the other. Calls
// made during a transaction share the next one.
type database struct {
	memory.Store
	takes time.Duration
	// reports whether a transaction with this call fails; nil means that none does
	fails func(call string) bool

	mu       sync.Mutex // protects all that follows
	waiting  []*call
	running  bool
	count    int       // transactions
	troubled time.Time // time of the last failure
}

type call struct {
	name string
	f    func() error
	gone bool // its caller does not wait any more
	done chan error
}

type table struct {
	driver.Backend
	store *database
}

func (s *database) Open(ctx context.Context, name string, settings driver.Settings,
	n driver.Notifier,
) (driver.Backend, error) {
	b, err := s.Store.Open(ctx, name, settings, encoding{n})
	return &table{b, s}, err
}

// do does a call in the next transaction.
func (s *database) do(ctx context.Context, name string, f func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c := &call{name: name, f: f, done: make(chan error, 1)}
	s.mu.Lock()
	s.waiting = append(s.waiting, c)
	if !s.running {
		s.running = true
		go s.run()
	}
	s.mu.Unlock()
	select {
	case err := <-c.done:
		return err
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case err := <-c.done:
		return err
	default:
		c.gone = true
		return ctx.Err()
	}
}

// run does transactions as long as there are calls.
func (s *database) run() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.waiting) > 0 {
		calls := s.waiting
		s.waiting = nil
		s.mu.Unlock()
		time.Sleep(s.takes)
		s.mu.Lock()
		s.count++
		failed := false
		for _, c := range calls {
			failed = failed || s.fails != nil && s.fails(c.name)
		}
		for _, c := range calls {
			switch {
			case failed:
				s.troubled = time.Now()
				c.done <- errStore
			case !c.gone:
				c.done <- c.f()
			}
		}
	}
	s.running = false
}

// quiet reports whether no transaction runs, and the last failure is long enough ago that every
// call has retried.
func (s *database) quiet() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.running && (s.troubled.IsZero() || time.Since(s.troubled) > 2*time.Second)
}

func (b *table) Take(ctx context.Context, by *driver.Taker,
	into []driver.Record,
) (n int, err error) {
	err = b.store.do(ctx, "take", func() error {
		var bad error
		n, bad = b.Backend.Take(ctx, by, into)
		return bad
	})
	return n, err
}

func (b *table) TakeOne(ctx context.Context, by *driver.Taker) (driver.Attempt, error) {
	return driver.TakeOne(ctx, b, by)
}

func (b *table) SettleAndTakeOne(
	ctx context.Context, lease driver.Lease, how driver.Settlement, by *driver.Taker,
) (task.State, driver.Attempt, error) {
	return driver.SettleAndTakeOne(ctx, b, lease, how, by)
}

func (b *table) Settle(ctx context.Context, lease driver.Lease,
	how driver.Settlement,
) (state task.State, err error) {
	err = b.store.do(ctx, "settle", func() error {
		var bad error
		state, bad = b.Backend.Settle(ctx, lease, how)
		return bad
	})
	return state, err
}

func (b *table) Touch(ctx context.Context, lease driver.Lease,
	d time.Duration,
) (until time.Time, err error) {
	err = b.store.do(ctx, "touch", func() error {
		var bad error
		until, bad = b.Backend.Touch(ctx, lease, d)
		return bad
	})
	return until, err
}

// ownTx is the key by which a context has a transaction of the caller's own.
type ownTx struct{}

func (*table) Joined(ctx context.Context) *driver.Tx {
	if ctx.Value(ownTx{}) == nil {
		return nil
	}
	return new(driver.Tx)
}

// encoding hides from a Queue that its store is in memory, so payloads are encoded.
type encoding struct{ driver.Notifier }

func (encoding) InMemory() reflect.Type { return reflect.TypeFor[[]byte]() }

// openDatabase opens a queue in such a store.
func openDatabase[V any](t *testing.T, takes time.Duration,
	options *task.Options[V],
) (*task.Queue[V], *database) {
	t.Helper()
	s := &database{takes: takes}
	q, err := task.Open(t.Context(), s, "q", options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, q.Close(context.Background())) })
	return q, s
}
