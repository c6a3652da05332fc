package pool_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// put is a task that was submitted, for a model of a full queue.
type put struct {
	key string
	n   int
}

// fullQueue is a model of a queue from which nothing is taken.
type fullQueue struct {
	whenFull              pool.WhenFull
	capacity, keyCapacity int
	queued                []put // oldest first
}

func (q *fullQueue) len(key string) (n int) {
	for _, p := range q.queued {
		if p.key == key {
			n++
		}
	}
	return n
}

// submit returns what may be dropped, one of these, and whether the task is refused.
func (q *fullQueue) submit(p put) (dropped []int, refused bool) {
	n, free := q.len(p.key), q.capacity-len(q.queued)
	keyFull := q.keyCapacity > 0 && q.keyCapacity < q.capacity && n >= q.keyCapacity ||
		q.whenFull == pool.RejectOverShare && n > 0 && n >= free-1
	if len(q.queued) < q.capacity && !keyFull {
		q.queued = append(q.queued, p)
		return nil, false
	}
	switch {
	case q.whenFull == pool.Reject || q.whenFull == pool.RejectOverShare:
		return nil, true
	case q.whenFull == pool.DropNew:
		return []int{p.n}, false
	case keyFull:
		return nil, true
	}
	most := 0
	for _, other := range q.queued {
		most = max(most, q.len(other.key))
	}
	if q.whenFull == pool.EvictHeaviest && q.len(p.key) == most {
		return nil, true
	}
	inOrder := slices.Clone(q.queued)
	if q.whenFull == pool.EvictHeaviest {
		slices.Reverse(inOrder)
	}
	seen := map[string]bool{}
	for _, other := range inOrder {
		if q.len(p.key) == most && other.key != p.key {
			continue // it is up to its own key
		}
		if q.len(other.key) == most && !seen[other.key] {
			dropped = append(dropped, other.n)
			seen[other.key] = true
		}
	}
	q.queued = append(q.queued, p)
	return dropped, false
}

func (q *fullQueue) drop(n int) {
	q.queued = slices.DeleteFunc(q.queued, func(p put) bool { return p.n == n })
}

// TestWhenFull submits tasks to a pool that is paused, and compares what it drops with a model.
// Then all that is left is done.
func TestWhenFull(t *testing.T) {
	for _, whenFull := range []pool.WhenFull{
		pool.Reject, pool.RejectOverShare, pool.DropNew, pool.EvictOldest, pool.EvictHeaviest,
	} {
		t.Run(whenFull.String(), func(t *testing.T) {
			r := chance(t)
			for range 50 {
				synctest.Test(t, func(t *testing.T) { testWhenFull(t, r, whenFull) })
			}
		})
	}
}

func testWhenFull(t *testing.T, r *rand.Rand, whenFull pool.WhenFull) {
	ctx := t.Context()
	model := fullQueue{whenFull: whenFull, capacity: 1 + r.IntN(12)}
	if r.IntN(2) == 0 {
		model.keyCapacity = 1 + r.IntN(model.capacity)
	}
	var box mailbox[int]
	var g gate
	g.leave = make(chan error, 1000)
	var told int
	p := openFunc(t, g.handle, pool.Options[int]{
		Workers: 2, WhenFull: whenFull, Capacity: model.capacity, KeyCapacity: model.keyCapacity, DeadLetters: box.sink,
		Observer: pool.Observer[int]{Dropped: func(context.Context, string, *task.Task[int]) { told++ }},
	})
	p.Pause()
	begin := time.Now()
	for n := range 60 {
		time.Sleep(time.Second)
		key := fmt.Sprint(r.IntN(1 + r.IntN(6)))
		before := len(box.all())
		err := p.Submit(ctx, key, n)
		letters := box.all()[before:]
		dropped, refused := model.submit(put{key, n})
		if refused {
			require.ErrorIs(t, err, fairq.ErrFull)
			require.ErrorAs(t, err, new(*fairq.FullError))
			require.Empty(t, letters)
			continue
		}
		require.NoError(t, err)
		if len(dropped) == 0 {
			require.Empty(t, letters)
			continue
		}
		require.Len(t, letters, 1)
		letter := letters[0]
		require.Contains(t, dropped, letter.Payload)
		model.drop(letter.Payload)
		require.Equal(t, pool.ReasonOverflow, letter.Reason)
		require.ErrorIs(t, letter.Err, fairq.ErrFull)
		require.Zero(t, letter.Attempts)
		require.Equal(t, time.Now(), letter.At)
		if letter.Payload != n {
			require.Equal(t, begin.Add(time.Duration(letter.Payload+1)*time.Second), letter.Task.Created)
		} else {
			require.Equal(t, key, letter.Task.Key)
		}
	}
	letters := len(box.all())
	require.Equal(t, letters, told)
	require.Equal(t, [2]uint64{uint64(letters), uint64(letters)}, [2]uint64{p.Stats().Dropped, p.Stats().DeadLetters})
	for range 60 {
		g.leave <- nil
	}
	p.Resume()
	wait(t, p)
	_, started := g.now()
	var want []int
	for _, p := range model.queued {
		want = append(want, p.n)
	}
	require.ElementsMatch(t, want, started)
	end(t, ctx, p)
	require.Len(t, box.all(), letters)
}

