package pool_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// anyClasses returns some, with any weights.
func anyClasses(r *rand.Rand, most int) []pool.Class[int] {
	classes := make([]pool.Class[int], 2+r.IntN(most-1))
	for i := range classes {
		classes[i] = pool.Class[int]{Name: strconv.Itoa(i), Weight: r.IntN(6)}
	}
	return classes
}

// putIn puts a task into a class.
func putIn(t *testing.T, p *pool.Pool[int], class int, key string, n int) {
	t.Helper()
	_, err := p.Put(t.Context(), key, n, pool.PutOptions{Class: strconv.Itoa(class)})
	require.NoError(t, err)
}

// TestStrictOrder has one worker, and submits more tasks to all classes, also from the handler.
// The next task is always of the most urgent class with tasks, and there the keys come in rounds.
func TestStrictOrder(t *testing.T) {
	r := chance(t)
	for range 6 {
		synctest.Test(t, func(t *testing.T) {
			classes := anyClasses(r, 100)
			queued := make([]fairq.Queue[string, int], len(classes)) // the model
			n := 0
			var p *pool.Pool[int]
			add := func() {
				class, key := r.IntN(len(classes)), strconv.Itoa(r.IntN(3))
				n++
				queued[class].Push(key, n)
				putIn(t, p, class, key, n)
			}
			starts := 0
			p = openFunc(t, func(_ context.Context, tk *task.Task[int]) error {
				starts++
				i := slices.IndexFunc(queued, func(q fairq.Queue[string, int]) bool { return q.Len() > 0 })
				_, want, _ := queued[i].Pop()
				require.Equal(t, want, tk.Payload, "class %d", i)
				for range r.IntN(3) {
					if n < 500 {
						add()
					}
				}
				time.Sleep(time.Duration(r.IntN(2)) * time.Second)
				return nil
			}, pool.Options[int]{Workers: 1, Classes: classes, Strict: true})
			p.Pause()
			for range 50 {
				add()
			}
			p.Resume()
			wait(t, p)
			require.Equal(t, n, starts)
			end(t, t.Context(), p)
		})
	}
}

// TestWeightedShares has one worker, and classes that always have tasks: in each round each class
// gets exactly its weight.
func TestWeightedShares(t *testing.T) {
	r := chance(t)
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			classes := anyClasses(r, 20)
			round := 0
			for _, c := range classes {
				round += max(c.Weight, 1)
			}
			var order []string
			var p *pool.Pool[int]
			p = openFunc(t, func(_ context.Context, tk *task.Task[int]) error {
				order = append(order, tk.Kind)
				if len(order) < 10*round { // the class gets a new one for each that was started
					_, err := p.Put(t.Context(), tk.Key, 0, pool.PutOptions{PutOptions: task.PutOptions{
						Kind: tk.Kind,
					}, Class: tk.Kind})
					require.NoError(t, err)
				}
				return nil
			}, pool.Options[int]{Workers: 1, Classes: classes})
			p.Pause()
			for _, c := range classes {
				for i := range 2 * max(c.Weight, 1) {
					_, err := p.Put(t.Context(), strconv.Itoa(i%3), 0,
						pool.PutOptions{PutOptions: task.PutOptions{Kind: c.Name}, Class: c.Name})
					require.NoError(t, err)
				}
			}
			synctest.Wait()
			p.Resume()
			wait(t, p)
			for part := range slices.Chunk(order[:10*round], round) {
				got := map[string]int{}
				for _, class := range part {
					got[class]++
				}
				for _, c := range classes {
					require.Equal(t, max(c.Weight, 1), got[c.Name], "class %s of %+v", c.Name, classes)
				}
			}
			end(t, t.Context(), p)
		})
	}
}

// TestOwnCapacity has a full class: only submits to it wait.
func TestOwnCapacity(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		g := newGate()
		p := openFunc(t, g.handle,
			pool.Options[int]{
				Workers: 1, Queue: task.Options[int]{Capacity: 2},
				Classes: []pool.Class[int]{
					{Name: "0"}, {Name: "1"}, {Name: "2", Queue: openQueue[int](t, nil)},
				},
			})
		for class, room := range []int{3, 2, 100} { // one of the first class runs
			for i := range 100 {
				_, err := p.TrySubmit(ctx, strconv.Itoa(i), i,
					pool.PutOptions{Class: strconv.Itoa(class)})
				synctest.Wait()
				if i < room {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, fairq.ErrFull)
				}
			}
		}
		g.let(105)
		_, err := p.Put(ctx, "a", 1, pool.PutOptions{Class: "3"})
		require.EqualError(t, err, `pool: invalid: there is no class "3"`)
		require.ErrorIs(t, p.Do(ctx, "a", 1, pool.PutOptions{Class: "3"}), task.ErrInvalid)
		require.Nil(t, p.Queue("3"))
		require.Same(t, p.Queue("0"), p.Queue(""))
		end(t, ctx, p)
	})
}

// TestSlowClass has a worker ask a database that takes an hour to answer. No call of another class
// waits for that, or for anything but the worker.
func TestSlowClass(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context) {
		q, _ := openDatabase[int](t, time.Hour, nil)
		p := openFunc(t, nothing, pool.Options[int]{ // it waits for the first answer
			Scale:   pool.Scale{Max: 2},
			Classes: []pool.Class[int]{{Name: "0", Queue: q}, {Name: "1"}},
		})
		begin := time.Now()
		putIn(t, p, 1, "a", 1)
		p.Pause()
		p.Resume()
		require.NoError(t, p.SetWorkers(2, 2))
		putIn(t, p, 1, "a", 2)
		require.Equal(t, begin, time.Now())
		wait(t, p)
		require.Equal(t, uint64(2), p.Stats().Succeeded)
		end(t, ctx, p)
	})
}
