package faulttest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/task"
)

// Fair lets two processes fill a queue at the same time. perRound is how often a key of weight 1
// may be served in a round then.
func Fair(t *testing.T, open Opener, where string, perRound int) {
	const keys, each = 7, 40
	_, path := newJournal(t)
	var all []*Process
	for i := range 2 {
		all = append(all, Start(t, Job{
			Role: "fill", Name: fmt.Sprint("fill", i), Where: where, Journal: path,
			Args: map[string]int{"keys": keys, "each": each},
		}))
	}
	for _, p := range all {
		require.Equal(t, "ready", p.Await())
	}
	for _, p := range all {
		p.in.Close() // that is the signal to begin, for all at once
	}
	for _, p := range all {
		p.Stop()
	}
	s, err := open(context.Background(), where)
	require.NoError(t, err)
	defer s.Close()
	q, err := openQueue(t.Context(), s, "fair")
	require.NoError(t, err)
	defer q.Close(context.Background())
	var order []int
	for range 2 * keys * each {
		taken, ok, err := q.TryTake(t.Context())
		require.NoError(t, err)
		require.True(t, ok, "only %d are left", len(order))
		key := 0
		_, err = fmt.Sscanf(taken.Key, "key%d", &key)
		require.NoError(t, err)
		order = append(order, key)
	}
	// how often a key was served between two turns of another, which are in the same round or in
	// the next one
	most := 0
	for key := range keys {
		counts := make([]int, keys)
		for _, other := range order {
			if other == key {
				most = max(most, slices.Max(counts))
				clear(counts)
			} else {
				counts[other]++
			}
		}
	}
	require.LessOrEqual(t, most, 2*perRound)
	t.Logf("between two turns of a key another one had at most %d", most)
}

// fill waits until the test lets it go on, and then puts tasks.
func (s *Self) fill() error {
	q, err := openQueue(context.Background(), s.Store, "fair")
	if err != nil {
		return err
	}
	s.Say("ready")
	<-s.Stop.Done()
	var wg sync.WaitGroup
	failures := make(chan error, s.Args["keys"])
	for key := range s.Args["keys"] {
		wg.Go(func() {
			for range s.Args["each"] {
				_, err := q.Put(context.Background(), fmt.Sprint("key", key), "", task.PutOptions{})
				if err != nil {
					failures <- err
					return
				}
			}
		})
	}
	wg.Wait()
	if len(failures) > 0 {
		return <-failures
	}
	return q.Close(context.Background())
}