// TestBlock has producers who wait, and of whom some give up, while the sink for failures gets
// nothing but failures.
func TestBlock(t *testing.T) {
	r := chance(t)
	inBubble(t, func(t *testing.T, ctx context.Context) {
		var box mailbox[int]
		g := newGate()
		p := openFunc(t, g.handle, pool.Options[int]{
			Workers: 1, Capacity: 5, DeadLetters: box.sink, Policy: pool.Policy{MaxAttempts: 1},
		})
		results := make(chan error, 100)
		put, gaveUp := 0, 0
		for i := range 100 {
			ctx, cancel := context.WithTimeout(ctx, time.Duration(1+r.IntN(100))*time.Minute)
			defer cancel()
			go func() { results <- p.Submit(ctx, "a", i) }()
		}
		synctest.Wait()
		for range 100 {
			time.Sleep(time.Minute)
			synctest.Wait()
			if running, _ := g.now(); running == 0 {
				break
			}
			g.leave <- errNo
			synctest.Wait()
			s, err := p.Queue("").Stats(ctx)
			require.NoError(t, err)
			require.LessOrEqual(t, s.Ready, 5)
			require.True(t, s.Ready == 5 || s.WaitingPut == 0)
		}
		for range 100 {
			switch err := <-results; {
			case err == nil:
				put++
			default:
				require.ErrorIs(t, err, context.DeadlineExceeded)
				gaveUp++
			}
		}
		require.Greater(t, gaveUp, 10)
		require.Len(t, box.all(), put)
		for _, letter := range box.all() {
			require.Equal(t, pool.ReasonFailed, letter.Reason)
			require.ErrorIs(t, letter.Err, errNo)
		}
		require.Zero(t, p.Stats().Dropped)
		end(t, ctx, p)
	})
}

// TestKeyCapacity has a key that fills its share, and another one that does not wait for it.
func TestKeyCapacity(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		g := newGate()
		p := openFunc(t, g.handle, pool.Options[int]{Workers: 1, Capacity: 10, KeyCapacity: 2})
		for i := range 3 { // the first one runs
			require.NoError(t, p.Submit(ctx, "flood", i))
			synctest.Wait()
		}
		blocked := make(chan error, 1)
		go func() { blocked <- p.Submit(ctx, "flood", 3) }()
		synctest.Wait()
		require.NoError(t, p.Submit(ctx, "other", 4))
		require.Empty(t, blocked)
		g.let(1)
		require.NoError(t, <-blocked)
		g.let(4)
		end(t, ctx, p)
	})
}

// TestWhatCannotBeDropped has a sink that fails: then the one who submits is told, or the log.
func TestWhatCannotBeDropped(t *testing.T) {
	for name, sink := range map[string]pool.Sink[int]{
		"error": func(context.Context, *pool.DeadLetter[int]) error { return errNo },
		"panic": func(context.Context, *pool.DeadLetter[int]) error { panic(errNo) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, ctx context.Context) {
				var out bytes.Buffer
				log := slog.New(slog.NewTextHandler(&out, nil))
				o := pool.Options[int]{Workers: 1, Capacity: 1, WhenFull: pool.DropNew, DeadLetters: sink, Logger: log}
				p := openFunc(t, newGate().handle, o)
				p.Pause()
				require.NoError(t, p.Submit(ctx, "a", 1))
				err := p.Submit(ctx, "a", 2)
				require.ErrorIs(t, err, errNo)
				require.ErrorIs(t, err, fairq.ErrFull)
				require.Zero(t, p.Stats().DeadLetters)

				o.WhenFull = pool.EvictHeaviest
				p = openFunc(t, newGate().handle, o)
				p.Pause()
				require.NoError(t, p.Submit(ctx, "a", 11))
				require.ErrorIs(t, p.Submit(ctx, "a", 12), fairq.ErrFull)
				o.Capacity = 2
				p = openFunc(t, newGate().handle, o)
				p.Pause()
				require.NoError(t, p.Submit(ctx, "a", 21))
				require.NoError(t, p.Submit(ctx, "a", 22))
				out.Reset()
				require.NoError(t, p.Submit(ctx, "b", 23))
				require.Contains(t, out.String(), "payload=22")
				require.Contains(t, out.String(), "key=a")
				require.Contains(t, out.String(), "reason=overflow")
			})
		})
	}
}

