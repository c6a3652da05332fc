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
