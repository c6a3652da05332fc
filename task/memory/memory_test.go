package memory_test

import (
	"context"
	"reflect"
	"testing"

	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/driver"
	"github.com/fairq/fairq/task/memory"
	"github.com/fairq/fairq/task/storetest"
)

func TestMemory(t *testing.T) {
	storetest.Run(t, func(*testing.T) task.Store { return new(memory.Store) })
}

// TestOtherStore runs the suite with a store that the package does not know, so payloads are encoded.
func TestOtherStore(t *testing.T) {
	storetest.Run(t, func(*testing.T) task.Store { return &otherStore{new(memory.Store)} })
}

type otherStore struct{ task.Store }

type otherBackend struct{ driver.Backend }

func (s *otherStore) Open(ctx context.Context, name string, settings driver.Settings, n driver.Notifier) (driver.Backend, error) {
	b, err := s.Store.Open(ctx, name, settings, encoding{n})
	if err != nil {
		return nil, err
	}
	return otherBackend{b}, nil
}

// encoding hides from a Queue that its store is in memory, so payloads are encoded.
type encoding struct{ driver.Notifier }

func (encoding) InMemory() reflect.Type { return reflect.TypeFor[[]byte]() }