// TestSinkThatSubmits has dead letters that come back into the pool, also while it is shut down.
func TestSinkThatSubmits(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		var p *pool.Pool[int]
		g := newGate()
		sink := func(ctx context.Context, letter *pool.DeadLetter[int]) error {
			time.Sleep(time.Hour)
			return p.Submit(ctx, "again", letter.Payload)
		}
		p = openFunc(t, g.handle, pool.Options[int]{Workers: 1, Capacity: 1, WhenFull: pool.DropNew, DeadLetters: sink})
		require.NoError(t, p.Submit(ctx, "a", 1))
		synctest.Wait()
		require.NoError(t, p.Submit(ctx, "a", 3))
		result := make(chan error, 1)
		go func() { result <- p.Submit(ctx, "a", 2) }()
		synctest.Wait()
		g.let(2)
		require.NoError(t, p.Shutdown(ctx))
		err := <-result
		require.ErrorIs(t, err, pool.ErrShutdown)
		require.ErrorIs(t, err, fairq.ErrFull)
	})
}

// TestSubmitToOwnedQueue has a queue that is the caller's: what it evicts is up to it.
func TestSubmitToOwnedQueue(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		var box mailbox[int]
		var lost []error
		onEvict := pool.ToDeadLetters(box.sink, pool.ReasonOverflow, func(_ *task.Task[int], err error) { lost = append(lost, err) })
		q := openQueue(t, &task.Options[int]{Capacity: 3, WhenFull: fairq.EvictHeaviest, OnEvict: onEvict})
		g := newGate()
		p := openNew(t, q, g.handle, pool.Options[int]{Workers: 1})
		p.Pause()
		for i := range 3 {
			require.NoError(t, p.Submit(ctx, "flood", i))
		}
		require.NoError(t, p.Submit(ctx, "other", 3))
		require.Len(t, box.all(), 1)
		letter := box.all()[0]
		require.Equal(t, 2, letter.Payload)
		require.Equal(t, "flood", letter.Task.Key)
		require.Equal(t, pool.ReasonOverflow, letter.Reason)
		require.ErrorIs(t, letter.Err, fairq.ErrFull)
		require.Empty(t, lost)
		p.Resume()
		g.let(3)
		require.NoError(t, p.Shutdown(ctx))
	})
}

// TestSubmitThatWaits counts what a Submit that waits allocates, with the attempt at its task.
func TestSubmitThatWaits(t *testing.T) {
	ctx := context.Background()
	var p *pool.Pool[int]
	p = openFunc(t, func(context.Context, *task.Task[int]) error {
		for s, err := p.Queue("").Stats(ctx); err == nil && s.WaitingPut == 0 && !p.Stats().Closed; s, err = p.Queue("").Stats(ctx) {
			runtime.Gosched()
		}
		return nil
	}, pool.Options[int]{Workers: 1, Capacity: 1})
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() { _ = p.Submit(ctx, "a", 1) }), 7.0)
	requireLeft(t, p, p.Shutdown(ctx), 1)
}

// TestSubmitInOwnTransaction has no room: to wait for it could keep others from making it.
func TestSubmitInOwnTransaction(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		q, _ := openDatabase(t, 0, &task.Options[int]{Capacity: 1})
		p := openNew(t, q, nothing, pool.Options[int]{Workers: 1})
		p.Pause()
		require.NoError(t, p.Submit(ctx, "a", 1))
		tx := context.WithValue(context.Background(), ownTx{}, true)
		require.ErrorIs(t, p.Submit(tx, "a", 2), fairq.ErrFull)
		p.Resume()
		end(t, ctx, p)
	})
}

