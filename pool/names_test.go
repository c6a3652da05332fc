package pool_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// TestErrorsNeedOneImport checks that pool has all errors of task and fairq, by the same names.
func TestErrorsNeedOneImport(t *testing.T) {
	for err, there := range map[error]error{
		pool.ErrInvalid: task.ErrInvalid, pool.ErrFull: fairq.ErrFull, pool.ErrKeyFull: fairq.ErrKeyFull,
		pool.ErrWeight: fairq.ErrWeight,
		pool.ErrCost:   fairq.ErrCost, pool.ErrPanic: task.ErrPanic,
		pool.ErrDuplicate:      task.ErrDuplicate,
		pool.ErrGroupCancelled: task.ErrGroupCancelled, pool.ErrClosed: task.ErrClosed,
		pool.ErrDropped: task.ErrDropped,
		pool.ErrDeleted: task.ErrDeleted, pool.ErrExpired: task.ErrExpired,
		pool.ErrLeaseLost: task.ErrLeaseLost,
	} {
		require.Equal(t, there, err)
	}
}
