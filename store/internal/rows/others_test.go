package rows_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/internal/driver"
	"github.com/fairq/fairq/store/internal/rows"
	"github.com/fairq/fairq/store/internal/rows/rowstest"
	"github.com/fairq/fairq/task"
)

// notifying is a database that calls a function after each transaction with a Notify.
type notifying struct {
	*rowstest.DB
	notify func()
}

type notifyingTx struct {
	rows.Tx
	notifies bool
	notify   func()
}

func (n notifying) Begin(ctx context.Context) (rows.Tx, error) {
	tx, err := n.DB.Begin(ctx)
	return &notifyingTx{Tx: tx, notify: n.notify}, err
}

func (tx *notifyingTx) Notify(uint64) { tx.notifies = true }

func (tx *notifyingTx) Commit() error {
	err := tx.Tx.Commit()
	if err == nil && tx.notifies {
		tx.notify()
	}
	return err
}

// A transaction notifies the other processes of each change that a call there may wait for.
func TestNotify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, sent := t.Context(), 0
		db := notifying{rowstest.NewDB(time.Now), func() { sent++ }}
		q := openQueue(t, rows.New(db, rows.Options{MaxPayload: 100, Poll: time.Hour}),
			task.Options[string]{TTR: time.Hour})
		notifies := func(want bool, call func()) {
			t.Helper()
			sent = 0
			call()
			require.Equal(t, want, sent > 0)
		}
		var a *task.Task[string]
		done := func(err error) { require.NoError(t, err) }
		notifies(true, func() { q.put("a1") })
		notifies(false, func() { a = q.take("a1") })
		notifies(false, func() { done(a.Touch(ctx, time.Second)) })
		notifies(true, func() { done(a.Return(ctx)) })
		notifies(true, func() { done(q.take("a1").Bury(ctx, nil)) })
		notifies(true, func() { done(q.KickID(ctx, a.ID)) })
		notifies(false, func() { q.names() })
		notifies(false, func() { done(q.take("a1").Ack(ctx)) })
		_, err := q.Put(ctx, "a", "a1", task.PutOptions{UniqueKey: "a1"})
		done(err)
		notifies(true, func() { done(q.take("a1").Ack(ctx)) })
		notifies(true, func() { done(q.Pause(ctx)) })
		notifies(true, func() { done(q.Resume(ctx)) })
		notifies(true, func() { done(q.PauseKey(ctx, "a")) })
		q.put("b1")
		notifies(true, func() { done(q.Delete(ctx, q.find("b1").ID)) })
		q.putInto("g1", task.Member)
		notifies(true, func() { done(q.StartGroup(ctx, "g")) })
		notifies(true, func() { done(q.Drop(ctx)) })
	})
}

// A waiting process gets a task on time when the lease of a dead process or a delay is over, even
// without a notification and with a long Poll.
func TestKnowsWhatIsDue(t *testing.T) {
	const poll = 10 * time.Second
	for name, test := range map[string]struct {
		put       task.PutOptions
		does      func(ctx context.Context, a *task.Task[string]) error
		waits, at time.Duration // the times at which q begins to wait and gets the task
	}{
		"Lease":      {put: task.PutOptions{TTR: time.Second}, at: time.Second},
		"LongLease":  {put: task.PutOptions{TTR: poll}, at: poll},
		"WaitsLater": {put: task.PutOptions{TTR: 15 * time.Second}, waits: poll, at: 15 * time.Second},
		"Touch": {
			put: task.PutOptions{TTR: time.Second}, at: 3 * time.Second,
			does: func(ctx context.Context, a *task.Task[string]) error {
				return a.Touch(ctx, 2*time.Second)
			},
		},
		"Release": {
			at: time.Second,
			does: func(ctx context.Context, a *task.Task[string]) error {
				return a.Release(ctx, time.Second)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, db, o := t.Context(), rowstest.NewDB(time.Now), task.Options[string]{Grace: time.Hour}
				in := rows.Options{MaxPayload: 100, Poll: poll}
				s, dies := rows.New(db, in), db.Reopen()
				q := openQueue(t, s, o)
				var notifies bool
				busy := openQueue(t, rows.New(notifying{dies, func() {
					if notifies {
						rows.Changed(s, 0)
					}
				}}, in), o)
				got := make(chan struct{})
				begun := time.Now()
				time.AfterFunc(test.waits, func() {
					_, _ = q.Take(ctx)
					close(got)
				})
				synctest.Wait()
				require.NoError(t, second(busy.Put(ctx, "a", "a1", test.put))) // before q looks
				notifies = true
				a := busy.take("a1")
				synctest.Wait()
				if test.does != nil {
					require.NoError(t, test.does(ctx, a))
				}
				dies.Kill()
				<-got
				require.Less(t, time.Since(begun)-test.at, time.Millisecond)
				require.GreaterOrEqual(t, time.Since(begun), test.at)
			})
		})
	}
}