// TestSubmitBatch has batches for which there is no room, under each policy.
func TestSubmitBatch(t *testing.T) {
	for _, whenFull := range []pool.WhenFull{pool.Block, pool.Reject, pool.DropNew, pool.EvictOldest} {
		t.Run(whenFull.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, ctx context.Context) {
				var box mailbox[int]
				var refused []int
				p := openFunc(t, nothing, pool.Options[int]{
					Workers: 1, WhenFull: whenFull, DeadLetters: box.sink, Delay: time.Minute, DeadlineAfter: time.Hour,
					Classes: []pool.Class[int]{{Name: "x", Capacity: 3}, {Name: "y", Capacity: 3}},
					Observer: pool.Observer[int]{Refused: func(_ context.Context, _ string, tk *task.Task[int], _ error) {
						refused = append(refused, tk.Payload)
					}},
				})
				var batch []pool.Entry[int]
				for i, class := range []string{"x", "x", "y", "x", "x", "y"} {
					batch = append(batch, pool.Entry[int]{Key: "a", Payload: i, Options: pool.PutOptions{Class: class}})
				}
				begin := time.Now()
				ids, err := p.SubmitBatch(ctx, batch)
				if whenFull == pool.Reject {
					require.ErrorAs(t, err, new(*fairq.FullError))
					require.Len(t, ids, 4)
					require.Equal(t, []int{4, 5}, refused)
					require.Equal(t, uint64(2), p.Stats().Refused)
				} else {
					require.NoError(t, err)
					require.Len(t, ids, 6)
					require.Equal(t, whenFull == pool.DropNew, ids[4] == 0)
				}
				if whenFull == pool.Block {
					require.Equal(t, time.Minute, time.Since(begin)) // when the first one was done
				}
				tasks, err := p.Queue("x").List(ctx, task.ListOptions{})
				require.NoError(t, err)
				for _, tk := range tasks {
					if tk.Info().State == task.Delayed { // the last ones may be ready by now
						require.Equal(t, tk.Info().Created.Add(time.Minute), tk.Info().Until)
					}
					require.Equal(t, begin.Add(time.Hour), tk.Info().Deadline)
				}
				wait(t, p)
				require.EqualValues(t, map[pool.WhenFull]int{pool.Block: 6, pool.Reject: 4, pool.DropNew: 5, pool.EvictOldest: 5}[whenFull], p.Stats().Succeeded)
				require.Len(t, box.all(), int(p.Stats().Dropped))
				batch[5].Options.Class = "z"
				ids, err = p.SubmitBatch(ctx, batch)
				require.ErrorIs(t, err, pool.ErrInvalid)
				require.Empty(t, ids)
				end(t, ctx, p)
				ids, err = p.SubmitBatch(ctx, batch[:5])
				require.Equal(t, pool.ErrShutdown, err)
				require.Empty(t, ids)
			})
		})
	}
}

// TestTrySubmit is never kept waiting, and drops nothing that it was given.
func TestTrySubmit(t *testing.T) {
	for _, whenFull := range []pool.WhenFull{
		pool.Block, pool.Reject, pool.RejectOverShare, pool.DropNew, pool.EvictOldest, pool.EvictHeaviest,
	} {
		inBubble(t, func(t *testing.T, ctx context.Context) {
			var box mailbox[int]
			p := openFunc(t, nothing, pool.Options[int]{Workers: 1, WhenFull: whenFull, Capacity: 1, DeadLetters: box.sink, Delay: time.Minute})
			begin := time.Now()
			id, err := p.TrySubmit(ctx, "a", 1, pool.PutOptions{})
			require.NoError(t, err)
			require.NotZero(t, id)
			id, err = p.TrySubmit(ctx, "a", 2, pool.PutOptions{})
			require.Equal(t, begin, time.Now())
			if whenFull == pool.EvictOldest {
				require.NoError(t, err)
				require.Equal(t, 1, box.all()[0].Payload)
			} else {
				require.ErrorAs(t, err, new(*fairq.FullError))
				require.Zero(t, id)
				require.Empty(t, box.all())
			}
			wait(t, p)
			require.Equal(t, begin.Add(time.Minute), time.Now())
			end(t, ctx, p)
			_, err = p.TrySubmit(ctx, "a", 3, pool.PutOptions{})
			require.Equal(t, pool.ErrShutdown, err)
		})
	}
}

// TestSubmitWithContextThatIsDone puts nothing, although there is room.
func TestSubmitWithContextThatIsDone(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		p := openFunc(t, nothing, pool.Options[int]{Workers: 1})
		done, cancel := context.WithCancel(ctx)
		cancel()
		_, put := p.Put(done, "a", 1, pool.PutOptions{})
		_, try := p.TrySubmit(done, "a", 1, pool.PutOptions{})
		_, batch := p.SubmitBatch(done, []pool.Entry[int]{{Key: "a"}})
		for _, err := range []error{p.Submit(done, "a", 1), put, try, batch, p.Do(done, "a", 1, pool.PutOptions{})} {
			require.Equal(t, context.Canceled, err)
		}
		require.Equal(t, pool.Stats{Min: 1, Max: 1, Refused: 5}, p.Stats())
		end(t, ctx, p)
	})
}
