package task

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/internal/driver"
)

// Who keeps a Task sees what it was, whatever the queue uses its memory for by then.
func TestTaskKept(t *testing.T) {
	bubble(t, nil, func(ctx context.Context, q *Queue[int]) {
		take := func(key string, payload int) *Task[int] {
			_, err := q.Put(ctx, key, payload, PutOptions{
				Kind: "k", UniqueKey: "x", Priority: 3, TTL: time.Hour, TTR: time.Minute,
				Deadline: time.Now().Add(time.Minute),
			})
			require.NoError(t, err)
			one, err := q.Take(ctx)
			require.NoError(t, err)
			return one
		}
		kept := take("a", 1)
		task, info := *kept, kept.Info()
		require.NoError(t, kept.Touch(ctx, time.Second))
		touched := info
		touched.Until = info.Until.Add(time.Second)
		require.Equal(t, touched, kept.Info())
		require.NoError(t, kept.Ack(ctx))
		touched.State = 0
		for range 10 {
			other := take("b", 2)
			require.ErrorIs(t, kept.Ack(ctx), ErrLeaseLost)
			require.ErrorIs(t, kept.Touch(ctx, time.Second), ErrLeaseLost)
			require.NoError(t, other.Ack(ctx))
		}
		require.Equal(t, info, task.Info())
		require.Equal(t, touched, kept.Info())
		require.Equal(t, []any{"a", 1, "k", 3, 1},
			[]any{kept.Key, kept.Payload, kept.Kind, kept.Priority, kept.Attempts})
	})
}

// A Task that was made of an Info has its fields, and no lease.
func TestNewTask(t *testing.T) {
	at := time.Unix(1e9, 5)
	for _, info := range []Info{
		{},
		{
			ID: 1, Key: "a", Kind: "b", UniqueKey: "c", Group: "d", Role: AtEnd, State: Taken, Priority: 2,
			Cost: 3, Attempts: 4, MaxAttempts: 5,
			TTR: 6, Created: at, ReadyAt: at.Add(1), Until: at.Add(2), Deadline: at.AddDate(7000, 0, 0),
			Expires: at.Add(4), Consumer: "e", Err: new(Error),
		},
		{Deadline: at, Expires: at},
		{Expires: at},
	} {
		task := NewTask(info, 7)
		require.Equal(t, info, task.Info())
		require.Equal(t, 7, task.Payload)
		require.Equal(t, !info.Expires.IsZero(), task.Expires())
		require.ErrorIs(t, task.Ack(t.Context()), ErrLeaseLost)
		_, err := new(Consumer[int]).AckAndTake(t.Context(), task, new(Task[int]))
		require.Error(t, err)
	}
}

// A Task that is used again, because the payload of the first task could not be decoded, shows
// nothing of the first.
func TestTaskUsedAgain(t *testing.T) {
	var task Task[int]
	task.show(&driver.Record{Details: driver.Details{Cost: 3, TTR: time.Second}})
	require.Equal(t, Info{Cost: 3, TTR: time.Second}, task.Info())
	task.show(&driver.Record{Details: driver.Details{Cost: 1}})
	require.Equal(t, Info{Cost: 1}, task.Info())
}

// Each option counts as set when it is set.
func TestOptionsAreSeen(t *testing.T) {
	all := reflect.ValueOf(PutOptions{
		Priority: 1, Cost: 1, Delay: 1, MaxDelay: 1, TTL: 1, Deadline: time.Unix(1, 0), TTR: 1,
		MaxAttempts: 1, Kind: "k", UniqueKey: "u", Replace: true, Group: "g",
		Role: AtEnd, Metadata: map[string]string{"a": "b"},
	})
	require.True(t, new(PutOptions).isZero())
	for i := range all.NumField() {
		require.False(t, all.Field(i).IsZero(), "the test has a value for each")
		var one PutOptions
		reflect.ValueOf(&one).Elem().Field(i).Set(all.Field(i))
		require.False(t, one.isZero(), all.Type().Field(i).Name)
	}
}
