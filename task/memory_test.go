package task_test

import (
	"context"
	"testing"

	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/driver"
	"github.com/fairq/fairq/task/storetest"
)

func TestMemory(t *testing.T) {
	storetest.Run(t, func(*testing.T) task.Store { return new(task.Memory) })
}

// TestOtherStore runs the suite with a store that the package does not know, so payloads are encoded.
func TestOtherStore(t *testing.T) {
	storetest.Run(t, func(*testing.T) task.Store { return &otherStore{new(task.Memory)} })
}

type otherStore struct{ task.Store }

type otherBackend struct{ driver.Backend }

func (s *otherStore) Open(ctx context.Context, name string, settings driver.Settings, n driver.Notifier) (driver.Backend, error) {
	b, err := s.Store.Open(ctx, name, settings, n)
	if err != nil {
		return nil, err
	}
	return otherBackend{b}, nil
}
