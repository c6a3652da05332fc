package storetest

import (
	"context"
	"errors"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/memory"
)

// TestQuotes checks that what cases say must be true is said by package task.
func TestQuotes(t *testing.T) {
	plain := func(s string) string {
		return strings.Join(strings.Fields(strings.NewReplacer("[", "", "]", "").Replace(s)), " ")
	}
	files, err := filepath.Glob("../../task/*.go")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("../driver/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var docs strings.Builder
	for _, name := range append(files, more...) {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range file.Comments {
			docs.WriteString(c.Text() + "\n")
		}
	}
	all := plain(docs.String())
	for _, theme := range themes {
		names := map[string]bool{}
		for _, c := range theme.cases {
			if !strings.Contains(all, plain(c.why)) {
				t.Errorf("%s/%s: package task does not say %q", theme.name, c.name, c.why)
			}
			if names[c.name] {
				t.Errorf("there are two cases %s/%s", theme.name, c.name)
			}
			names[c.name] = true
		}
	}
}

// TestDurable runs the suite with a Memory that looks like a durable store.
func TestDurable(t *testing.T) {
	Run(t, func(*testing.T) task.Store { return &disk{memory: new(memory.Store)} })
}

// TestCompare compares a Memory with itself.
func TestCompare(t *testing.T) {
	want := func(*testing.T) task.Store { return new(memory.Store) }
	Compare(t, few(25), want, func(*testing.T, uint64) Subject {
		return Subject{Store: new(memory.Store)}
	})
}

var errKilled = errors.New("killed")

// disk is a Memory that outlives its process: payloads are encoded, others can open it, and leases
// are lost when their consumers are gone.
type disk struct {
	memory *memory.Store
	mu     sync.Mutex // protects killed, and the consumers of all diskQueues
	killed bool
}

type diskQueue struct {
	driver.Backend
	disk      *disk
	notifier  driver.Notifier
	grace     time.Duration
	consumers map[driver.Handle]bool
}

func (d *disk) Reopen(*testing.T) task.Store { return &disk{memory: d.memory} }

func (d *disk) Kill(*testing.T) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.killed = true
}

func (d *disk) Open(
	ctx context.Context, name string, s driver.Settings, n driver.Notifier,
) (driver.Backend, error) {
	b, err := d.memory.Open(ctx, name, s, encoding{n})
	return &diskQueue{b, d, n, max(s.Grace, second), map[driver.Handle]bool{}}, err
}

func (d *disk) Queues(ctx context.Context, from string, n int) ([]string, error) {
	return d.memory.Queues(ctx, from, n)
}

// lives registers a consumer as alive, or not.
func (q *diskQueue) lives(h driver.Handle, lives bool) error {
	q.disk.mu.Lock()
	defer q.disk.mu.Unlock()
	if q.disk.killed {
		return errKilled
	}
	if !lives {
		delete(q.consumers, h)
	} else if !q.consumers[h] {
		q.consumers[h] = true
		q.notifier.Due(time.Now())
	}
	return nil
}

func (q *diskQueue) Take(
	ctx context.Context, by *driver.Taker, into []driver.Record,
) (int, error) {
	if err := q.lives(by.Handle, true); err != nil {
		return 0, err
	}
	return q.Backend.Take(ctx, by, into)
}

func (q *diskQueue) TakeOne(ctx context.Context, by *driver.Taker) (driver.Attempt, error) {
	return driver.TakeOne(ctx, q, by)
}

func (q *diskQueue) SettleAndTakeOne(
	ctx context.Context, lease driver.Lease, how driver.Settlement, by *driver.Taker,
) (task.State, driver.Attempt, error) {
	return driver.SettleAndTakeOne(ctx, q, lease, how, by)
}

func (q *diskQueue) TakeID(
	ctx context.Context, h driver.Handle, id task.ID,
) (driver.Record, error) {
	if err := q.lives(h, true); err != nil {
		return driver.Record{}, err
	}
	return q.Backend.TakeID(ctx, h, id)
}

func (q *diskQueue) Leave(ctx context.Context, h driver.Handle, after time.Duration) error {
	if err := q.lives(h, false); err != nil {
		return err
	}
	return q.Backend.Leave(ctx, h, after)
}

func (q *diskQueue) Rejoin(
	ctx context.Context, id string,
) (epoch uint64, held []driver.Record, err error) {
	epoch, held, err = q.Backend.Rejoin(ctx, id)
	if err == nil {
		err = q.lives(driver.Handle{ID: id, Epoch: epoch}, true)
	}
	return epoch, held, err
}

func (q *diskQueue) Tick(ctx context.Context) (time.Time, error) {
	q.disk.mu.Lock()
	defer q.disk.mu.Unlock()
	if q.disk.killed {
		return time.Time{}, errKilled
	}
	next, err := q.Backend.Tick(ctx)
	if err != nil || len(q.consumers) == 0 {
		return next, err
	}
	for h := range q.consumers {
		err := q.Backend.Leave(ctx, h, q.grace)
		switch {
		case errors.Is(err, task.ErrResumed):
			delete(q.consumers, h)
		case err != nil:
			return time.Time{}, err
		}
	}
	if beat := time.Now().Add(q.grace / 3); next.IsZero() || beat.Before(next) {
		next = beat
	}
	return next, nil
}

// encoding hides from a Queue that its store is in memory, so payloads are encoded.
type encoding struct{ driver.Notifier }

func (encoding) InMemory() reflect.Type { return reflect.TypeFor[[]byte]() }
