package rows_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/store/internal/rows/rowstest"
	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/memory"
)

// everywhere runs a test in a bubble, over both kinds of databases, and over memory, to show that
// the test expects the right results.
func everywhere(t *testing.T, o task.Options[string], test func(q queue)) {
	for name, in := range map[string]func() task.Store{
		"Memory":    func() task.Store { return new(memory.Store) },
		"Exclusive": func() task.Store { return open(rowstest.NewDB(time.Now)) },
		"Shared": func() task.Store {
			db := rowstest.NewDB(time.Now)
			db.Shared = true
			return open(db)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(openQueue(t, in(), o)) })
		})
	}
}

// find returns the task with the payload name.
func (q queue) find(name string) *task.Task[string] {
	list, err := q.List(q.Context(), task.ListOptions{Limit: 1000})
	require.NoError(q, err)
	for _, t := range list {
		if t.Payload == name {
			return t
		}
	}
	require.Fail(q, "there is no task "+name)
	return nil
}

func (q queue) remove(name string) { require.NoError(q, q.Delete(q.Context(), q.find(name).ID)) }

// putInto puts a task into the group g.
func (q queue) putInto(name string, role task.Role) {
	_, err := q.Put(q.Context(), "a", name, task.PutOptions{Group: "g", Role: role})
	require.NoError(q, err)
}

// When a task is deleted, each task behind it moves up by one turn.
func TestTasksBehindDeletedMoveUp(t *testing.T) {
	everywhere(t, task.Options[string]{}, func(q queue) {
		q.put("b1 b2 b3 b4 a1 a2 a3 a4")
		q.remove("a1")
		q.order("b1 a2 b2 a3 b3 a4 b4")
	})
	everywhere(t, task.Options[string]{}, func(q queue) {
		q.put("a1 b1 c1 a2 b2 c2")
		q.take("a1")
		q.remove("b1")
		q.order("c1 b2 a2 c2")
	})
}

// So do tasks that are put later.
func TestPutBehindDeleted(t *testing.T) {
	everywhere(t, task.Options[string]{}, func(q queue) {
		q.put("b1 b2 b3 b4 b5 b6 a1 a2 a3")
		q.remove("a1")
		q.put("a4")
		for _, name := range []string{"b1", "a2", "b2", "a3"} {
			q.take(name)
		}
		q.put("a5")
		q.order("b3 a4 b4 a5 b5 b6")
	})
}

// So do tasks behind a buried task.
func TestPutBehindBuried(t *testing.T) {
	everywhere(t, task.Options[string]{}, func(q queue) {
		q.put("b1 b2 b3 b4 a1 a2")
		require.NoError(q, q.Bury(q.Context(), q.find("a1").ID, nil))
		q.put("a3")
		q.order("b1 a2 b2 a3 b3 b4")
	})
}

// A deleted first task of a key leaves its turn to the next task.
func TestFrontIsDeleted(t *testing.T) {
	everywhere(t, task.Options[string]{MaxInFlightPerKey: 5}, func(q queue) {
		q.put("b1 a1 c1 a2")
		q.remove("a1")
		q.order("b1 c1 a2")
	})
}

// A resumed key gets one of the turns that it has missed. Its other tasks get new turns.
func TestMissedTurns(t *testing.T) {
	everywhere(t, task.Options[string]{}, func(q queue) {
		q.put("a1 a2 b1 b2 b3 b4 b5 b6")
		require.NoError(q, q.PauseKey(q.Context(), "a"))
		for _, b := range []string{"b1", "b2", "b3"} {
			q.take(b)
		}
		require.NoError(q, q.ResumeKey(q.Context(), "a"))
		q.order("a1 a2 b4 b5 b6")
	})
}

