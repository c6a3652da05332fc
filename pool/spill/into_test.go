package spill_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/pool/spill"
	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/memory"
)

func queue(t *testing.T, o *task.Options[string]) *task.Queue[string] {
	q, err := task.Open(t.Context(), new(memory.Store), "q", o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, q.Close(context.Background())) })
	return q
}

// Letters go in until the queue is so full, counted as its capacity is.
func TestInto(t *testing.T) {
	d := open[string](t, t.TempDir(), nil)
	q := queue(t, &task.Options[string]{Capacity: 10, CountOnlyWaiting: true})
	for range 8 {
		require.NoError(t, d.Write(t.Context(), letter("a")))
	}
	for _, want := range []int{5, 2} {
		n, err := d.Restore(t.Context(), spill.Into(q, 0.45))
		full, _ := errors.AsType[*fairq.FullError](err)
		require.Equal(t, fairq.FullError{Len: 5, Limit: 5}, *full)
		require.Equal(t, want, n)
		_, err = q.TakeBatch(t.Context(), 2)
		require.NoError(t, err)
	}
	require.NoError(t, q.Close(t.Context()))
	_, err := d.Restore(t.Context(), spill.Into(q, 1))
	require.ErrorIs(t, err, task.ErrClosed)
}

// A letter whose task cannot be put is refused, and can be put later.
func TestIntoRefused(t *testing.T) {
	broken := false
	weight := func(f func() int) *task.Options[string] {
		return &task.Options[string]{Weight: func(string) int {
			if broken {
				return f()
			}
			return 1
		}}
	}
	for _, c := range []struct {
		err     error
		before  task.PutOptions
		letter  task.Info
		options *task.Options[string]
	}{
		{
			err: task.ErrDuplicate, before: task.PutOptions{UniqueKey: "a"},
			letter: task.Info{UniqueKey: "a"},
		},
		{err: fairq.ErrKeyFull, options: &task.Options[string]{KeyCapacity: 1}},
		{err: task.ErrInvalid, letter: task.Info{Priority: task.MaxPriority + 1}},
		{err: task.ErrExpired, letter: task.Info{Expires: time.Unix(1, 0)}},
		{err: fairq.ErrWeight, options: weight(func() int { return 0 })},
		{err: fairq.ErrCost, letter: task.Info{Cost: -1}},
		{err: task.ErrPanic, options: weight(func() int { panic("no") })},
		{
			err: task.ErrGroupCancelled, before: task.PutOptions{Group: "g"}, letter: task.Info{Group: "g"},
		},
	} {
		d, q := open[string](t, t.TempDir(), nil), queue(t, c.options)
		_, err := q.Put(t.Context(), "k", "before", c.before)
		require.NoError(t, err)
		if c.before.Group != "" {
			require.NoError(t, q.StartGroup(t.Context(), "g"))
			_, err := q.Take(t.Context()) // otherwise it would end immediately
			require.NoError(t, err)
			require.NoError(t, q.CancelGroup(t.Context(), "g"))
		}
		c.letter.Key = "k"
		require.NoError(t, d.Write(t.Context(), &pool.DeadLetter[string]{Task: c.letter}))
		broken = true
		_, err = d.Restore(t.Context(), spill.Into(q, 1))
		broken = false
		require.ErrorIs(t, err, c.err)
		require.ErrorIs(t, err, spill.ErrRefused)
		require.ErrorContains(t, err, "spill: letters kept behind the others: 1, the first because: ")
		require.ErrorContains(t, err, `key "k"`)
		n, err := d.Restore(t.Context(), into(new([]string)))
		require.NoError(t, err)
		require.Equal(t, 1, n)
	}
}

// If only OnEvict fails, the task is in the queue, and must not be kept as a letter too.
func TestIntoPanicAfterPut(t *testing.T) {
	d := open[string](t, t.TempDir(), nil)
	var q *task.Queue[string]
	q = queue(t, &task.Options[string]{
		Capacity: 2, WhenFull: fairq.EvictHeaviest, OnEvict: func(*task.Task[string]) { panic("no") },
		Weight: func(key string) int {
			if key == "k" { // between looking whether there is room and using it
				_, err := q.Put(t.Context(), "heavy", "", task.PutOptions{})
				require.NoError(t, err)
			}
			return 1
		},
	})
	_, err := q.Put(t.Context(), "heavy", "", task.PutOptions{})
	require.NoError(t, err)
	require.NoError(t, d.Write(t.Context(), letter("a")))
	_, err = d.Restore(t.Context(), spill.Into(q, 1))
	require.NoError(t, err)
}

// The fields of a task that stay, and the changed ones.
func TestPutAgain(t *testing.T) {
	path := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		q := queue(t, &task.Options[string]{TTL: time.Minute, MaxAttempts: 9})
		d := open[string](t, path, nil)
		for _, c := range []struct {
			was  task.Info
			want string
		}{
			{ // never in a queue: the queue's defaults
				task.Info{
					Kind: "kind", UniqueKey: "unique", Priority: 3, TTR: time.Hour, Cost: 7,
					Metadata: map[string]string{"a": "b"},
				},
				"ready kindunique 3 1h0m0s 7 map[a:b] 9 1m0s 0s  Member\n",
			},
			{ // the same with limits of its own
				task.Info{MaxAttempts: 2, Expires: now.Add(time.Second), Group: "g", Role: task.AtEnd},
				"held  0 0s 1 map[] 2 1s 0s g AtEnd\n",
			},
			{ // it was in one, without limits, and its group has been started
				task.Info{ID: 5, State: task.Buried, Attempts: 7, Group: "g", Until: now.Add(time.Hour)},
				"ready  0 0s 1 map[] 0 0s 0s  Member\n",
			},
			{task.Info{ID: 5, State: task.Held, Group: "g"}, "held  0 0s 1 map[] 0 0s 0s g Member\n"},
			{ // it is still to wait
				task.Info{
					ID: 5, State: task.Delayed, MaxAttempts: 4, Until: now.Add(time.Hour),
					Expires: now.Add(2 * time.Hour),
				},
				"delayed  0 0s 1 map[] 4 2h0m0s 1h0m0s  Member\n",
			},
		} {
			require.NoError(t, d.Write(t.Context(), &pool.DeadLetter[string]{Task: c.was, Payload: "p"}))
			_, err := d.Restore(t.Context(), spill.Into(q, 1))
			require.NoError(t, err)
			all, err := q.List(t.Context(), task.ListOptions{})
			require.NoError(t, err)
			require.Equal(t, "p", all[0].Payload)
			i := all[0].Info()
			got := fmt.Sprintln(i.State, i.Kind+i.UniqueKey, i.Priority, i.TTR, i.Cost, i.Metadata,
				i.MaxAttempts,
				max(0, i.Expires.Sub(now)), max(0, i.Until.Sub(now)), i.Group, i.Role)
			require.Equal(t, c.want, got)
			_, err = q.Truncate(t.Context())
			require.NoError(t, err)
		}
	})
}
