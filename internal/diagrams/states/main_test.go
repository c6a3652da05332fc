package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/memory"
)

func TestPicture(t *testing.T) {
	drawn := string(draw())
	committed, err := os.ReadFile("../../../docs/states.svg")
	require.NoError(t, err)
	if drawn != strings.ReplaceAll(string(committed), "\r\n", "\n") {
		t.Fatal("docs/states.svg is stale: go run ./internal/diagrams/states > docs/states.svg")
	}
	for d := xml.NewDecoder(strings.NewReader(drawn)); err == nil; {
		_, err = d.Token()
	}
	require.ErrorIs(t, err, io.EOF, "it is not XML")
}

// world is a queue with one task of interest.
type world struct {
	*testing.T
	queue    *task.Queue[string]
	consumer *task.Consumer[string]
	id       task.ID
	lease    *task.Task[string] // if it was taken
}

// bring makes a world with a task in the given state.
func bring(t *testing.T, to task.State, options task.PutOptions) *world {
	t.Helper()
	q, err := task.Open[string](t.Context(), new(memory.Store), "q", nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, q.Close(t.Context())) })
	w := &world{T: t, queue: q, consumer: q.NewConsumer(task.Filter{})}
	switch to {
	case none:
		return w
	case task.Delayed:
		options.Delay = time.Minute
	case task.Held:
		options.Group = "group"
	}
	w.put(options)
	if to == task.Taken || to == task.Buried {
		w.take()
	}
	if to == task.Buried {
		require.NoError(t, w.lease.Bury(t.Context(), nil))
	}
	require.Equal(t, to, w.state())
	return w
}

func (w *world) put(options task.PutOptions) {
	var err error
	w.id, err = w.queue.Put(w.Context(), "key", "first", options)
	require.NoError(w, err)
}

func (w *world) take() {
	var err error
	w.lease, err = w.consumer.Take(w.Context())
	require.NoError(w, err)
}

func (w *world) state() task.State {
	it, err := w.queue.Peek(w.Context(), w.id)
	if errors.Is(err, task.ErrNotFound) {
		return gone
	}
	require.NoError(w, err)
	return it.Info().State
}

// way is how a task gets along an arrow.
type way struct {
	from, to task.State
	how      func(w *world) error
	options  task.PutOptions
	untried  bool // the task keeps its turn, and is first again
}

var errTest = errors.New("it failed")

func put(options task.PutOptions) func(*world) error {
	return func(w *world) error { w.put(options); return nil }
}

func wait(*world) error { // in a bubble of virtual time
	time.Sleep(time.Minute)
	synctest.Wait()
	return nil
}

var ways = []way{
	{from: none, to: task.Ready, how: put(task.PutOptions{})},
	{from: none, to: task.Delayed, how: put(task.PutOptions{Delay: time.Minute})},
	{from: none, to: task.Held, how: put(task.PutOptions{Group: "group"})},
	{from: task.Held, to: task.Ready, how: func(w *world) error { return w.queue.StartGroup(w.Context(), "group") }},
	{from: task.Delayed, to: task.Ready, how: wait},
	{from: task.Ready, to: task.Taken, how: func(w *world) error { w.take(); return nil }},
	{from: task.Taken, to: task.Ready, how: func(w *world) error { return w.lease.Release(w.Context(), 0) }},
	{from: task.Taken, to: task.Ready, how: func(w *world) error { return w.lease.Fail(w.Context(), errTest, 0) }},
	{from: task.Taken, to: task.Ready, how: wait, options: task.PutOptions{TTR: time.Minute}},
	{from: task.Taken, to: task.Ready, how: func(w *world) error { return w.consumer.Close(w.Context()) }, untried: true},
	{from: task.Taken, to: task.Ready, how: func(w *world) error { return w.lease.Return(w.Context()) }, untried: true},
	{from: task.Taken, to: task.Delayed, how: func(w *world) error { return w.lease.Release(w.Context(), time.Minute) }},
	{from: task.Taken, to: task.Ready, how: func(w *world) error { return w.lease.Snooze(w.Context(), 0) }},
	{from: task.Taken, to: task.Delayed, how: func(w *world) error { return w.lease.Snooze(w.Context(), time.Minute) }},
	{from: task.Taken, to: task.Delayed, how: func(w *world) error { return w.lease.Fail(w.Context(), errTest, time.Minute) }},
	{from: task.Taken, to: task.Buried, how: func(w *world) error { return w.lease.Bury(w.Context(), errTest) }},
	{
		from: task.Taken, to: task.Buried, options: task.PutOptions{MaxAttempts: 1},
		how: func(w *world) error { return w.lease.Fail(w.Context(), errTest, time.Minute) },
	},
	{from: task.Buried, to: task.Ready, how: func(w *world) error {
		_, err := w.queue.Kick(w.Context(), task.ListOptions{Limit: 1})
		return err
	}},
	{from: task.Taken, to: gone, how: func(w *world) error { return w.lease.Ack(w.Context()) }},
	{from: task.Taken, to: gone, how: func(w *world) error { return w.lease.Discard(w.Context(), errTest) }},
}

func TestArrows(t *testing.T) {
	for _, a := range arrows {
		tried := 0
		for _, way := range ways {
			if way.from != a.from || way.to != a.to {
				continue
			}
			tried++
			synctest.Test(t, func(t *testing.T) {
				w := bring(t, a.from, way.options)
				if a.to == task.Ready && a.from != none { // then who comes first?
					_, err := w.queue.Put(t.Context(), "key", "second", task.PutOptions{})
					require.NoError(t, err)
				}
				require.NoError(t, way.how(w))
				require.Equal(t, a.to, w.state(), "from %v", a.from)
				if a.to == task.Ready && a.from != none {
					first, err := w.queue.Take(t.Context())
					require.NoError(t, err)
					require.Equal(t, way.untried, first.ID == w.id, "from %v", a.from)
				}
			})
		}
		require.Positive(t, tried, "from %v to %v", a.from, a.to)
	}
	for _, way := range ways {
		require.True(t, slices.ContainsFunc(arrows, func(a arrow) bool { return a.from == way.from && a.to == way.to }),
			"there is no arrow from %v to %v", way.from, way.to)
	}
}

// What is written below the picture.
func TestFromAnyState(t *testing.T) {
	for _, n := range nodes {
		synctest.Test(t, func(t *testing.T) {
			w := bring(t, n.state, task.PutOptions{})
			require.NoError(t, w.queue.Delete(t.Context(), w.id))
			require.Equal(t, gone, w.state())

			w = bring(t, n.state, task.PutOptions{})
			require.NoError(t, w.queue.Bury(t.Context(), w.id, errTest))
			require.Equal(t, task.Buried, w.state())

			w = bring(t, n.state, task.PutOptions{TTL: time.Second})
			time.Sleep(2 * time.Minute) // a delay is added to the time to live
			if n.state == task.Taken {
				require.Equal(t, task.Taken, w.state())
			} else {
				require.Equal(t, gone, w.state())
			}

			w = bring(t, n.state, task.PutOptions{Deadline: time.Now().Add(time.Second)})
			time.Sleep(time.Second)
			if n.state == task.Taken {
				require.Equal(t, task.Taken, w.state())
			} else {
				require.Equal(t, gone, w.state())
			}
		})
	}
}