// failOnce lets one call of op fail, or of any operation if op is "". The caller stores its number
// in the result: 1 for the next call, 0 for none.
func failOnce(db *rowstest.DB, op string) *atomic.Int64 {
	left := new(atomic.Int64)
	db.Fail(func(called string) error {
		if (op == "" || op == called) && left.Add(-1) == 0 {
			return errBroken
		}
		return nil
	})
	return left
}

// A process that fails to look for changes of others tries again.
func TestLooksAgain(t *testing.T) {
	for _, fails := range []string{"Begin", "Enter", "Commit"} {
		synctest.Test(t, func(t *testing.T) {
			db := rowstest.NewDB(time.Now)
			left := failOnce(db, fails)
			q := openQueue(t, rows.New(db, rows.Options{MaxPayload: 100, Poll: time.Second}),
				task.Options[string]{Grace: time.Hour})
			other := openQueue(t, open(db.Reopen()), task.Options[string]{Grace: time.Hour})
			took := make(chan *task.Task[string], 1)
			go func() {
				a, _ := q.Take(t.Context())
				took <- a
			}()
			time.Sleep(time.Minute)
			synctest.Wait()
			other.put("a1")
			left.Store(1) // the next transaction looks for changes
			begun := time.Now()
			a := <-took
			require.Negative(t, left.Load())
			require.Less(t, time.Since(begun), time.Minute)
			require.Equal(t, "a1", a.Payload)
		})
	}
}

// bystander runs a test with two processes. q is notified of each change of busy. begun returns
// the number of transactions that q has begun since the last call.
func bystander(t *testing.T, test func(t *testing.T, busy, q queue, begun func() int64)) {
	synctest.Test(t, func(t *testing.T) {
		db, o := rowstest.NewDB(time.Now), task.Options[string]{Grace: time.Hour}
		s := seldom(db)
		q := openQueue(t, s, o)
		busy := openQueue(t,
			rows.New(notifying{db.Reopen(), func() { rows.Changed(s, 0) }}, rows.Options{MaxPayload: 100}),
			o)
		var n atomic.Int64
		db.Fail(func(op string) error {
			if op == "Begin" {
				n.Add(1)
			}
			return nil
		})
		test(t, busy, q, func() int64 {
			synctest.Wait()
			return n.Swap(0)
		})
	})
}

// A process without waiting calls does nothing when others put tasks. A call that begins to wait
// there finds the earlier changes.
func TestNobodyWaits(t *testing.T) {
	bystander(t, func(t *testing.T, busy, q queue, begun func() int64) {
		for range 100 {
			busy.put("a1")
			synctest.Wait()
		}
		require.Zero(t, begun())
		for range 100 {
			q.take("a1")
		}
		require.EqualValues(t, 100, begun())
		require.NoError(t,
			second(busy.Put(t.Context(), "a", "late", task.PutOptions{Delay: time.Minute})))
		require.Zero(t, begun())
		put := time.Now()
		require.NoError(t, busy.Close(t.Context()))
		_, err := q.Take(t.Context())
		require.NoError(t, err)
		require.Equal(t, time.Minute, time.Since(put))
	})
}

