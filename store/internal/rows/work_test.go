package rows_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/store/internal/rows/rowstest"
	"github.com/fairq/fairq/task"
)

// limitedDB returns a database whose transactions may write maxWrites rows, or any number if that
// is 0.
func limitedDB(maxWrites int, shared bool) *rowstest.DB {
	db := rowstest.NewDB(time.Now)
	db.MaxWrites, db.Shared = maxWrites, shared
	return db
}

// putMany puts n tasks with the payloads key0, key1 and so on.
func (q queue) putMany(n int, key string, o task.PutOptions) {
	q.Helper()
	for i := range n {
		_, err := q.Put(q.Context(), key, fmt.Sprint(key, i), o)
		require.NoError(q, err)
	}
}

// states returns the number of tasks in each state.
func (q queue) states() string {
	s, err := q.Stats(q.Context())
	require.NoError(q, err)
	return fmt.Sprintf("ready %d, taken %d, held %d, deleted %d", s.Ready, s.Taken, s.Held, s.Deletes)
}

// takeAll takes and acks up to n tasks, and returns their payloads.
func (q queue) takeAll(n int) (all []string) {
	for range n {
		t, ok, err := q.TryTake(q.Context())
		require.NoError(q, err)
		if !ok {
			break
		}
		all = append(all, t.Payload)
		require.NoError(q, t.Ack(q.Context()))
	}
	return all
}

// Operations on many tasks have the same result when a transaction may write only a few rows.
func TestWork(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes many seconds with the race detector")
	}
	var want []string
	for _, o := range []task.Options[string]{
		{},
		{KeepPlace: true},
		{Capacity: 10000, KeyCapacity: 9999},
		{MaxInFlightPerKey: 99},
		{Quantum: 5},
	} {
		for _, db := range []struct {
			maxWrites int
			shared    bool
		}{{0, false}, {60, false}, {60, true}} {
			synctest.Test(t, func(t *testing.T) {
				q := openQueue(t, open(limitedDB(db.maxWrites, db.shared)), o)
				log := q.doMuch()
				if db.maxWrites == 0 {
					want = log
				}
				require.Equal(t, want, log, "%+v", db)
			})
		}
	}
}

// doMuch runs every operation that concerns many tasks, and returns a log of the results.
func (q queue) doMuch() (log []string) {
	ctx := q.Context()
	did := func(err error) {
		q.Helper()
		require.NoError(q, err)
		log = append(log, q.states())
	}
	group := func(name string) {
		q.putMany(70, "a", task.PutOptions{Group: name})
		q.putMany(50, "b", task.PutOptions{Group: name, Role: task.AtEnd})
		q.putMany(50, "c", task.PutOptions{Group: name, Role: task.AtAbort})
	}
	group("g")
	did(q.StartGroup(ctx, "g"))
	log = append(log, q.takeAll(70)...)
	did(nil)
	log = append(log, q.takeAll(70)...)

	group("\xff") // which is not valid UTF-8
	did(q.StartGroup(ctx, "\xff"))
	running, err := q.TakeBatch(ctx, 2)
	require.NoError(q, err)
	did(q.CancelGroup(ctx, "\xff"))
	for _, t := range running {
		did(t.Return(ctx))
	}
	log = append(log, q.takeAll(100)...)

	for _, key := range []string{"a", "b"} {
		q.putMany(50, key, task.PutOptions{})
		q.putMany(20, key, task.PutOptions{Priority: 1})
	}
	q.takeAll(10)
	did(q.PauseKey(ctx, "a"))
	log = append(log, q.takeAll(30)...)
	did(q.ResumeKey(ctx, "a"))
	log = append(log, q.takeAll(200)...)

	q.putMany(100, "a", task.PutOptions{})
	c := q.NewConsumer(task.Filter{})
	for range 80 {
		_, ok, err := c.TryTake(ctx)
		require.NoError(q, err)
		require.True(q, ok)
	}
	c, held, err := q.ResumeConsumer(ctx, c.ID(), task.Filter{})
	did(err)
	for _, t := range held {
		log = append(log, t.Payload)
		require.NoError(q, t.Touch(ctx, 0))
	}
	did(c.Close(ctx))

	// From the first task of a kind on, lines have the turns.
	q.putMany(60, "a", task.PutOptions{})
	q.putMany(40, "b", task.PutOptions{Delay: time.Hour})
	q.putMany(40, "c", task.PutOptions{Priority: 1})
	log = append(log, q.takeAll(20)...)
	for i := range 36 {
		q.putMany(2, "a", task.PutOptions{Kind: fmt.Sprint(i % 12), Priority: i / 12})
	}
	for i := range 80 { // each kind has a row of the turn
		q.putMany(2, "d", task.PutOptions{Kind: fmt.Sprint("d", i)})
	}
	batch := make([]task.Entry[string], 20)
	for i := range batch {
		kind := fmt.Sprint("e", i)
		batch[i] = task.Entry[string]{Key: "e", Payload: kind, Options: task.PutOptions{Kind: kind}}
	}
	_, err = q.PutBatch(ctx, batch)
	did(err)
	did(q.PauseKey(ctx, "a"))
	log = append(log, q.takeAll(10)...)
	did(q.ResumeKey(ctx, "a"))
	c = q.NewConsumer(task.Filter{})
	for range 99 { // which blocks the key if MaxInFlightPerKey is 99
		t, ok, err := c.TryTake(ctx)
		require.NoError(q, err)
		require.True(q, ok)
		log = append(log, t.Payload)
	}
	did(c.Close(ctx))
	time.Sleep(time.Hour)
	log = append(log, q.takeAll(500)...)

	group("h")
	_, err = q.Truncate(ctx)
	did(err)
	group("h")
	require.NoError(q, q.DropUnlessTaken(ctx))
	return log
}

