package memory_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/internal/storetest"
	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/memory"
)

func TestMemory(t *testing.T) {
	storetest.Run(t, func(*testing.T) task.Store { return new(memory.Store) })
}

func TestBacklog(t *testing.T) {
	storetest.Backlog(t, func(*testing.T) task.Store { return new(memory.Store) })
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

// A queue is opened with other options: the error names them as they were given.
func TestOtherOptions(t *testing.T) {
	for _, c := range []struct {
		made, opened task.Options[string]
		want         string
	}{
		{
			task.Options[string]{},
			task.Options[string]{Capacity: 3},
			`task: Options.Capacity is 3; it must be 0, as queue "q" was made with it`,
		},
		{
			task.Options[string]{Capacity: 3, KeyCapacity: 2},
			task.Options[string]{},
			"task: Options.Capacity is 0; it must be 3, as queue \"q\" was made with it\n" +
				`task: Options.KeyCapacity is 0; it must be 2, as queue "q" was made with it`,
		},
		{
			task.Options[string]{Format: "json"},
			task.Options[string]{Format: "gob"},
			`task: Options.Format is "gob"; it must be "json", as queue "q" was made with it`,
		},
	} {
		store := new(memory.Store)
		_, err := task.Open(t.Context(), store, "q", &c.made)
		require.NoError(t, err)
		_, err = task.Open(t.Context(), store, "q", &c.opened)
		require.EqualError(t, err, c.want)
	}
}
