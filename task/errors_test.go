package task_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/memory"
)

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
