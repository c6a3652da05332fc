package pool_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/memory"
)

func ExampleFunc() {
	ctx := context.Background()

	p := pool.Func(func(_ context.Context, t *task.Task[int]) error {
		fmt.Println(t.Key, t.Payload)
		return nil
	}, nil)
	_ = p.Submit(ctx, "alice", 42)
	_ = p.StopAndWait(ctx)
	// Output:
	// alice 42
}

func ExampleNew() {
	ctx := context.Background()
	emails, err := task.Open[string](ctx, new(memory.Store), "emails", nil)
	if err != nil {
		panic(err)
	}

	send := func(_ context.Context, t *task.Task[string]) error {
		if t.Payload == "nobody@example.com" {
			return errors.New("no such mailbox")
		}
		if t.Attempts < 2 {
			return errors.New("try again")
		}
		fmt.Printf("sent to %s at attempt %d\n", t.Payload, t.Attempts)
		return nil
	}
	p := pool.New(emails, send, &pool.Options[string]{
		Workers: 8,
		Policy: pool.Policy{
			Timeout:     time.Minute,
			MaxAttempts: 3,
			Backoff:     pool.Backoff{Base: time.Millisecond, Max: time.Second, Jitter: 0.5},
		},
		DeadLetters: func(_ context.Context, letter *pool.DeadLetter[string]) error {
			fmt.Printf("given up on %s after %d attempts: %s: %v\n", letter.Payload, letter.Task.Attempts,
				letter.Reason, letter.Err)
			return nil
		},
		Logger: slog.New(slog.DiscardHandler),
	})
	_ = p.Do(ctx, "alice", "alice@example.com", pool.PutOptions{})
	err = p.Do(ctx, "bob", "nobody@example.com", pool.PutOptions{})
	fmt.Println("bob gets:", err)

	_ = p.Shutdown(ctx)
	// Output:
	// sent to alice@example.com at attempt 2
	// given up on nobody@example.com after 3 attempts: failed: no such mailbox
	// bob gets: no such mailbox
}

func ExampleNewWorkers() {
	type request struct{ tenant, path string }
	requests := fairq.New(func(r request) string { return r.tenant }, nil)
	for i := range 3 {
		_ = requests.Push(request{"flood", fmt.Sprint("/", i)})
	}
	_ = requests.Push(request{"other", "/"})

	w := pool.NewWorkers(requests, func(_ context.Context, r request) error {
		fmt.Println(r.tenant, r.path)
		return nil
	}, &pool.WorkersOptions[request]{Workers: 1})
	_ = w.Wait(context.Background())

	_ = w.Shutdown(context.Background())
	// Output:
	// flood /0
	// other /
	// flood /1
	// flood /2
}

func ExampleClass() {
	ctx := context.Background()
	p := pool.Func(func(_ context.Context, t *task.Task[string]) error {
		fmt.Print(t.Payload, " ")
		return nil
	}, &pool.Options[string]{
		Workers: 1,
		Classes: []pool.Class[string]{{Name: "gold"}, {Name: "free"}},
		Strict:  true,
	})
	p.Pause()
	for range 3 {
		_, _ = p.Put(ctx, "alice", "gold", pool.PutOptions{Class: "gold"})
		_, _ = p.Put(ctx, "bob", "free", pool.PutOptions{Class: "free"})
	}
	p.Resume()
	_ = p.StopAndWait(ctx)
	// Output:
	// gold gold gold free free free
}

// A sink puts tasks that have failed into another queue, where they have all their attempts again
// and no end. If they were only evicted, or left by Shutdown, they keep their time.
func ExampleDeadLetter() {
	ctx := context.Background()
	failed, _ := task.Open[string](ctx, new(memory.Store), "failed", nil)
	p := pool.Func(func(context.Context, *task.Task[string]) error {
		return pool.Permanent(errors.New("no such user"))
	}, &pool.Options[string]{
		DeadLetters: func(ctx context.Context, l *pool.DeadLetter[string]) error {
			o := l.PutOptions(time.Now())
			if l.Reason == pool.ReasonFailed || l.Reason == pool.ReasonDeadline {
				o.Deadline, o.TTL, o.Delay = time.Time{}, 0, 0
			}
			_, err := failed.Put(ctx, l.Task.Key, l.Payload, o.PutOptions)
			return err
		},
		Logger: slog.New(slog.DiscardHandler),
	})
	_, _ = p.Put(ctx, "bob", "nobody@example.com", pool.PutOptions{PutOptions: task.PutOptions{
		Deadline: time.Now().Add(time.Hour),
	}})
	_ = p.StopAndWait(ctx)
	tasks, _ := failed.List(ctx, task.ListOptions{})
	fmt.Println(tasks[0].Key, tasks[0].Payload, tasks[0].Info().Deadline.IsZero())
	// Output:
	// bob nobody@example.com true
}

// A handler waits for tasks of the same pool, though there is only one worker.
func ExamplePool_Do() {
	ctx := context.Background()
	var p *pool.Pool[int]
	p = pool.Func(func(ctx context.Context, t *task.Task[int]) error {
		if t.Payload > 0 {
			if err := p.Do(ctx, t.Key, t.Payload-1, pool.PutOptions{}); err != nil {
				return err
			}
		}
		fmt.Println("done", t.Payload)
		return nil
	}, &pool.Options[int]{Workers: 1})
	_ = p.Do(ctx, "alice", 2, pool.PutOptions{})

	_ = p.Shutdown(ctx)
	// Output:
	// done 0
	// done 1
	// done 2
}

// A handler submits tasks, and waits for all of them at once.
func ExampleYield() {
	ctx := context.Background()
	pages := make(chan string, 3)
	var p *pool.Pool[string]
	p = pool.Func(func(ctx context.Context, t *task.Task[string]) error {
		if t.Payload != "book" {
			pages <- t.Payload
			return nil
		}
		for _, page := range []string{"page 1", "page 2", "page 3"} {
			if err := p.Submit(ctx, t.Key, page); err != nil {
				return err
			}
		}
		pool.Yield(ctx, func() {
			for range 3 {
				fmt.Println(<-pages)
			}
		})
		return nil
	}, &pool.Options[string]{Workers: 1})
	_ = p.Do(ctx, "alice", "book", pool.PutOptions{})

	_ = p.Shutdown(ctx)
	// Output:
	// page 1
	// page 2
	// page 3
}

// Middleware is any function that takes a Handler and returns one.
func ExampleHandler() {
	ctx := context.Background()
	timed := func(next pool.Handler[*task.Task[string]]) pool.Handler[*task.Task[string]] {
		return func(ctx context.Context, t *task.Task[string]) error {
			err := next(ctx, t)
			fmt.Printf("%s of %s: %v\n", t.Payload, t.Key, err)
			return err
		}
	}
	work := func(context.Context, *task.Task[string]) error { return nil }

	p := pool.Func(timed(work), nil)
	_ = p.Do(ctx, "alice", "report", pool.PutOptions{})

	_ = p.Shutdown(ctx)
	// Output:
	// report of alice: <nil>
}
