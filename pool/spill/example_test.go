package spill_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/pool/spill"
	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/memory"
)

// Letters go back into a queue as long as it is less than half full.
func Example() {
	ctx := context.Background()
	path, _ := os.MkdirTemp("", "letters")
	defer os.RemoveAll(path)
	letters, err := spill.Open[string](path, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer letters.Close()
	// a pool would: Options.DeadLetters is letters.Write
	for _, text := range []string{"one", "two", "three"} {
		err := letters.Write(ctx,
			&pool.DeadLetter[string]{
				Task: task.Info{Key: "alice"}, Payload: text,
				Reason: pool.ReasonOverflow,
			})
		if err != nil {
			fmt.Println(err)
		}
	}

	queue, _ := task.Open[string](ctx, new(memory.Store), "emails",
		&task.Options[string]{Capacity: 4})
	n, err := letters.Restore(ctx, spill.Into(queue, 0.5))
	fmt.Println(n, err)
	for range n {
		t, _ := queue.Take(ctx)
		fmt.Println(t.Payload)
		_ = t.Ack(ctx)
	}
	n, err = letters.Restore(ctx, spill.Into(queue, 0.5))
	fmt.Println(n, err)
	// Output:
	// 2 fairq: full: it holds 2, the limit is 2
	// one
	// two
	// 1 <nil>
}

// Restore does not wait for room, so a program calls it now and then; a call that finds no room
// reads one letter.
func ExampleDir_Restore() {
	var ( // opened elsewhere
		ctx     context.Context
		letters *spill.Dir[string]
		queue   *task.Queue[string]
	)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		_, err := letters.Restore(ctx, spill.Into(queue, 0.5))
		switch {
		case err == nil:
		case errors.Is(err, spill.ErrClosed), errors.Is(err, task.ErrClosed), ctx.Err() != nil:
			return
		case errors.Is(err, spill.ErrDamaged), errors.Is(err, spill.ErrVersion):
			fmt.Println(err) // somebody should look at the file
		case errors.Is(err, fairq.ErrFull), errors.Is(err, spill.ErrRefused): // not all, for now
		default:
			fmt.Println(err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// A sink of your own decides about each letter. This one drops expired letters.
func ExampleInto() {
	ctx := context.Background()
	path, _ := os.MkdirTemp("", "letters")
	defer os.RemoveAll(path)
	letters, err := spill.Open[string](path, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer letters.Close()
	late := task.Info{Key: "alice", Expires: time.Now().Add(-time.Hour)}
	_ = letters.Write(ctx,
		&pool.DeadLetter[string]{Task: late, Payload: "your code is 1234", Reason: pool.ReasonDeadline})
	_ = letters.Write(ctx,
		&pool.DeadLetter[string]{
			Task: task.Info{Key: "bob"}, Payload: "hello",
			Reason: pool.ReasonFailed,
		})

	queue, _ := task.Open[string](ctx, new(memory.Store), "emails", nil)
	put := spill.Into(queue, 0.5)
	n, err := letters.Restore(ctx, func(ctx context.Context, letter *pool.DeadLetter[string]) error {
		err := put(ctx, letter)
		if errors.Is(err, task.ErrExpired) {
			fmt.Println("too late:", letter.Payload)
			return nil
		}
		return err
	})
	fmt.Println(n, err)
	// Output:
	// too late: your code is 1234
	// 2 <nil>
}
