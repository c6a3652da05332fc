package rows_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/store/internal/rows/rowstest"
	"github.com/fairq/fairq/task"
)

// queue is a queue of tasks whose keys are the first letters of their payloads.
type queue struct {
	*testing.T
	*task.Queue[string]
}

// openQueue opens a queue, and waits until the work that opening began is done.
func openQueue(t *testing.T, in task.Store, o task.Options[string]) queue {
	q, err := task.Open(t.Context(), in, "q", &o)
	require.NoError(t, err)
	synctest.Wait()
	t.Cleanup(func() { _ = q.Close(context.Background()) })
	return queue{t, q}
}

// put puts tasks, such as "a1 b1:x", where x is a kind.
func (q queue) put(tasks string) {
	for name := range strings.FieldsSeq(tasks) {
		payload, kind, _ := strings.Cut(name, ":")
		_, err := q.Put(q.Context(), name[:1], payload, task.PutOptions{Kind: kind})
		require.NoError(q, err)
	}
}

// take takes the next task, which must be want.
func (q queue) take(want string, kinds ...string) *task.Task[string] {
	q.Helper()
	c := q.NewConsumer(task.Filter{Kinds: kinds})
	t, ok, err := c.TryTake(q.Context())
	require.NoError(q, err)
	require.True(q, ok)
	require.Equal(q, want, t.Payload)
	return t
}

// order takes all tasks, which must come in the order of want.
func (q queue) order(want string) {
	q.Helper()
	var got []string
	for {
		t, ok, err := q.TryTake(q.Context())
		require.NoError(q, err)
		if !ok {
			break
		}
		got = append(got, t.Payload)
		require.NoError(q, t.Ack(q.Context()))
	}
	require.Equal(q, want, strings.Join(got, " "))
}

func bubble(t *testing.T, o task.Options[string], test func(q queue)) {
	synctest.Test(t, func(t *testing.T) { test(openQueue(t, open(rowstest.NewDB(time.Now)), o)) })
}

// Weights count in a queue with kinds too.
func TestWeightsWithKinds(t *testing.T) {
	o := task.Options[string]{
		Weight: func(key string) int { return map[string]int{"a": 2, "b": 1}[key] },
	}
	bubble(t, o, func(q queue) {
		q.put("a1:x a2:x a3:x a4:x b1:x b2:x b3:x")
		q.order("a1 a2 b1 a3 a4 b2 b3")
	})
}

// The first task of each kind has the first turn of its key, even after the key was paused and has
// missed turns.
func TestResumedKinds(t *testing.T) {
	bubble(t, task.Options[string]{}, func(q queue) {
		q.put("a1:x a2:y b1:x b2:x b3:x b4:x c1:y")
		require.NoError(t, q.PauseKey(q.Context(), "a"))
		for _, b := range []string{"b1", "b2", "b3"} {
			q.take(b, "x")
		}
		require.NoError(t, q.ResumeKey(q.Context(), "a"))
		q.take("a2", "y")
		q.order("c1 a1 b4")
	})
}

// Within a key a task comes before a later one of another kind, even if a third task was handed
// back.
func TestOrderOfKinds(t *testing.T) {
	bubble(t, task.Options[string]{}, func(q queue) {
		q.put("a1 a2:x")
		one, two := q.take("a1"), q.take("a2")
		require.NoError(t, two.Return(q.Context()))
		q.put("a3:y")
		require.NoError(t, one.Return(q.Context()))
		q.take("a2", "x", "y")
		q.take("a3", "x", "y")
		q.order("a1")
	})
}

// A task that was taken before the queue had kinds comes first when it is handed back.
func TestFirstKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := rowstest.NewDB(time.Now)
		q, other := openQueue(t, open(db), task.Options[string]{}),
			openQueue(t, open(db.Reopen()), task.Options[string]{})
		q.put("a1 b1 a2 b2 a3")
		q.take("a1")
		b := q.take("b1")
		other.put("c1:x")
		require.NoError(t, b.Return(t.Context()))
		q.order("b1 a2 b2 c1 a3")
	})
}

// When a task that was handed back is deleted, later tasks of its key do not overtake a taken one.
func TestGapBehindTaken(t *testing.T) {
	for _, weight := range []int{1, 2} {
		bubble(t, task.Options[string]{Weight: func(string) int { return weight }}, func(q queue) {
			q.put("a1 a2 a3 a4")
			one, two := q.take("a1"), q.take("a2")
			require.NoError(t, one.Return(q.Context()))
			require.NoError(t, q.Delete(q.Context(), one.ID))
			require.NoError(t, two.Return(q.Context()))
			q.order("a2 a3 a4")
		})
	}
}

// A key that is paused and resumed keeps the order of its tasks. Tasks that were handed back come
// first.
func TestResumedInOrder(t *testing.T) {
	everywhere(t, task.Options[string]{}, func(q queue) {
		q.put("a1 a2 a3")
		one, two, three := q.take("a1"), q.take("a2"), q.take("a3")
		q.put("b1")
		require.NoError(q, one.Return(q.Context()))
		require.NoError(q, two.Return(q.Context()))
		require.NoError(q, q.PauseKey(q.Context(), "a"))
		require.NoError(q, q.ResumeKey(q.Context(), "a"))
		require.NoError(q, three.Return(q.Context()))
		q.order("a1 a2 a3 b1")
	})
}

