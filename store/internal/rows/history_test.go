package rows_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/store/internal/rows/rowstest"
	"github.com/fairq/fairq/task"
)

// TestHistoryHasPayloads ends tasks in all ways, even by operations that read tasks without their
// payloads.
func TestHistoryHasPayloads(t *testing.T) {
	ctx := t.Context()
	s := rows.New(rowstest.NewDB(time.Now),
		rows.Options{MaxPayload: 1 << 10, History: time.Hour, Poll: time.Second})
	q, err := task.Open[string](ctx, s, "q", nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, q.Close(ctx)) }()
	var ids []task.ID
	put := func(o task.PutOptions) {
		id, err := q.Put(ctx, "key", fmt.Sprint(len(ids)), o)
		require.NoError(t, err)
		ids = append(ids, id)
	}
	for _, group := range []string{"started", "cancelled", "buried"} {
		put(task.PutOptions{Group: group})
		put(task.PutOptions{Group: group, Role: task.AtEnd})
		put(task.PutOptions{Group: group, Role: task.AtAbort})
	}
	require.NoError(t, q.StartGroup(ctx, "started"))
	require.NoError(t, q.CancelGroup(ctx, "cancelled"))
	for i := range 5 {
		put(task.PutOptions{})
		taken, err := q.Take(ctx)
		require.NoError(t, err)
		if i%2 == 0 {
			require.NoError(t, taken.Ack(ctx))
		} else {
			require.NoError(t, taken.Discard(ctx, nil))
		}
	}
	require.NoError(t, q.Bury(ctx, ids[6], nil))
	require.NoError(t, q.CancelGroup(ctx, "buried"))
	_, err = q.Truncate(ctx)
	require.NoError(t, err)

	gone, err := s.History(ctx, "q", 0, 100)
	require.NoError(t, err)
	require.Len(t, gone, len(ids))
	for i, e := range gone {
		require.Equal(t, fmt.Sprintf("%q", fmt.Sprint(i)), string(e.Payload), "%+v", e)
	}
}
