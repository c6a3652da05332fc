package task_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/memory"
)

// Most examples ignore errors that cannot happen here. A memory.Store returns only the errors that
// a method names.

func Example() {
	ctx := context.Background()
	tasks, err := task.Open[string](ctx, new(memory.Store), "emails", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, text := range []string{"one", "two", "three"} {
		if _, err := tasks.Put(ctx, "alice", text, task.PutOptions{}); err != nil {
			fmt.Println(err)
			return
		}
	}
	if _, err := tasks.Put(ctx, "bob", "hello", task.PutOptions{}); err != nil {
		fmt.Println(err)
		return
	}
	for {
		t, ok, err := tasks.TryTake(ctx) // a worker would wait: Take
		if err != nil || !ok {
			break
		}
		fmt.Println(t.Key, t.Payload)
		if err := t.Ack(ctx); err != nil {
			fmt.Println(err) // somebody else may have the task now
		}
	}
	// Output:
	// alice one
	// bob hello
	// alice two
	// alice three
}

// A task that fails is tried again, each time after a longer delay, until its attempts are used
// up. Then it is a dead letter: it stays in the queue, with the reason, until somebody kicks or
// deletes it.
func ExampleTask_Fail() {
	ctx := context.Background()
	tasks, _ := task.Open[string](ctx, new(memory.Store), "emails",
		&task.Options[string]{MaxAttempts: 3})
	_, _ = tasks.Put(ctx, "alice", "hello", task.PutOptions{})
	for range 3 {
		t, _ := tasks.Take(ctx) // waits until the delay is over
		fmt.Println("attempt", t.Attempts)
		_ = t.Fail(ctx, errors.New("the server does not answer"), time.Millisecond<<t.Attempts)
	}

	dead, _ := tasks.List(ctx, task.ListOptions{State: task.Buried})
	for _, t := range dead {
		fmt.Printf("%s: %s, %d attempts, %v\n", t.Key, t.Payload, t.Attempts, t.Info().Err)
	}
	n, _ := tasks.Kick(ctx, task.ListOptions{Limit: 10})
	fmt.Println("kicked:", n)
	t, _ := tasks.Take(ctx)
	fmt.Println("attempt", t.Attempts)
	// Output:
	// attempt 1
	// attempt 2
	// attempt 3
	// alice: hello, 3 attempts, the server does not answer
	// kicked: 1
	// attempt 1
}

// With a limit of one, the tasks of a key are done one after the other, however many workers there
// are. A key that is busy is passed over, and does not hold up the others.
func ExampleOptions_maxInFlightPerKey() {
	ctx := context.Background()
	tasks, _ := task.Open[string](ctx, new(memory.Store), "requests",
		&task.Options[string]{MaxInFlightPerKey: 1})
	_, _ = tasks.PutBatch(ctx, []task.Entry[string]{
		{Key: "a.example", Payload: "/1"},
		{Key: "a.example", Payload: "/2"},
		{Key: "b.example", Payload: "/1"},
	})
	var running []*task.Task[string]
	take := func() {
		t, ok, _ := tasks.TryTake(ctx)
		if !ok {
			fmt.Println("nothing can be taken")
			return
		}
		fmt.Println(t.Key, t.Payload)
		running = append(running, t)
	}
	take()
	take()
	take()
	_ = running[0].Ack(ctx)
	take()
	// Output:
	// a.example /1
	// b.example /1
	// nothing can be taken
	// a.example /2
}

// The caller of Put can wait for the outcome of a task, by a unique key.
func ExampleQueue_Wait() {
	ctx := context.Background()
	tasks, _ := task.Open[int](ctx, new(memory.Store), "orders", nil)
	go func() {
		for {
			t, err := tasks.Take(ctx)
			switch {
			case err != nil: // closed
				return
			case t.Payload > 100:
				_ = t.Bury(ctx, &task.Error{Code: 402, Message: "too expensive"})
			default:
				_ = t.Ack(ctx)
			}
		}
	}()

	_, _ = tasks.Put(ctx, "alice", 70, task.PutOptions{UniqueKey: "order-1"})
	_, _ = tasks.Put(ctx, "alice", 700, task.PutOptions{UniqueKey: "order-2"})
	fmt.Println(tasks.Wait(ctx, "order-1"))
	err := tasks.Wait(ctx, "order-2")
	var failed *task.Error
	if errors.As(err, &failed) {
		fmt.Println(failed.Code, failed.Message)
	}
	_, err = tasks.Put(ctx, "alice", 7, task.PutOptions{UniqueKey: "order-2"})
	fmt.Println(errors.Is(err, task.ErrDuplicate)) // it is buried, and has its unique key still
	_ = tasks.Close(ctx)
	// Output:
	// <nil>
	// 402 too expensive
	// true
}

// The tasks of a group are held until it is started. When all its members are gone, the task at
// its end is ready.
func ExampleQueue_StartGroup() {
	ctx := context.Background()
	tasks, _ := task.Open[string](ctx, new(memory.Store), "reports", nil)
	_, _ = tasks.PutBatch(ctx, []task.Entry[string]{
		{Key: "alice", Payload: "chapter 1", Options: task.PutOptions{Group: "book"}},
		{Key: "alice", Payload: "chapter 2", Options: task.PutOptions{Group: "book"}},
		{Key: "alice", Payload: "bind it", Options: task.PutOptions{Group: "book", Role: task.AtEnd}},
		{
			Key: "alice", Payload: "throw it away",
			Options: task.PutOptions{Group: "book", Role: task.AtAbort},
		},
	})
	_, ok, _ := tasks.TryTake(ctx)
	fmt.Println("before the start:", ok)

	_ = tasks.StartGroup(ctx, "book") // or CancelGroup
	for {
		t, ok, _ := tasks.TryTake(ctx)
		if !ok {
			break
		}
		fmt.Println(t.Payload)
		_ = t.Ack(ctx)
	}
	// Output:
	// before the start: false
	// chapter 1
	// chapter 2
	// bind it
}

// A consumer takes what its filter passes, and hands back what it holds when it is closed.
func ExampleConsumer() {
	ctx := context.Background()
	tasks, _ := task.Open[string](ctx, new(memory.Store), "work", nil)
	_, _ = tasks.Put(ctx, "alice", "a report", task.PutOptions{Kind: "print", Priority: 5})
	_, _ = tasks.Put(ctx, "alice", "a letter", task.PutOptions{Kind: "mail", Priority: 5})
	_, _ = tasks.Put(ctx, "bob", "an alarm", task.PutOptions{Kind: "mail"})

	mailer := tasks.NewConsumer(task.Filter{Kinds: []string{"mail"}})
	for range 2 {
		t, _ := mailer.Take(ctx)
		fmt.Println("mailer:", t.Payload)
	}
	_, ok, _ := mailer.TryTake(ctx)
	fmt.Println("mailer:", ok)

	_ = mailer.Close(ctx)
	urgent := tasks.NewConsumer(task.Filter{MaxPriority: new(0)})
	t, _ := urgent.Take(ctx)
	fmt.Println("urgent:", t.Payload, "attempt", t.Attempts)
	_, ok, _ = urgent.TryTake(ctx)
	fmt.Println("urgent:", ok)
	// Output:
	// mailer: an alarm
	// mailer: a letter
	// mailer: false
	// urgent: an alarm attempt 1
	// urgent: false
}

// Keys share tokens, not tasks: while a book is translated page by page, a chat goes on.
func ExamplePutOptions_cost() {
	ctx := context.Background()
	prompts, _ := task.Open(ctx, new(memory.Store), "prompts", &task.Options[string]{Quantum: 1_000})
	for i := range 3 {
		_, _ = prompts.Put(ctx, "book", fmt.Sprint("page ", i+1), task.PutOptions{Cost: 4_000})
	}
	for i := range 8 {
		_, _ = prompts.Put(ctx, "chat", fmt.Sprint("answer ", i+1), task.PutOptions{Cost: 500})
	}
	for {
		t, ok, _ := prompts.TryTake(ctx)
		if !ok {
			break
		}
		fmt.Println(t.Payload)
		_ = t.Ack(ctx)
	}
	// Output:
	// page 1
	// answer 1
	// answer 2
	// answer 3
	// answer 4
	// answer 5
	// answer 6
	// answer 7
	// answer 8
	// page 2
	// page 3
}
