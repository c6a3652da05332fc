package faulttest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/task"
)

// openTwo opens a queue in two Stores, which share nothing but the database, like two processes.
func openTwo(t *testing.T, open Opener, where, name string) (two [2]*task.Queue[string]) {
	for i := range two {
		s, err := open(t.Context(), where)
		require.NoError(t, err)
		two[i], err = openQueue(t.Context(), s, name)
		require.NoError(t, err)
		t.Cleanup(func() {
			require.NoError(t, two[i].Close(context.Background()))
			require.NoError(t, s.Close())
		})
	}
	return two
}

// awaitCall waits until a call waits for a task, or for room.
func awaitCall(t *testing.T, ctx context.Context, q *task.Queue[string]) {
	t.Helper()
	for waits := false; !waits; {
		stats, err := q.Stats(ctx)
		require.NoError(t, err)
		waits = stats.WaitingTake+stats.WaitingPut > 0
	}
}

// Wake lets calls of one Store wait for changes that another one makes. A call that is not woken
// waits for a Poll, which should be longer than the test may take.
func Wake(t *testing.T, open Opener, where string) {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	plain, room := openTwo(t, open, where, "plain"), openTwo(t, open, where, "room")
	wakes := func(q *task.Queue[string], call, change func() error) {
		t.Helper()
		woken := make(chan error, 1)
		go func() { woken <- call() }()
		if q != nil {
			awaitCall(t, ctx, q)
		}
		require.NoError(t, change())
		require.NoError(t, <-woken)
	}
	put := func(q *task.Queue[string], uniqueKey string) task.ID {
		t.Helper()
		id, err := q.Put(ctx, "key", "", task.PutOptions{UniqueKey: uniqueKey})
		require.NoError(t, err)
		return id
	}
	take := func() error {
		taken, err := plain[1].Take(ctx)
		if err != nil {
			return err
		}
		return taken.Ack(ctx)
	}
	for range 20 {
		wakes(plain[1], take, func() error { put(plain[0], ""); return nil })

		require.NoError(t, plain[1].Pause(ctx))
		put(plain[1], "")
		wakes(plain[1], take, func() error { return plain[0].Resume(ctx) })

		id := put(room[0], "")
		wakes(room[1], func() error {
			id, err := room[1].PutWait(ctx, "key", "", task.PutOptions{})
			if err != nil {
				return err
			}
			return room[1].Delete(ctx, id)
		}, func() error { return room[0].Delete(ctx, id) })

		put(plain[0], "unique key")
		taken, err := plain[0].Take(ctx)
		require.NoError(t, err)
		outcome := func() error { return plain[1].Wait(ctx, "unique key") }
		wakes(nil, outcome, func() error { return taken.Ack(ctx) })

		id = put(plain[1], "")
		taken, err = plain[1].Take(ctx)
		require.NoError(t, err)
		leased, stop := taken.Context(ctx)
		wakes(nil, func() error { <-leased.Done(); return ctx.Err() },
			func() error { return plain[0].Delete(ctx, id) })
		stop()
	}

	// All at once.
	working, stop := context.WithCancel(ctx)
	var workers, callers sync.WaitGroup
	for range 2 {
		workers.Go(func() {
			for {
				taken, err := plain[1].Take(working)
				if working.Err() != nil || !assert.NoError(t, err) {
					return
				}
				assert.NoError(t, taken.Ack(ctx))
			}
		})
	}
	for i := range 4 {
		callers.Go(func() {
			for j := range 60 {
				name := fmt.Sprint(i, " ", j)
				_, err := plain[0].Put(ctx, name, name, task.PutOptions{UniqueKey: name})
				assert.NoError(t, err)
				assert.NoError(t, plain[0].Wait(ctx, name))
			}
		})
	}
	callers.Wait()
	stop()
	workers.Wait()
}

// Fair lets two Stores fill a queue at the same time. perRound is how often a key of weight 1 may
// be served in a round then.
func Fair(t *testing.T, open Opener, where string, perRound int) {
	const keys, each = 7, 40
	two := openTwo(t, open, where, "fair")
	var all sync.WaitGroup
	for _, q := range two {
		for key := range keys {
			all.Go(func() {
				for range each {
					_, err := q.Put(t.Context(), fmt.Sprint("key", key), "", task.PutOptions{})
					assert.NoError(t, err)
				}
			})
		}
	}
	all.Wait()
	var order []int
	for range 2 * keys * each {
		taken, ok, err := two[0].TryTake(t.Context())
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
}