// Cancelling a group does not delete its tasks with the role AtAbort.
func TestAtAbortIsKept(t *testing.T) {
	everywhere(t, task.Options[string]{}, func(q queue) {
		ctx := q.Context()
		q.putInto("member", task.Member)
		q.putInto("last", task.AtAbort)
		require.NoError(q, q.StartGroup(ctx, "g"))
		member := q.take("member")
		require.NoError(q, q.Bury(ctx, q.find("last").ID, nil))
		require.NoError(q, q.CancelGroup(ctx, "g"))
		require.NoError(q, q.CancelGroup(ctx, "g"))
		require.ErrorIs(q, q.StartGroup(ctx, "g"), task.ErrGroupCancelled)
		require.NoError(q, q.KickID(ctx, q.find("last").ID))
		require.Equal(q, task.Held, q.find("last").Info().State)
		require.NoError(q, member.Ack(ctx))
		q.order("last")
	})
}

// A time beyond the last one of a database becomes that last time.
func TestFarTimes(t *testing.T) {
	bubble(t, task.Options[string]{}, func(q queue) {
		_, err := q.Put(q.Context(), "a", "a1", task.PutOptions{TTR: time.Second})
		require.NoError(q, err)
		a1 := q.take("a1")
		for range 4 {
			require.NoError(q, a1.Touch(q.Context(), 800000*time.Hour))
		}
		time.Sleep(time.Hour)
		require.True(q, time.Unix(0, math.MaxInt64).Equal(q.find("a1").Info().Until))
	})
}

// OnExpire gets the deadline of the Put, even if it was over long before.
func TestOldDeadline(t *testing.T) {
	expired := make(chan *task.Task[string], 1)
	o := task.Options[string]{OnExpire: func(t *task.Task[string]) { expired <- t }}
	for _, d := range []time.Time{
		time.Date(1960, 1, 2, 3, 4, 5, 6, time.UTC), time.Unix(0, 0), time.Unix(0, 1),
	} {
		everywhere(t, o, func(q queue) {
			_, err := q.Put(q.Context(), "a", "late", task.PutOptions{Deadline: d})
			require.NoError(q, err)
			synctest.Wait()
			require.True(q, d.Equal((<-expired).Info().Deadline))
		})
	}
}

// When one process removes tasks, another one gives no turns behind them.
func TestOthersRemove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := rowstest.NewDB(time.Now)
		db.Shared = true
		q, other := openQueue(t, open(db), task.Options[string]{}),
			openQueue(t, open(db.Reopen()), task.Options[string]{})
		q.put("a1 a2 a3 b1 b2 b3")
		for _, name := range []string{"a1", "a2", "a3"} {
			other.remove(name)
		}
		q.put("a4")
		q.order("b1 a4 b2 b3")
	})
}

// losses counts the events of lost leases.
func (q queue) losses() *atomic.Int32 {
	lost, events := new(atomic.Int32), q.Events(q.Context())
	go func() {
		for e := range events {
			if e.Type == task.EventTTR {
				lost.Add(1)
			}
		}
	}()
	return lost
}

// A process that looks for changes of others does not report its own settled tasks as lost.
func TestNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := rowstest.NewDB(time.Now)
		q, other := openQueue(t, open(db), task.Options[string]{}),
			openQueue(t, open(db.Reopen()), task.Options[string]{})
		lost := q.losses()
		// A waiting call makes q look for changes.
		go func() { _, _ = q.NewConsumer(task.Filter{Kinds: []string{"none"}}).Take(t.Context()) }()
		synctest.Wait()
		q.put("a1 b1")
		require.NoError(t, q.take("a1").Ack(t.Context()))
		require.NoError(t, q.take("b1").Bury(t.Context(), nil))
		other.put("c1")
		time.Sleep(time.Minute)
		require.Zero(t, lost.Load())
	})
}

// opener opens the queue of a test in a second process.
type opener = func(task.Options[string]) (*task.Queue[string], error)

