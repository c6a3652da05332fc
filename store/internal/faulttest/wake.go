package faulttest

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/task"
)

// Wake lets one process wait for changes that another one makes. A call that is not woken waits for
// a Poll, which should be longer than the test may take.
func Wake(t *testing.T, open Opener, where string) {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	s, err := open(ctx, where)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	plain, room := openBoth(t, s)
	_, path := newJournal(t)
	child := Start(t, Job{
		Role: "wake", Name: "child", Where: where, Journal: path,
		Args: map[string]int{"rounds": wakeRounds},
	})
	for range wakeRounds {
		wake := func(what string, do func() error) {
			require.Equal(t, "waiting for "+what, child.Await())
			require.NoError(t, do())
			require.Equal(t, what, child.Await())
		}
		wake("task", func() error {
			_, err := plain.Put(ctx, "key", "task", task.PutOptions{})
			return err
		})
		wake("resume", func() error { return plain.Resume(ctx) })

		id, err := room.Put(ctx, "key", "", task.PutOptions{UniqueKey: "unique key"})
		require.NoError(t, err)
		child.proceed()
		wake("room", func() error { return room.Delete(ctx, id) })

		_, err = plain.Put(ctx, "key", "", task.PutOptions{UniqueKey: "unique key"})
		require.NoError(t, err)
		child.proceed()
		taken, err := plain.Take(ctx)
		require.NoError(t, err)
		wake("outcome", func() error { return taken.Ack(ctx) })

		number, err := strconv.ParseUint(child.Await(), 10, 64)
		require.NoError(t, err)
		wake("end of a lease", func() error { return plain.Delete(ctx, task.ID(number)) })
	}
	child.Stop()
}

const wakeRounds = 20

func openBoth(t *testing.T, s Store) (plain, room *task.Queue[string]) {
	plain, err := openQueue(t.Context(), s, "plain")
	require.NoError(t, err)
	room, err = openQueue(t.Context(), s, "room")
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, plain.Close(context.Background()))
		require.NoError(t, room.Close(context.Background()))
	})
	return plain, room
}

// wake waits for one thing after the other.
func (s *Self) wake() error {
	plain, err := openQueue(s.Stop, s.Store, "plain")
	if err != nil {
		return err
	}
	room, err := openQueue(s.Stop, s.Store, "room")
	if err != nil {
		return err
	}
	w := &waiter{s, plain, room}
	for range s.Args["rounds"] {
		for _, wait := range []func() error{w.task, w.resume, w.room, w.outcome, w.endOfLease} {
			if err := wait(); err != nil {
				return err
			}
		}
	}
	<-s.Stop.Done()
	if err := plain.Close(context.Background()); err != nil {
		return err
	}
	return room.Close(context.Background())
}

type waiter struct {
	*Self
	plain, small *task.Queue[string]
}

// waits reports a waiting call, as soon as it waits.
func (w *waiter) waits(what string, q *task.Queue[string]) {
	for w.Stop.Err() == nil {
		if stats, err := q.Stats(w.Stop); err != nil || stats.WaitingTake+stats.WaitingPut > 0 {
			break
		}
	}
	w.Say("waiting for " + what)
}

func (w *waiter) task() error { return w.take("task") }

func (w *waiter) take(what string) error {
	go w.waits(what, w.plain)
	taken, err := w.plain.Take(w.Stop)
	if err != nil {
		return err
	}
	w.Say(what)
	return taken.Ack(w.Stop)
}

func (w *waiter) resume() error {
	if err := w.plain.Pause(w.Stop); err != nil {
		return err
	}
	if _, err := w.plain.Put(w.Stop, "key", "", task.PutOptions{}); err != nil {
		return err
	}
	return w.take("resume")
}

func (w *waiter) room() error {
	if err := w.await(); err != nil {
		return err
	}
	go w.waits("room", w.small)
	id, err := w.small.PutWait(w.Stop, "key", "", task.PutOptions{})
	if err != nil {
		return err
	}
	w.Say("room")
	return w.small.Delete(w.Stop, id)
}

func (w *waiter) outcome() error {
	if err := w.await(); err != nil {
		return err
	}
	w.Say("waiting for outcome")
	if err := w.plain.Wait(w.Stop, "unique key"); err != nil {
		return err
	}
	w.Say("outcome")
	return nil
}

func (w *waiter) endOfLease() error {
	id, err := w.plain.Put(w.Stop, "key", "", task.PutOptions{})
	if err != nil {
		return err
	}
	taken, err := w.plain.Take(w.Stop)
	if err != nil {
		return err
	}
	ctx, cancel := taken.Context(w.Stop)
	defer cancel()
	w.Say(fmt.Sprint(id))
	w.Say("waiting for end of a lease")
	<-ctx.Done()
	w.Say("end of a lease")
	return nil
}
