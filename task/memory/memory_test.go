package memory_test

import (
	"testing"

	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/memory"
	"github.com/fairq/fairq/task/storetest"
)

func TestMemory(t *testing.T) {
	storetest.Run(t, func(*testing.T) task.Store { return new(memory.Store) })
}

// TestMemoryAgainstModel compares all that a queue in memory does with the model.
func TestMemoryAgainstModel(t *testing.T) {
	seeds := 125
	if testing.Short() {
		seeds /= 5
	}
	model := func(*testing.T) task.Store { return modelStore{} }
	storetest.Compare(t, seeds, model, func(*testing.T, uint64) storetest.Subject {
		store := new(memory.Store)
		return storetest.Subject{Store: store, Exact: true, Check: store.Check}
	})
}
