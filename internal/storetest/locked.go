package storetest

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"time"

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
	_, err = q.Put(ctx, "a", "a", task.PutOptions{})
	must(err)
	_, err = q.Put(ctx, "b", "b", task.PutOptions{UniqueKey: "x", Group: "g"})
	must(err)
	held, err := q.Take(ctx)
	must(err)
	c, away, gone := q.NewConsumer(task.Filter{}), q.NewConsumer(task.Filter{}),
		q.NewConsumer(task.Filter{})
	all := calls{
		"Put with a kind": func(ctx context.Context) error {
			return errOf(q.Put(ctx, "a", "", task.PutOptions{Kind: "k"}))
		},
		"AckAndTake": func(ctx context.Context) error {
			return errOf(c.AckAndTake(ctx, held, new(task.Task[string])))
		},
		"SetKey":      func(ctx context.Context) error { return q.SetKey(ctx, "a", nil) },
		"LimitedKeys": func(ctx context.Context) error { return errOf(q.LimitedKeys(ctx, "", 3)) },
		"ReleaseAll":  c.ReleaseAll,
		"Queues":      func(ctx context.Context) error { return errOf(store.Queues(ctx, "", 0)) },
		"Open": func(ctx context.Context) error {
			return errOf(task.Open[string](ctx, store, "other", nil))
		},
		"Open as it is": func(ctx context.Context) error {
			return errOf(task.Open(ctx, store, "locked", &task.Options[string]{AsIs: true}))
		},
		"Disconnect":     away.Disconnect,
		"Consumer.Close": gone.Close,
	}
	maps.Copy(all, work(q))
	maps.Copy(all, care(q))
	delete(all, "Take of a Watch") // it may leave the look to another call
	for name, call := range ends(held, time.Hour) {
		all["Task."+name] = call
	}
	endsWith := func(name string, call func(context.Context) error, d time.Duration) {
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
	var together sync.WaitGroup
	for name, call := range all {
		together.Go(func() { endsWith(name+" beside others", call, 300*time.Millisecond) })
	}
	patient := make(chan error, 1) // for the others do not end it
	go func() { patient <- errOf(q.Put(ctx, "c", "c", task.PutOptions{})) }()
	together.Wait()
	unlock()
	if err := <-patient; err != nil {
		t.Errorf("Put beside those whose contexts have ended returns: %v", err)
	}
	unlock = lock()
	for name, call := range all {
		endsWith(name, call, 20*time.Millisecond)
	}
	endsWith("Close", q.Close, 20*time.Millisecond)
	unlock()
	unlock = func() {}
	must(q.Close(ctx))
}

func errOf[T any](_ T, err error) error { return err }
