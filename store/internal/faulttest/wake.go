package faulttest

import (
	"context"
	"fmt"
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
		wakes(room[1], func() (err error) {
			_, err = room[1].PutWait(ctx, "key", "", task.PutOptions{})
			return err
		}, func() error { return room[0].Delete(ctx, id) })
		_, err := room[1].Truncate(ctx)
		require.NoError(t, err)

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
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for j := range 60 {
				name := fmt.Sprint(i, " ", j)
				put(plain[0], name)
				assert.NoError(t, take())
				assert.NoError(t, plain[0].Wait(ctx, name))
			}
		})
	}
	all.Wait()
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
					_, err := q.Put(t.Context(), fmt.Sprint(key), "", task.PutOptions{})
					assert.NoError(t, err)
				}
			})
		}
	}
	all.Wait()
	// served[a][b] counts b's turns since a's last one. Until a's next turn they are from two
	// rounds at most.
	served := map[string]map[string]int{}
	for key := range keys {
		served[fmt.Sprint(key)] = map[string]int{}
	}
	for range 2 * keys * each {
		taken, ok, err := two[0].TryTake(t.Context())
		require.NoError(t, err)
		require.True(t, ok, "some are missing")
		for _, n := range served[taken.Key] {
			require.LessOrEqual(t, n, 2*perRound)
		}
		served[taken.Key] = map[string]int{}
		for key, since := range served {
			if key != taken.Key {
				since[taken.Key]++
			}
		}
	}
}