// A process that watches its leases looks for changes of others now and then, not after each of
// many changes. It looks immediately if changes are rare.
func TestListensSeldom(t *testing.T) {
	bystander(t, func(t *testing.T, busy, q queue, begun func() int64) {
		busy.put("a1")
		a1 := q.take("a1")
		ctx, stop := a1.Context(t.Context())
		defer stop()
		begun()
		for range 100 {
			busy.put("b1")
			time.Sleep(10 * time.Millisecond)
		}
		require.LessOrEqual(t, begun(), int64(41))
		time.Sleep(time.Second)
		begun()
		require.NoError(t, busy.Delete(t.Context(), a1.ID))
		synctest.Wait()
		require.ErrorIs(t, context.Cause(ctx), task.ErrDeleted)
		require.EqualValues(t, 1, begun())
	})
}

// Looking for changes of others, in the transaction that cancels a group, sends no second event.
func TestCancelledOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &slow{rowstest.NewDB(time.Now), make(chan struct{}, 1)}
		db.gate <- struct{}{}
		s := rows.New(db, rows.Options{MaxPayload: 100, Poll: time.Hour})
		q := openQueue(t, s, task.Options[string]{})
		q.putInto("a1", task.Member)
		require.NoError(t, q.StartGroup(t.Context(), "g"))
		q.take("a1")
		var events []task.EventType
		go func() {
			for e := range q.Events(t.Context()) {
				events = append(events, e.Type)
			}
		}()
		token := <-db.gate
		go func() { _, _, _ = q.TryTake(t.Context()) }() // it leads; the next calls wait for it
		synctest.Wait()
		go func() { _ = q.CancelGroup(t.Context(), "g") }()
		rows.Changed(s, 0)
		time.Sleep(time.Second)
		db.gate <- token
		synctest.Wait()
		require.Equal(t, []task.EventType{task.EventCancel}, events)
	})
}

func second[T any](_ T, err error) error { return err }

func third[T, U any](_ T, _ U, err error) error { return err }

// notFound returns nil for an ErrNotFound, and err otherwise.
func notFound(err error) error {
	if errors.Is(err, task.ErrNotFound) {
		return nil
	}
	return err
}

