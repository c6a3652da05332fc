package task_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/memory"
)

// Errors that package fairq has made are those of this package too.
func TestErrorsNeedOneImport(t *testing.T) {
	ctx := t.Context()
	q, err := task.Open(ctx, new(memory.Store), "q", &task.Options[int]{
		Capacity: 3, KeyCapacity: 2, Weight: func(key string) int { return len(key) },
	})
	require.NoError(t, err)
	for _, c := range []struct {
		key  string
		want []error
		full task.FullError
	}{
		{key: "a"},
		{key: "a"},
		{
			key: "a", want: []error{task.ErrFull, task.ErrKeyFull, fairq.ErrKeyFull},
			full: task.FullError{Len: 2, Limit: 2, PerKey: true},
		},
		{key: "b"},
		{key: "c", want: []error{task.ErrFull, fairq.ErrFull}, full: task.FullError{Len: 3, Limit: 3}},
		{key: "", want: []error{task.ErrWeight, fairq.ErrWeight}},
	} {
		_, err := q.Put(ctx, c.key, 0, task.PutOptions{})
		if c.want == nil {
			require.NoError(t, err)
		}
		for _, want := range c.want {
			require.ErrorIs(t, err, want)
		}
		if c.full.Limit > 0 {
			var full *task.FullError
			require.ErrorAs(t, err, &full)
			require.Equal(t, c.full, *full)
		}
	}
	require.NoError(t, q.Close(ctx))
}

func TestNotFoundNamesIt(t *testing.T) {
	ctx := t.Context()
	q, err := task.Open[int](ctx, new(memory.Store), "q", nil)
	require.NoError(t, err)
	_, peek := q.Peek(ctx, 7)
	_, take := q.TakeID(ctx, 7)
	_, find := q.Find(ctx, "x")
	for _, c := range []struct {
		err  error
		name string
	}{
		{peek, "task 7"},
		{take, "task 7"},
		{find, `unique key "x"`},
		{q.Delete(ctx, 7), "task 7"},
		{q.StartGroup(ctx, "g"), `group "g"`},
		{q.Wait(ctx, "x"), `unique key "x"`},
	} {
		require.ErrorIs(t, c.err, task.ErrNotFound)
		require.EqualError(t, c.err, "task: not found: "+c.name)
	}
	s, err := q.Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, "Capacity:unlimited", s.String())
	require.NoError(t, q.Close(ctx))
}
