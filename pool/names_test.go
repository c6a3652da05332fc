package pool_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// PutOptions has each field of task.PutOptions, and Task copies it.
func TestPutOptionsAreThoseOfTask(t *testing.T) {
	var o pool.PutOptions
	mine, want := reflect.ValueOf(&o).Elem(), task.PutOptions{}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[task.PutOptions]()) {
		g := mine.FieldByName(f.Name)
		require.True(t, g.IsValid(), f.Name)
		require.Equal(t, f.Type, g.Type(), f.Name)
		switch {
		case g.CanInt():
			g.SetInt(7)
		case g.CanUint():
			g.SetUint(1)
		case g.Kind() == reflect.Bool:
			g.SetBool(true)
		case g.Kind() == reflect.String:
			g.SetString(f.Name)
		case g.Kind() == reflect.Map:
			g.Set(reflect.ValueOf(map[string]string{"name": "value"}))
		default:
			g.Set(reflect.ValueOf(time.Unix(7, 0)))
		}
		reflect.ValueOf(&want).Elem().FieldByName(f.Name).Set(g)
		require.Equal(t, want, o.Task(), f.Name)
	}
	require.Len(t, reflect.VisibleFields(mine.Type()),
		1+reflect.TypeFor[task.PutOptions]().NumField(), "with Class")
}

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