// Several tasks of a busy key are handed back together. That frees the key, so very many tasks of
// other kinds become takeable.
func TestManyKindsOfBusyKey(t *testing.T) {
	for name, end := range map[string]func(q queue, c *task.Consumer[string], db *rowstest.DB){
		"Close": func(q queue, c *task.Consumer[string], _ *rowstest.DB) {
			require.NoError(q, c.Close(q.Context()))
		},
		"TTR": func(queue, *task.Consumer[string], *rowstest.DB) { time.Sleep(time.Hour) },
		"Death": func(_ queue, _ *task.Consumer[string], db *rowstest.DB) {
			db.Kill()
			time.Sleep(time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db, o := limitedDB(60, false), task.Options[string]{MaxInFlightPerKey: 3, TTR: time.Hour}
				other, q := openQueue(t, open(db.Reopen()), o), openQueue(t, open(db), o)
				for i := range 100 {
					q.putMany(1, "a", task.PutOptions{Kind: strconv.Itoa(i)})
				}
				c := q.NewConsumer(task.Filter{})
				for range 3 {
					_, ok, err := c.TryTake(t.Context())
					require.NoError(t, err)
					require.True(t, ok)
				}
				_, ok, err := c.TryTake(t.Context())
				require.NoError(t, err)
				require.False(t, ok)
				end(q, c, db)
				require.Equal(t, "ready 100, taken 0, held 0, deleted 0", other.states())
				require.Len(t, other.takeAll(101), 100)
			})
		})
	}
}

// diesAfter kills the process after that number of commits.
func diesAfter(db *rowstest.DB, commits int) {
	db.Fail(func(op string) error {
		if op == "Commit" {
			commits--
		}
		if commits < 0 {
			return rowstest.ErrKilled
		}
		return nil
	})
}

// Another process finishes the job of a dead one, before it does anything else.
func TestJobOfDeadProcess(t *testing.T) {
	for commits := range 12 {
		synctest.Test(t, func(t *testing.T) {
			db := limitedDB(30, false)
			other := openQueue(t, open(db.Reopen()), task.Options[string]{})
			q := openQueue(t, open(db), task.Options[string]{})
			q.putMany(20, "a", task.PutOptions{Group: "g"})
			q.putMany(20, "b", task.PutOptions{Group: "g", Role: task.AtAbort})
			diesAfter(db, commits)
			_ = q.CancelGroup(t.Context(), "g")
			db.Kill()
			if s := other.states(); commits == 0 {
				require.Equal(t, "ready 0, taken 0, held 40, deleted 0", s)
			} else {
				require.Contains(t, s, "ready 20, taken 0, held 0")
			}
		})
	}
}

// An operation that is too large, and cannot be done in steps, is refused as a whole. The error
// names number and limit.
func TestTooMuchForATransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := openQueue(t, open(limitedDB(60, false)), task.Options[string]{})
		refused := func(err error, number, limit string) {
			t.Helper()
			require.ErrorIs(t, err, task.ErrInvalid)
			require.ErrorContains(t, err, number)
			require.ErrorContains(t, err, limit)
			require.Equal(t, "ready 0, taken 0, held 0, deleted 0", q.states())
		}
		_, err := q.PutBatch(t.Context(), make([]task.Entry[string], 21))
		refused(err, "PutBatch: the number of tasks is 21", "20 at most")
		_, err = q.PutBatch(t.Context(), make([]task.Entry[string], 20))
		require.NoError(t, err)
		q.put("a1")
		tasks, err := q.TakeBatch(t.Context(), 20) // returns as many as a transaction can take
		require.NoError(t, err)
		require.Len(t, tasks, 10)
	})
}