// stalling runs a test of two processes. The gate of db stops the first one.
func stalling(t *testing.T, test func(db *slow, a queue, open opener)) {
	synctest.Test(t, func(t *testing.T) {
		db := &slow{rowstest.NewDB(time.Now), make(chan struct{}, 1)}
		db.gate <- struct{}{}
		a := openQueue(t, rows.New(db, rows.Options{MaxPayload: 100, Poll: time.Second}),
			task.Options[string]{Grace: time.Second})
		test(db, a, func(o task.Options[string]) (*task.Queue[string], error) {
			q, err := task.Open(t.Context(), open(db.Reopen()), "q", &o)
			if err == nil {
				t.Cleanup(func() { _ = q.Close(context.Background()) })
			}
			return q, err
		})
	})
}

// While a process has a queue open, no other can open it with other options. A process that was
// taken for dead finds that another one has done so.
func TestOtherOptions(t *testing.T) {
	stalling(t, func(db *slow, a queue, open opener) {
		other := task.Options[string]{Grace: time.Second, Capacity: 7}
		_, err := open(other)
		require.ErrorIs(a, err, task.ErrInvalid)
		<-db.gate
		time.Sleep(5 * time.Second)
		b, err := open(other)
		require.NoError(a, err)
		db.gate <- struct{}{}
		_, err = a.Put(a.Context(), "a", "a", task.PutOptions{})
		require.ErrorIs(a, err, task.ErrInvalid)
		_, err = b.Put(a.Context(), "a", "a", task.PutOptions{})
		require.NoError(a, err)
	})
}

// A task that is handed back late counts as ready since the end of Grace.
func TestHandedBackLate(t *testing.T) {
	stalling(t, func(db *slow, a queue, _ opener) {
		a.put("a1")
		c := a.NewConsumer(task.Filter{})
		_, ok, err := c.TryTake(a.Context())
		require.NoError(a, err)
		require.True(a, ok)
		require.NoError(a, c.Disconnect(a.Context()))
		deadline := time.Now().Add(time.Second)
		<-db.gate
		time.Sleep(time.Minute)
		db.gate <- struct{}{}
		time.Sleep(time.Second) // after an outage a process gives the others Grace to come back
		require.True(a, deadline.Equal(a.find("a1").Info().ReadyAt))
	})
}

// A task that is deleted in a transaction leaves its turn to the next one, even for a take of the
// same transaction.
func TestDeletedAndTaken(t *testing.T) {
	stalling(t, func(db *slow, q queue, _ opener) {
		q.put("a1 a2 b1 b2")
		id := q.find("a1").ID
		<-db.gate
		go func() { _, _ = q.Stats(q.Context()) }() // it leads
		synctest.Wait()
		go func() { _ = q.Delete(q.Context(), id) }()
		got := make(chan string)
		go func() {
			taken, _, _ := q.TryTake(q.Context())
			got <- taken.Payload
		}()
		synctest.Wait()
		db.gate <- struct{}{}
		require.Equal(q, "a2", <-got)
	})
}

