package faulttest

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/task"
)

// Attend lets one process put tasks, look at them and wait for their ends, while another one works
// on them. A call that is not woken waits for a Poll, which should be longer than the test may take.
func Attend(t *testing.T, open Opener, where string) {
	s, err := open(t.Context(), where)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	q, err := openQueue(t.Context(), s, "plain")
	require.NoError(t, err)
	_, path := newJournal(t)
	child := Start(t, Job{Role: "attend", Name: "child", Where: where, Journal: path})
	require.Equal(t, "ready", child.Await())
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	var all sync.WaitGroup
	failures := make(chan error, attending)
	for i := range attending {
		all.Go(func() {
			for j := range 60 {
				if err := attend(ctx, q, fmt.Sprint(i, " ", j)); err != nil {
					failures <- err
					return
				}
			}
		})
	}
	all.Wait()
	child.Stop()
	require.NoError(t, q.Close(context.Background()))
	close(failures)
	for err := range failures {
		require.NoError(t, err)
	}
}

// attending is the number of goroutines that wait at the same time.
const attending = 4

func attend(ctx context.Context, q *task.Queue[string], name string) error {
	id, err := q.Put(ctx, name, name, task.PutOptions{UniqueKey: name})
	if err != nil {
		return err
	}
	_, _ = q.Peek(ctx, id) // it may be gone
	return q.Wait(ctx, name)
}

// attend works on the tasks.
func (s *Self) attend() error {
	l, err := s.open("plain")
	if err != nil {
		return err
	}
	s.Say("ready")
	if err := l.start(2, (*load).ackOne)(); err != nil {
		return err
	}
	return l.queue.Close(context.Background())
}

func (l *load) ackOne() error {
	t, err := l.queue.Take(l.Stop)
	if err == nil {
		_ = t.Ack(context.Background()) // waiting calls notice
	}
	return err
}