// Each call returns the error of any operation of the database. Repeated, it works as if there had
// been no error.
func TestErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, db := t.Context(), rowstest.NewDB(time.Now)
		left := failOnce(db, "")
		s := rows.New(db, rows.Options{MaxPayload: 10, History: time.Hour, Poll: time.Hour})
		always := openQueue(t, s, task.Options[string]{})
		always.put("a1 b1 c1 d1")
		a, b := always.take("a1"), always.take("b1")
		consumer := always.NewConsumer(task.Filter{})
		held, err := consumer.Take(ctx)
		require.NoError(t, err)
		key := "k"
		var short *task.Queue[string]
		for _, c := range []struct {
			name string
			call func() error
		}{
			{`Open, queue "short"`, func() (err error) {
				short, err = task.Open(ctx, s, "short", &task.Options[string]{})
				return err
			}},
			{
				`Put, queue "short"`, func() error {
					return second(short.Put(ctx, "a", "a", task.PutOptions{UniqueKey: "x"}))
				},
			},
			{`Truncate, queue "short"`, func() error { return second(short.Truncate(ctx)) }},
			{`History, queue "short"`, func() error { return second(s.History(ctx, "short", 0, 10)) }},
			{`Drop, queue "short"`, func() error { return short.Drop(ctx) }},
			{`Fail, queue "q"`, func() error { return a.Fail(ctx, errBroken, 0) }},
			{`Ack, queue "q"`, func() error { return b.Ack(ctx) }},
			{`Bury, queue "q"`, func() error { return always.Bury(ctx, a.ID, nil) }},
			{`KickID, queue "q"`, func() error { return always.KickID(ctx, a.ID) }},
			{`Stats, queue "q"`, func() error { return second(always.Stats(ctx)) }},
			{
				`KeyStats, queue "q"`, func() error {
					return second(always.KeyStats(ctx, 1, fairq.ByBacklog))
				},
			},
			{`Upcoming, queue "q"`, func() error { return second(always.Upcoming(ctx, 1)) }},
			{`Peek, queue "q"`, func() error { return second(always.Peek(ctx, a.ID)) }},
			{`Find, queue "q"`, func() error { return notFound(second(always.Find(ctx, "x"))) }},
			{`List, queue "q"`, func() error { return second(always.List(ctx, task.ListOptions{})) }},
			{
				`Count, queue "q"`, func() error {
					return second(always.Count(ctx, task.ListOptions{Key: &key}))
				},
			},
			{`Kick, queue "q"`, func() error { return second(always.Kick(ctx, task.ListOptions{})) }},
			{`Pause, queue "q"`, func() error { return always.Pause(ctx) }},
			{`Resume, queue "q"`, func() error { return always.Resume(ctx) }},
			{`PauseKey, queue "q"`, func() error { return always.PauseKey(ctx, key) }},
			{`ResumeKey, queue "q"`, func() error { return always.ResumeKey(ctx, key) }},
			{`StartGroup, queue "q"`, func() error { return notFound(always.StartGroup(ctx, "g")) }},
			{`CancelGroup, queue "q"`, func() error { return notFound(always.CancelGroup(ctx, "g")) }},
			{`Wait, queue "q"`, func() error { return notFound(always.Wait(ctx, "x")) }},
			{`Touch, queue "q"`, func() error { return held.Touch(ctx, 0) }},
			{`Snooze, queue "q"`, func() error { return held.Snooze(ctx, 0) }},
			{`Take, queue "q"`, func() error { return second(always.TakeBatch(ctx, 1)) }},
			{`ReleaseAll, queue "q"`, func() error { return consumer.ReleaseAll(ctx) }},
			{`Disconnect, queue "q"`, func() error { return consumer.Disconnect(ctx) }},
			{
				`ResumeConsumer, queue "q"`, func() error {
					return third(always.ResumeConsumer(ctx, consumer.ID(), task.Filter{}))
				},
			},
			{`Close, queue "q"`, func() error { return always.NewConsumer(task.Filter{}).Close(ctx) }},
		} {
			ticks := 0
			for fails := int64(1); ; fails++ {
				synctest.Wait()
				left.Store(fails)
				err := c.call()
				if left.Swap(0) > 0 {
					require.NoError(t, err)
					break
				}
				if err == nil && ticks < 10 { // a tick that the call has made due has got the error
					ticks++
					fails--
					continue
				}
				require.ErrorIs(t, err, errBroken)
				require.ErrorContains(t, err, "task: "+c.name+": ")
			}
		}
		_, err = s.History(ctx, "short", 0, 10)
		require.ErrorIs(t, err, task.ErrNotFound)
		_, err = s.History(ctx, "q", 0, -1)
		require.ErrorIs(t, err, task.ErrInvalid)
		_, err = always.Put(ctx, "a", "a payload too long", task.PutOptions{})
		require.ErrorIs(t, err, task.ErrInvalid)
		broken, cancel := context.WithCancel(ctx)
		cancel()
		_, err = s.History(broken, "q", 0, 1)
		require.ErrorIs(t, err, context.Canceled)
	})
}

// In a transaction of the caller's no call can take. A call that fails leaves the rest of the
// transaction intact.
func TestJoinedErrors(t *testing.T) {
	eachDB(t, func(t *testing.T, db *rowstest.DB, q queue) {
		join(t, db, func(ctx context.Context) {
			_, _, err := q.TryTake(ctx)
			require.ErrorIs(t, err, task.ErrInvalid)
			for _, name := range []string{"one", "two", "three"} {
				db.Fail(func(op string) error {
					if name == "two" && op == "Tasks.Put" {
						return errBroken
					}
					return nil
				})
				_, err := q.Put(ctx, "a", name, task.PutOptions{})
				require.Equal(t, name == "two", errors.Is(err, errBroken))
			}
			db.Fail(nil)
		})
		require.Equal(t, []string{"one ready", "three ready"}, q.names())
	})
}

