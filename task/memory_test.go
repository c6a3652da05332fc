package task_test

import (
	"testing"

	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/storetest"
)

func TestMemory(t *testing.T) {
	storetest.Run(t, func(*testing.T) task.Store { return new(task.Memory) })
}