// A queue that is opened with other options counts its tasks, and keeps their order.
func TestRebuild(t *testing.T) {
	kinds := "a1:x a2:x a3:y b1:x"
	for name, c := range map[string]struct {
		before task.Options[string]
		put    string
		after  task.Options[string]
		test   func(q queue)
	}{
		"KeyCapacity": {task.Options[string]{}, "a1 a2 a3", task.Options[string]{
			KeyCapacity: 3,
		}, func(q queue) {
			_, err := q.Put(q.Context(), "a", "a4", task.PutOptions{})
			require.ErrorIs(q, err, fairq.ErrKeyFull)
		}},
		"InFlight": {task.Options[string]{}, "a1 a2 b1", task.Options[string]{
			MaxInFlightPerKey: 1,
		}, func(q queue) {
			q.take("a1")
			q.take("b1")
			_, ok, err := q.TryTake(q.Context())
			require.NoError(q, err)
			require.False(q, ok)
		}},
		"InFlightNoMore": {task.Options[string]{
			MaxInFlightPerKey: 1,
		}, "a1 a2 a3 b1 b2", task.Options[string]{}, func(q queue) {
			q.order("a1 b1 a2 b2 a3")
		}},
		"Kinds": {task.Options[string]{}, kinds, task.Options[string]{
			MaxInFlightPerKey: 1,
		}, func(q queue) {
			q.order("a1 b1 a2 a3")
		}},
		"Behind": {task.Options[string]{}, "a0 a1 b1", task.Options[string]{Capacity: 9}, func(q queue) {
			q.order("b1 a1 a0")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := open(rowstest.NewDB(time.Now))
				q := openQueue(t, s, c.before)
				q.put(c.put)
				if c.put[:2] == "a0" {
					require.NoError(t, q.take("a0").Release(t.Context(), time.Hour))
				}
				if name == "Behind" {
					time.Sleep(2 * time.Hour)
				}
				require.NoError(t, q.Close(t.Context()))
				ordered := task.Options[string]{KeepPlace: true, Quantum: 1}
				_, err := task.Open(t.Context(), s, "q", &ordered)
				why := fmt.Sprintf("as in queue %q, which has tasks: %d", "q", len(strings.Fields(c.put)))
				require.EqualError(t, err, "task: Options.Quantum is 1; it must be 0, "+why+
					"\ntask: Options.KeepPlace is true; it must be false, "+why)
				q = openQueue(t, s, c.after)
				if c.test(q); len(q.names()) == 0 {
					require.NoError(t, q.Close(t.Context()))
					q = openQueue(t, s, ordered) // without tasks it gets these
					q.put("a1 a2 b1")
					q.order("a1 b1 a2")
				}
			})
		})
	}
}

// If another process ends a lease, the holder's readers of events get an event, even while no call
// waits for a task.
func TestLossIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := rowstest.NewDB(time.Now)
		q, other := openQueue(t, open(db), task.Options[string]{}),
			openQueue(t, open(db.Reopen()), task.Options[string]{})
		lost := q.losses()
		q.put("a1")
		require.NoError(t, other.Bury(t.Context(), q.take("a1").ID, nil))
		time.Sleep(time.Minute)
		require.EqualValues(t, 1, lost.Load())
	})
}

// With KeepPlace a delayed task keeps its place when another one is deleted. A resumed key gets
// back one turn.
func TestKeptPlaces(t *testing.T) {
	everywhere(t, task.Options[string]{KeepPlace: true}, func(q queue) {
		q.put("a1")
		_, err := q.Put(q.Context(), "a", "a2", task.PutOptions{Delay: time.Second})
		require.NoError(q, err)
		q.put("a3")
		q.remove("a1")
		time.Sleep(2 * time.Second)
		q.order("a2 a3")
	})
	everywhere(t, task.Options[string]{KeepPlace: true}, func(q queue) {
		q.put("a1 a2 a3 b1 b2 b3 b4")
		require.NoError(q, q.PauseKey(q.Context(), "a"))
		for _, b := range []string{"b1", "b2", "b3"} {
			q.take(b)
		}
		require.NoError(q, q.ResumeKey(q.Context(), "a"))
		q.order("a1 a2 b4 a3")
	})
}

// Wait returns the error of a buried task, even after its time to live is over.
func TestExpiredWhenBuried(t *testing.T) {
	everywhere(t, task.Options[string]{Retention: time.Hour}, func(q queue) {
		_, err := q.Put(q.Context(), "a", "a1", task.PutOptions{UniqueKey: "x", TTL: time.Minute})
		require.NoError(q, err)
		require.NoError(q, q.take("a1").Bury(q.Context(), errBroken))
		time.Sleep(2 * time.Minute)
		require.Empty(q, q.names())
		var known *task.Error
		require.ErrorAs(q, q.Wait(q.Context(), "x"), &known)
		require.Equal(q, errBroken.Error(), known.Message)
	})
}
