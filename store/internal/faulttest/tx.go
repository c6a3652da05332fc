package faulttest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairq/fairq/task"
)

// Caller is a program that also uses the database for itself.
type Caller interface {
	Begin(ctx context.Context) (Tx, error)
	Names(table string) ([]string, error) // the column name
	Close()
}

// Tx is a transaction of the caller's.
type Tx interface {
	Context(ctx context.Context) context.Context // with the transaction, for calls of a queue
	Exec(sql string) error
	Commit() error
	Rollback() error
}

// Own is what the role "tx" of a process must do, see Transactions: it puts orders together with
// tasks, and ships them together with the end of the task.
func (s *Self) Own(c Caller) error {
	defer c.Close()
	l, err := s.open("plain")
	if err != nil {
		return err
	}
	s.Say("ready")
	shipped := l.start(2, func(l *load) error { return l.ship(c) })
	ordered := l.start(2, func(l *load) error { return l.order(c) })
	if err := cmp.Or(shipped(), ordered()); err != nil {
		return err
	}
	return l.queue.Close(context.Background())
}

func (l *load) order(c Caller) error {
	name := l.newName()
	return l.in(c, "orders", name, func(ctx context.Context) error {
		_, err := l.queue.Put(ctx, "key", name, task.PutOptions{})
		return err
	})
}

func (l *load) ship(c Caller) error {
	t, err := l.queue.Take(l.Stop)
	if err != nil {
		return err
	}
	err = l.in(c, "shipped", t.Payload, t.Ack)
	if err == nil {
		if err = t.Release(context.Background(), 0); errors.Is(err, task.ErrLeaseLost) {
			err = nil // it was acked
		}
	}
	return err
}

// in does something together with the insertion of a name into a table. Sometimes it undoes both.
func (l *load) in(c Caller, table, name string, do func(context.Context) error) error {
	ctx := context.Background()
	tx, err := c.Begin(ctx)
	if err != nil {
		return err
	}
	err = do(tx.Context(ctx))
	if err == nil {
		err = tx.Exec(fmt.Sprintf("INSERT INTO %s VALUES ('%s')", table, name))
	}
	if err == nil && rand.IntN(4) > 0 {
		done := l.Journal.begin(line{Op: table, Name: name})
		err = tx.Commit()
		done(line{Err: class(err)})
		return err
	}
	return errors.Join(err, tx.Rollback())
}

// Transactions kills processes that use the queue in transactions of their own, and checks that
// each transaction was done completely or not at all. The caller's tables "orders" and "shipped"
// are made by the test.
func Transactions(t *testing.T, open Opener, where string, c Caller) {
	rounds := 15
	if testing.Short() {
		rounds = 3
	}
	journal, path := newJournal(t)
	start := func(n int) *Process {
		return Start(t, Job{Role: "tx", Name: fmt.Sprint("tx", n), Where: where, Journal: path})
	}
	next := start(0)
	for n := range rounds {
		p := next
		next = start(n + 1)
		require.Equal(t, "ready", p.Await())
		time.Sleep(time.Duration(50+rand.IntN(200)) * time.Millisecond)
		p.kill(journal)
	}
	next.Await()
	next.Stop()

	s, err := open(context.Background(), where)
	require.NoError(t, err)
	defer s.Close()
	l, err := (&Self{Store: s, Stop: t.Context()}).open("plain")
	require.NoError(t, err)
	defer l.queue.Close(context.Background())
	there, acked := map[string]bool{}, map[string]bool{}
	for _, e := range l.gone(t) {
		var name string
		require.NoError(t, json.Unmarshal(e.Payload, &name))
		there[name], acked[name] = true, true
	}
	list, err := l.queue.List(t.Context(), task.ListOptions{Limit: 1e6})
	require.NoError(t, err)
	for _, one := range list {
		require.False(t, there[one.Payload], "it is there and gone")
		there[one.Payload] = true
	}
	tables := map[string]map[string]bool{"orders": there, "shipped": acked}
	for table, tasks := range tables {
		names, err := c.Names(table)
		require.NoError(t, err)
		require.ElementsMatch(t, slices.Collect(maps.Keys(tasks)), names, table)
	}
	for _, line := range readJournal(t, path) {
		if line.Done {
			require.True(t, tables[line.Op][line.Name], "%s: the commit of %s was acknowledged",
				line.Op, line.Name)
		}
	}
	if rounds > 3 { // otherwise all may be killed before that
		require.NotEmpty(t, acked)
	}
	t.Logf("%d kills, %d tasks put, %d acked", rounds, len(there), len(acked))
}

// WakesAfterCommit lets a call wait in this process, and one as if in another process, while a
// task is put in a transaction.
func WakesAfterCommit(t *testing.T, open Opener, where string, c Caller) {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	var waiting []*task.Queue[string]
	for range 2 {
		s, err := open(ctx, where)
		require.NoError(t, err)
		defer s.Close()
		q, err := openQueue(ctx, s, "plain")
		require.NoError(t, err)
		defer q.Close(context.Background())
		waiting = append(waiting, q)
	}
	for _, commits := range []bool{true, false, true} {
		var committed atomic.Bool
		woken := make(chan error, len(waiting))
		for _, q := range waiting {
			go func() {
				taken, err := q.Take(ctx)
				if err == nil && !committed.Load() {
					err = errors.New("it was taken before the commit")
				}
				if err == nil {
					err = taken.Ack(ctx)
				}
				woken <- err
			}()
			for waits := false; !waits; {
				stats, err := q.Stats(ctx)
				require.NoError(t, err)
				waits = stats.WaitingTake > 0
			}
		}
		tx, err := c.Begin(ctx)
		require.NoError(t, err)
		for range waiting {
			_, err = waiting[0].Put(tx.Context(ctx), "key", "in a transaction", task.PutOptions{})
			require.NoError(t, err)
		}
		time.Sleep(50 * time.Millisecond) // so that a mistake can be seen
		require.Empty(t, woken)
		if commits {
			committed.Store(true)
			require.NoError(t, tx.Commit())
		} else {
			require.NoError(t, tx.Rollback())
			time.Sleep(50 * time.Millisecond)
			require.Empty(t, woken)
			committed.Store(true)
			for range waiting {
				_, err = waiting[0].Put(ctx, "key", "after it", task.PutOptions{})
				require.NoError(t, err)
			}
		}
		begun := time.Now()
		for range waiting {
			require.NoError(t, <-woken)
		}
		t.Logf("woken after %v", time.Since(begun))
	}
}
