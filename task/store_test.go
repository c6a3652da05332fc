package task_test

import (
	"context"
	"reflect"
	"testing"

	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/internal/storetest"
	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/memory"
)

// TestStore runs the suite with a store in memory that hides this, so the package encodes
// payloads.
func TestStore(t *testing.T) {
	storetest.Run(t, func(*testing.T) task.Store { return &otherStore{new(memory.Store)} })
}

type otherStore struct{ task.Store }

func (s *otherStore) Open(
	ctx context.Context, name string, settings driver.Settings, n driver.Notifier,
) (driver.Backend, error) {
	return s.Store.Open(ctx, name, settings, encoding{n})
}

// encoding hides from a Queue that its store is in memory, so payloads are encoded.
type encoding struct{ driver.Notifier }

func (encoding) InMemory() reflect.Type { return reflect.TypeFor[[]byte]() }
