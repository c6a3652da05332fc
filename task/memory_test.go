package task_test

import (
	"context"
	"testing"
	"time"

	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/storetest"
)

func TestMemory(t *testing.T) {
	storetest.Run(t, func(*testing.T) task.Store { return new(task.Memory) })
}

// TestOtherStore runs the suite with a store that the package does not know: payloads are encoded, and leases are what they
// say and no more.
func TestOtherStore(t *testing.T) {
	storetest.Run(t, func(*testing.T) task.Store { return &otherStore{new(task.Memory)} })
}

type otherStore struct{ task.Store }

type otherBackend struct{ task.Backend }

func (s *otherStore) Open(ctx context.Context, name string, settings task.Settings, n *task.Notifier) (task.Backend, error) {
	b, err := s.Store.Open(ctx, name, settings, n)
	if err != nil {
		return nil, err
	}
	return otherBackend{b}, nil
}

func (b otherBackend) Settle(ctx context.Context, l task.Lease, how task.Settlement) error {
	return b.Backend.Settle(ctx, task.Lease{ID: l.ID, Number: l.Number}, how)
}

func (b otherBackend) Touch(ctx context.Context, l task.Lease, d time.Duration) (time.Time, error) {
	return b.Backend.Touch(ctx, task.Lease{ID: l.ID, Number: l.Number}, d)
}