// A key of weight w has w tasks in a round, in the order in which they were put, whatever their
// kinds.
func TestTurnsOfKinds(t *testing.T) {
	weights := map[string]int{"a": 2, "b": 1}
	everywhere(t, task.Options[string]{
		Weight: func(key string) int { return weights[key] },
	}, func(q queue) {
		q.put("a1:x b1 b2:x b3 a2:y a3 a4:x")
		one, two := q.take("a1"), q.take("b1")
		require.NoError(q, one.Return(q.Context()))
		require.NoError(q, two.Return(q.Context()))
		q.order("a1 b1 a2 b2 a3 a4 b3")
	})
}

// The tasks of a key come in the order of their places, even after the queue was opened with other
// options.
func TestOtherOptionsInOrder(t *testing.T) {
	all := map[string]task.Options[string]{
		"none": {}, "limit": {MaxInFlightPerKey: 9}, "room": {KeyCapacity: 9},
		"rate": {KeyRate: task.Rate{Limit: 1, Burst: 50}},
	}
	for before, o := range all {
		for after, changed := range all {
			for i := range 8 {
				o.KeepPlace, o.Quantum = i%2 == 1, int64(i/2%2*3)
				changed.KeepPlace, changed.Quantum = o.KeepPlace, o.Quantum
				t.Run(fmt.Sprintf("%s to %s, %d", before, after, i), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						testOtherOptions(t, limitedDB(i/4*30, false), o, changed)
					})
				})
			}
		}
	}
}

func testOtherOptions(t *testing.T, db *rowstest.DB, o, changed task.Options[string]) {
	store := open(db)
	q := openQueue(t, store, o)
	q.put("a1 a2 a3 a4 a5 a6 a7 a8 a9")
	one, c := q.take("a1"), q.NewConsumer(task.Filter{})
	_, ok, err := c.TryTake(t.Context())
	require.NoError(t, err)
	require.True(t, ok)
	three, four := q.take("a3"), q.take("a4")
	require.NoError(t, c.Disconnect(t.Context()))
	require.NoError(t, one.Return(t.Context()))
	require.NoError(t, q.Delete(t.Context(), one.ID)) // which leaves its turn
	require.NoError(t, three.Return(t.Context()))
	require.NoError(t, four.Bury(t.Context(), nil))
	require.NoError(t, q.Close(t.Context()))
	q = openQueue(t, store, changed)
	require.Empty(t, rowstest.Walk(t, db.Reopen(), "q"))
	c, _, err = q.ResumeConsumer(t.Context(), c.ID(), task.Filter{})
	require.NoError(t, err)
	require.NoError(t, c.Close(t.Context())) // now a2 is handed back
	q.order("a2 a3 a5 a6 a7 a8 a9")
	require.NoError(t, second(q.Kick(t.Context(), task.ListOptions{Limit: 1})))
	q.order("a4")
}

// A resumed key has its tasks in order, even if resuming takes several transactions.
func TestResumedInSteps(t *testing.T) {
	for _, maxWrites := range []int{0, 60} {
		synctest.Test(t, func(t *testing.T) {
			weights := map[string]int{"a": 11, "b": 1}
			q := openQueue(t, open(limitedDB(maxWrites, false)), task.Options[string]{
				Weight: func(key string) int { return weights[key] },
			})
			name := func(i int) string { return fmt.Sprint("a", i) }
			for i := 1; i <= 23; i++ {
				q.put(name(i) + ":" + map[bool]string{true: "z", false: "x"}[i == 13])
			}
			q.put("b1:y b2:y b3:y b4:y b5:y b6:y b7:y b8:y")
			for _, b := range []string{"b1", "b2", "b3", "b4"} {
				q.take(b, "y")
			}
			for i := 1; i <= 12; i++ { // turns that follow missed ones come last in their round
				q.take(name(i), "x")
			}
			require.NoError(t, q.PauseKey(t.Context(), "a"))
			for _, b := range []string{"b5", "b6", "b7", "b8"} {
				q.take(b, "y")
			}
			require.NoError(t, q.ResumeKey(t.Context(), "a"))
			for i := 14; i <= 23; i++ {
				q.take(name(i), "x")
			}
			q.order("a13")
		})
	}
}

// In a queue with kinds a task behind a handed-back one gets its turn by the time of its Put.
func TestBehindReturnedKind(t *testing.T) {
	everywhere(t, task.Options[string]{}, func(q queue) {
		q.put("a1:x b1:x b2:x b3:x")
		a1 := q.take("a1")
		for _, b := range []string{"b1", "b2", "b3"} {
			q.take(b)
		}
		require.NoError(q, a1.Return(q.Context()))
		q.put("a2:x c1:x")
		q.order("a1 a2 c1")
	})
}