// PutWait does not wait in a transaction of the caller's, because no other call can make room in
// it.
func TestJoinedPutWait(t *testing.T) {
	for _, waiting := range []bool{false, true} { // a call outside of the transaction
		synctest.Test(t, func(t *testing.T) {
			db := rowstest.NewDB(time.Now)
			q := openQueue(t, open(db), task.Options[string]{Capacity: 1})
			q.put("a1")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if waiting {
				go func() { _, _ = q.PutWait(ctx, "a", "a2", task.PutOptions{}) }()
				synctest.Wait()
			}
			join(t, db, func(ctx context.Context) {
				_, err := q.PutWait(ctx, "b", "b1", task.PutOptions{})
				require.ErrorIs(t, err, task.ErrFull)
			})
			require.Equal(t, []string{"a1 ready"}, q.names())
		})
	}
}

// Wait ends with its task, not with a later task that has the same unique key.
func TestUniqueKeyIsReused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := rowstest.NewDB(time.Now)
		q, other := openQueue(t, open(db), task.Options[string]{}),
			openQueue(t, open(db.Reopen()), task.Options[string]{})
		put := func() {
			require.NoError(t, second(other.Put(t.Context(), "a", "a1", task.PutOptions{UniqueKey: "x"})))
		}
		put()
		ended := make(chan error, 1)
		go func() { ended <- q.Wait(t.Context(), "x") }()
		synctest.Wait()
		require.NoError(t, other.take("a1").Ack(t.Context()))
		put()
		time.Sleep(time.Minute)
		require.Len(t, ended, 1)
		require.NoError(t, <-ended)

		go func() { ended <- q.Wait(t.Context(), "x") }()
		synctest.Wait()
		for range 2 { // a unique key has only its last outcome
			require.NoError(t, other.take("a1").Ack(t.Context()))
			put()
		}
		time.Sleep(time.Minute)
		require.ErrorIs(t, <-ended, task.ErrDeleted)
	})
}

// lateOutcomes is a store whose Outcome returns some time after the transaction.
type lateOutcomes struct {
	task.Store
	gate chan struct{}
}

func (l lateOutcomes) Open(
	ctx context.Context, name string, s driver.Settings, n driver.Notifier,
) (driver.Backend, error) {
	b, err := l.Store.Open(ctx, name, s, n)
	return lateBackend{b, l.gate}, err
}

type lateBackend struct {
	driver.Backend
	gate chan struct{}
}

func (b lateBackend) Outcome(ctx context.Context, uniqueKey string) (driver.Outcome, error) {
	o, err := b.Backend.Outcome(ctx, uniqueKey)
	<-b.gate
	return o, err
}

// A Wait begins while the process is finding that no call waits for the task. It does not return
// before the task has ended.
func TestBeginsToWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, gate, commit := rowstest.NewDB(time.Now), make(chan struct{}), make(chan struct{})
		q := openQueue(t, lateOutcomes{open(db), gate}, task.Options[string]{})
		other := openQueue(t, open(db.Reopen()), task.Options[string]{})
		require.NoError(t, second(q.Put(t.Context(), "a", "a1", task.PutOptions{UniqueKey: "x"})))
		ended := make(chan error, 1)
		go func() { ended <- q.Wait(t.Context(), "x") }()
		synctest.Wait()
		other.put("b1")
		db.Fail(func(op string) error {
			if op == "Commit" {
				<-commit
			}
			return nil
		})
		time.Sleep(time.Minute) // the process looks for changes
		gate <- struct{}{}
		synctest.Wait()
		close(commit)
		synctest.Wait()
		close(gate)
		synctest.Wait()
		require.Empty(t, ended)
		require.NoError(t, other.take("a1").Ack(t.Context()))
		require.NoError(t, <-ended)
	})
}
