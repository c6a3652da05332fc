package pool_test

import (
	"context"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// TestPutOptionsAreThoseOfTask has each field of task.PutOptions in PutOptions, and takes it over.
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
	require.Len(t, reflect.VisibleFields(mine.Type()), 2+reflect.TypeFor[task.PutOptions]().NumField(), "with Class and CancelWithContext")
}

// TestErrorsNeedOneImport looks at errors that the packages below have made.
func TestErrorsNeedOneImport(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		p := openFunc(t, newGate().handle, pool.Options[int]{
			Queue: task.Options[int]{Capacity: 3, KeyCapacity: 2, Weight: func(key string) int {
				if key == "panics" {
					panic(errNo)
				}
				return len(key)
			}}, WhenFull: pool.Reject,
		})
		p.Pause()
		put := func(key string, o pool.PutOptions) (task.ID, error) { return p.Put(ctx, key, 0, o) }
		refused := func(want error, key string, o pool.PutOptions) {
			t.Helper()
			_, err := put(key, o)
			require.ErrorIs(t, err, want)
		}
		for _, o := range []pool.PutOptions{{UniqueKey: "x"}, {UniqueKey: "y"}} {
			_, err := put("a", o)
			require.NoError(t, err)
		}
		refused(pool.ErrKeyFull, "a", pool.PutOptions{})
		refused(pool.ErrDuplicate, "b", pool.PutOptions{UniqueKey: "x"})
		refused(pool.ErrWeight, "", pool.PutOptions{})
		refused(pool.ErrCost, "b", pool.PutOptions{Cost: -1})
		refused(pool.ErrPanic, "panics", pool.PutOptions{})
		refused(pool.ErrInvalid, "b", pool.PutOptions{Priority: task.MaxPriority + 1})
		refused(pool.ErrInvalid, "b", pool.PutOptions{Class: "none"})
		outcome := later(func() error { return p.Do(ctx, "b", 0, pool.PutOptions{TTL: time.Second}) })
		synctest.Wait()
		refused(pool.ErrFull, "c", pool.PutOptions{})
		_, err := p.TrySubmit(ctx, "c", 0, pool.PutOptions{})
		var full *pool.FullError
		require.ErrorAs(t, err, &full)
		require.Equal(t, pool.FullError{Len: 3, Limit: 3}, *full)
		time.Sleep(time.Second)
		require.ErrorIs(t, <-outcome, pool.ErrExpired)
		outcome = later(func() error { return p.Do(ctx, "b", 0, pool.PutOptions{UniqueKey: "z"}) })
		synctest.Wait()
		_, err = p.Queue("").Truncate(ctx)
		require.NoError(t, err)
		require.ErrorIs(t, <-outcome, pool.ErrDeleted)
		for want, end := range map[error]func(*task.Queue[int]) error{
			pool.ErrClosed:  func(q *task.Queue[int]) error { return q.Close(ctx) },
			pool.ErrDropped: func(q *task.Queue[int]) error { return q.Drop(ctx) },
		} {
			q := openQueue[int](t, nil)
			p := openNew(t, q, newGate().handle, pool.Options[int]{})
			require.NoError(t, end(q))
			require.ErrorIs(t, p.Submit(ctx, "a", 0), want)
		}
	})
}