// The docs of etcd have the right limits of its batches.
func TestLimitsInDocs(t *testing.T) {
	var docs []string
	for _, path := range []string{"../../../docs/stores.md", "../../etcd/doc.go"} {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		docs = append(docs,
			strings.Join(strings.Fields(strings.ReplaceAll(string(text), "\n//", "\n")), " "))
	}
	const opsPerRow = 4 // as in package etcd
	for ops, sentence := range map[int]string{
		128: "With the 128 operations that are %s default, a transaction writes %d tasks: a PutBatch " +
			"holds %[2]d of them at most, a TakeBatch returns %d.",
		8192: "With 8192 operations a transaction writes %[2]d tasks",
	} {
		synctest.Test(t, func(t *testing.T) {
			limits := func() (puts, takes int) {
				q := openQueue(t, open(limitedDB(ops/opsPerRow, false)), task.Options[string]{})
				_, err := q.PutBatch(t.Context(), make([]task.Entry[string], task.MaxBatch))
				var refused *task.FieldError
				require.ErrorAs(t, err, &refused)
				_, err = fmt.Sscanf(refused.Limit, "%d at most", &puts)
				require.NoError(t, err)
				_, err = q.PutBatch(t.Context(), make([]task.Entry[string], puts))
				require.NoError(t, err)
				all, err := q.TakeBatch(t.Context(), puts)
				require.NoError(t, err)
				return puts, len(all)
			}
			puts, takes := limits()
			for i, of := range []string{"etcd's", "the"} {
				require.Contains(t, docs[i], fmt.Sprintf(sentence, of, puts, takes))
			}
		})
	}
}

// Deletes that change many turns of lines write many rows. They share a transaction only up
// to its limit of writes.
func TestCallsThatWriteMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{}, 1)
		gate <- struct{}{}
		store := rows.New(&slow{limitedDB(60, false), gate},
			rows.Options{MaxPayload: 100, Poll: time.Hour})
		q := openQueue(t, store, task.Options[string]{
			MaxInFlightPerKey: 50, Weight: func(string) int { return 20 },
		})
		var first []task.ID
		for _, key := range []string{"a", "b", "c", "d", "e"} {
			id, err := q.Put(t.Context(), key, key, task.PutOptions{})
			require.NoError(t, err)
			first = append(first, id)
			q.putMany(29, key, task.PutOptions{})
		}
		<-gate
		go q.states() // leads, so that the others come together in the next transaction
		synctest.Wait()
		for _, id := range first {
			go func() { _ = q.Delete(t.Context(), id) }() // a failure shows in the number of deleted tasks
		}
		synctest.Wait()
		gate <- struct{}{}
		synctest.Wait()
		require.Equal(t, "ready 145, taken 0, held 0, deleted 5", q.states())
	})
}

// Opening a queue with other options rebuilds it in steps. If the process dies, another one
// finishes.
func TestRebuildOfTheDead(t *testing.T) {
	for commits := range 40 {
		synctest.Test(t, func(t *testing.T) {
			db, o := limitedDB(30, false), task.Options[string]{MaxInFlightPerKey: 1}
			q := openQueue(t, open(db.Reopen()), o)
			want := []string{"a0"}
			q.putMany(20, "a", task.PutOptions{})
			q.putMany(2, "b", task.PutOptions{})
			a0 := q.take("a0")
			require.NoError(t, a0.Return(t.Context()))
			for i := 1; i < 20; i++ {
				if i < 3 {
					want = append(want, fmt.Sprint("b", i-1))
				}
				want = append(want, fmt.Sprint("a", i))
			}
			require.NoError(t, q.Close(t.Context()))
			o.MaxInFlightPerKey, o.KeyCapacity = 0, 20
			diesAfter(db, commits)
			first, err := task.Open(t.Context(), open(db), "q", &o)
			db.Kill()
			q = openQueue(t, open(db.Reopen()), o)
			require.Empty(t, rowstest.Walk(t, db.Reopen(), "q"))
			_, err2 := q.Put(t.Context(), "a", "", task.PutOptions{})
			require.ErrorIs(t, err2, fairq.ErrKeyFull)
			require.Equal(t, want, q.takeAll(30))
			if err == nil {
				require.ErrorIs(t, first.Close(t.Context()), rowstest.ErrKilled)
			}
		})
	}
}
