package spill_test

import (
	"context"
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

func TestInto(t *testing.T) {
	d := open[string](t, t.TempDir(), nil)
	q := queue(t, &task.Options[string]{Capacity: 10})
	for _, p := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		require.NoError(t, d.Write(t.Context(), letter(p)))
	}
	n, err := d.Restore(t.Context(), spill.Into(q, 0.45))
	var full *fairq.FullError
	require.ErrorAs(t, err, &full)
	require.Equal(t, fairq.FullError{Len: 5, Limit: 5}, *full)
	require.Equal(t, 5, n)
	for _, want := range []string{"a", "b", "c"} {
		got, err := q.Take(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, got.Payload)
		require.NoError(t, got.Ack(t.Context()))
	}
	n, err = d.Restore(t.Context(), spill.Into(q, 0.45))
	require.NoError(t, err)
	require.Equal(t, 2, n)

	require.NoError(t, d.Write(t.Context(), letter("h")))
	require.NoError(t, q.Close(t.Context()))
	n, err = d.Restore(t.Context(), spill.Into(q, 1))
	require.Zero(t, n)
	require.ErrorIs(t, err, task.ErrClosed)
	require.NotErrorIs(t, err, spill.ErrRefused)
}

// TestIntoCountsWhatWaits uses a queue in which taken tasks need no room.
func TestIntoCountsWhatWaits(t *testing.T) {
	d := open[string](t, t.TempDir(), nil)
	q := queue(t, &task.Options[string]{Capacity: 2, CountOnlyWaiting: true})
	for _, p := range []string{"a", "b", "c"} {
		_, err := q.Put(t.Context(), "key", p, task.PutOptions{})
		require.NoError(t, err)
		_, err = q.Take(t.Context())
		require.NoError(t, err)
		require.NoError(t, d.Write(t.Context(), letter(p)))
	}
	n, err := d.Restore(t.Context(), spill.Into(q, 1))
	require.Equal(t, 2, n)
	var full *fairq.FullError
	require.ErrorAs(t, err, &full)
	require.Equal(t, fairq.FullError{Len: 2, Limit: 2}, *full)
}

// A letter that cannot be put is no obstacle for the others, and can be put later.
func TestIntoRefused(t *testing.T) {
	broken := false
	weight := func(f func() int) *task.Options[string] {
		return &task.Options[string]{Weight: func(key string) int {
			if broken && key == "k" {
				return f()
			}
			return 1
		}}
	}
	for _, c := range []struct {
		err     error
		before  task.PutOptions
		prepare func(q *task.Queue[string]) error
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
		{err: task.ErrPanic, options: weight(func() int { panic("no") })},
		{
			err: task.ErrGroupCancelled, before: task.PutOptions{Group: "g"}, letter: task.Info{Group: "g"},
			prepare: func(q *task.Queue[string]) error {
				if err := q.StartGroup(context.Background(), "g"); err != nil {
					return err
				}
				// otherwise it would end immediately
				if _, err := q.Take(context.Background()); err != nil {
					return err
				}
				return q.CancelGroup(context.Background(), "g")
			},
		},
	} {
		d := open[string](t, t.TempDir(), nil)
		q := queue(t, c.options)
		_, err := q.Put(t.Context(), "k", "before", c.before)
		require.NoError(t, err)
		if c.prepare != nil {
			require.NoError(t, c.prepare(q))
		}
		c.letter.Key = "k"
		require.NoError(t, d.Write(t.Context(),
			&pool.DeadLetter[string]{Task: c.letter, Payload: "refused"}))
		require.NoError(t, d.Write(t.Context(),
			&pool.DeadLetter[string]{Task: task.Info{Key: "other"}, Payload: "other"}))
		broken = true
		n, err := d.Restore(t.Context(), spill.Into(q, 1))
		broken = false
		require.ErrorIs(t, err, c.err)
		require.ErrorIs(t, err, spill.ErrRefused)
		require.ErrorContains(t, err, `key "k"`)
		require.Equal(t, 1, n, c.err)
		var got []string
		_, err = d.Restore(t.Context(), into(&got))
		require.NoError(t, err)
		require.Equal(t, []string{"refused"}, got)
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
	n, err := d.Restore(t.Context(), spill.Into(q, 1))
	require.NoError(t, err)
	require.Equal(t, 1, n)
	s, err := q.Stats(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, s.Evicted)
}

// The fields of a task that stay, and the changed ones.
func TestPutAgain(t *testing.T) {
	path := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		q := queue(t, &task.Options[string]{TTL: time.Minute, MaxAttempts: 9})
		for _, c := range []struct{ was, want task.Info }{
			{ // never in a queue: the queue's defaults
				was: task.Info{
					Kind: "kind", UniqueKey: "unique key", Priority: 3, TTR: time.Hour,
					Metadata: map[string]string{"a": "b"},
				},
				want: task.Info{
					Kind: "kind", UniqueKey: "unique key", Priority: 3, TTR: time.Hour, State: task.Ready,
					MaxAttempts: 9, Expires: now.Add(time.Minute),
					Metadata: map[string]string{"a": "b"},
				},
			},
			{ // the same with limits of its own
				was: task.Info{MaxAttempts: 2, Expires: now.Add(time.Second), Group: "g", Role: task.AtEnd},
				want: task.Info{
					MaxAttempts: 2, Expires: now.Add(time.Second), Group: "g", Role: task.AtEnd,
					State: task.Held,
				},
			},
			{ // it was in one, without limits, and its group has been started
				was: task.Info{
					ID: 5, State: task.Buried, Attempts: 7, Group: "g", Role: task.AtEnd,
					Until: now.Add(time.Hour),
				},
				want: task.Info{State: task.Ready},
			},
			{
				was:  task.Info{ID: 5, State: task.Held, Group: "g", Cost: 7},
				want: task.Info{State: task.Held, Group: "g"},
			},
			{ // it is still to wait
				was: task.Info{
					ID: 5, State: task.Delayed, MaxAttempts: 4, Until: now.Add(time.Hour),
					Expires: now.Add(2 * time.Hour),
				},
				want: task.Info{
					State: task.Delayed, MaxAttempts: 4, Until: now.Add(time.Hour),
					Expires: now.Add(2 * time.Hour),
				},
			},
			{
				was:  task.Info{ID: 5, State: task.Delayed, Until: now.Add(-time.Hour)},
				want: task.Info{State: task.Ready},
			},
		} {
			d := open[string](t, path, nil)
			c.was.Key = "k"
			require.NoError(t, d.Write(t.Context(),
				&pool.DeadLetter[string]{Task: c.was, Payload: "p", Attempts: 7}))
			_, err := d.Restore(t.Context(), spill.Into(q, 1))
			require.NoError(t, err)
			require.NoError(t, d.Close())
			all, err := q.List(t.Context(), task.ListOptions{})
			require.NoError(t, err)
			require.Len(t, all, 1)
			got := all[0].Info()
			require.Equal(t, "p", all[0].Payload)
			require.True(t, c.want.Expires.Equal(got.Expires), "%v %v", c.want.Expires, got.Expires)
			require.True(t, c.want.Until.Equal(got.Until))
			c.want.Key, c.want.ID, c.want.Created, c.want.Until, c.want.Expires = "k", got.ID, got.Created,
				got.Until, got.Expires
			c.want.ReadyAt, c.want.Cost = got.ReadyAt, max(1, c.was.Cost)
			require.Equal(t, c.want, got)
			_, err = q.Truncate(t.Context())
			require.NoError(t, err)
		}
	})
}
