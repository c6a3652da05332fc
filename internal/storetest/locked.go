package storetest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/task"
)

// Locked tests that the context of each call ends its wait for a database that another program has
// locked: one call at a time, and many at once. lock locks the database, and returns the function
// that unlocks it. Time is real, because the lock belongs to another process, or to a goroutine
// outside of a bubble. A call fails that returns more than a second after the end of its context.
func Locked(t *testing.T, store task.Store, lock func() (unlock func())) {
	q, err := task.Open(ctx, store, "locked", &task.Options[string]{MaxInFlightPerKey: 100})
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	const n = 20
	var held []*task.Task[string]
	for range n {
		_, err := q.Put(ctx, "a", "a", task.PutOptions{})
		must(err)
		held = append(held, nil)
	}
	_, err = q.Put(ctx, "b", "b", task.PutOptions{UniqueKey: "x", Group: "g"})
	must(err)
	for i := range held {
		held[i], err = q.Take(ctx)
		must(err)
	}
	c, away, gone := q.NewConsumer(task.Filter{}), q.NewConsumer(task.Filter{}),
		q.NewConsumer(task.Filter{})
	id, one := held[0].ID, func(i int) *task.Task[string] { return held[i] }
	calls := map[string]func(ctx context.Context) error{
		"Put": func(ctx context.Context) error { return errOf(q.Put(ctx, "a", "", task.PutOptions{})) },
		"Put with a kind": func(ctx context.Context) error {
			return errOf(q.Put(ctx, "a", "", task.PutOptions{Kind: "k"}))
		},
		"PutWait": func(ctx context.Context) error {
			return errOf(q.PutWait(ctx, "a", "", task.PutOptions{}))
		},
		"PutBatch": func(ctx context.Context) error {
			return errOf(q.PutBatch(ctx, make([]task.Entry[string], 3)))
		},
		"Take": func(ctx context.Context) error { return errOf(q.Take(ctx)) },
		"TryTake": func(ctx context.Context) error {
			_, _, err := q.TryTake(ctx)
			return err
		},
		"TakeBatch": func(ctx context.Context) error { return errOf(q.TakeBatch(ctx, 2)) },
		"TakeID":    func(ctx context.Context) error { return errOf(q.TakeID(ctx, id)) },
		"AckAndTake": func(ctx context.Context) error {
			return errOf(c.AckAndTake(ctx, one(1), new(task.Task[string])))
		},
		"Ack":       func(ctx context.Context) error { return one(2).Ack(ctx) },
		"Release":   func(ctx context.Context) error { return one(3).Release(ctx, 0) },
		"Snooze":    func(ctx context.Context) error { return one(4).Snooze(ctx, time.Hour) },
		"Fail":      func(ctx context.Context) error { return one(5).Fail(ctx, errOops, 0) },
		"Task.Bury": func(ctx context.Context) error { return one(6).Bury(ctx, errOops) },
		"Discard":   func(ctx context.Context) error { return one(7).Discard(ctx, errOops) },
		"Touch":     func(ctx context.Context) error { return one(8).Touch(ctx, time.Hour) },
		"Peek":      func(ctx context.Context) error { return errOf(q.Peek(ctx, id)) },
		"Find":      func(ctx context.Context) error { return errOf(q.Find(ctx, "x")) },
		"List":      func(ctx context.Context) error { return errOf(q.List(ctx, task.ListOptions{})) },
		"Count":     func(ctx context.Context) error { return errOf(q.Count(ctx, task.ListOptions{})) },
		"Kick":      func(ctx context.Context) error { return errOf(q.Kick(ctx, task.ListOptions{})) },
		"KickID":    func(ctx context.Context) error { return q.KickID(ctx, id) },
		"Bury":      func(ctx context.Context) error { return q.Bury(ctx, id, nil) },
		"Delete":    func(ctx context.Context) error { return q.Delete(ctx, id) },
		"Change": func(ctx context.Context) error {
			return q.Change(ctx, id, task.Change[string]{})
		},
		"Pause":       q.Pause,
		"HoldKey":     func(ctx context.Context) error { return q.HoldKey(ctx, "a", time.Hour) },
		"ResumeKey":   func(ctx context.Context) error { return q.ResumeKey(ctx, "a") },
		"SetKey":      func(ctx context.Context) error { return q.SetKey(ctx, "a", nil) },
		"LimitedKeys": func(ctx context.Context) error { return errOf(q.LimitedKeys(ctx, "", 3)) },
		"StartGroup":  func(ctx context.Context) error { return q.StartGroup(ctx, "g") },
		"CancelGroup": func(ctx context.Context) error { return q.CancelGroup(ctx, "g") },
		"Wait":        func(ctx context.Context) error { return q.Wait(ctx, "x") },
		"DeleteSome": func(ctx context.Context) error {
			return errOf(q.DeleteSome(ctx, task.ListOptions{}))
		},
		"Truncate": func(ctx context.Context) error { return errOf(q.Truncate(ctx)) },
		"Upcoming": func(ctx context.Context) error { return errOf(q.Upcoming(ctx, 3)) },
		"Stats":    func(ctx context.Context) error { return errOf(q.Stats(ctx)) },
		"KeyStats": func(ctx context.Context) error {
			return errOf(q.KeyStats(ctx, 3, fairq.ByBacklog))
		},
		"ReleaseAll": c.ReleaseAll,
		"Queues":     func(ctx context.Context) error { return errOf(store.Queues(ctx, "", 0)) },
		"Open": func(ctx context.Context) error {
			return errOf(task.Open[string](ctx, store, "other", nil))
		},
		"Open as it is": func(ctx context.Context) error {
			return errOf(task.Open(ctx, store, "locked", &task.Options[string]{AsIs: true}))
		},
		"ResumeConsumer": func(ctx context.Context) error {
			_, _, err := q.ResumeConsumer(ctx, away.ID(), task.Filter{})
			return err
		},
		"Disconnect":     away.Disconnect,
		"Consumer.Close": gone.Close,
	}
	ends := func(t *testing.T, name string, call func(context.Context) error, d time.Duration) {
		ctx, cancel := context.WithTimeout(ctx, d)
		defer cancel()
		begun := time.Now()
		if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s returns: %v; it should be: %v", name, err, context.DeadlineExceeded)
		}
		if took := time.Since(begun); took > d+second {
			t.Errorf("%s with a context of %v returns after %v", name, d, took)
		}
	}
	unlock := lock()
	defer func() { unlock() }()
	var all sync.WaitGroup
	for name, call := range calls {
		all.Go(func() { ends(t, name+" beside others", call, 300*time.Millisecond) })
	}
	patient := make(chan error, 1) // for the others do not end it
	go func() { patient <- errOf(q.Put(ctx, "c", "c", task.PutOptions{})) }()
	all.Wait()
	unlock()
	if err := <-patient; err != nil {
		t.Errorf("Put beside those whose contexts have ended returns: %v", err)
	}
	unlock = lock()
	for name, call := range calls {
		ends(t, name, call, 20*time.Millisecond)
	}
	ends(t, "Close", q.Close, 20*time.Millisecond)
	unlock()
	unlock = func() {}
	must(q.Close(ctx))
}

func errOf[T any](_ T, err error) error { return err }
