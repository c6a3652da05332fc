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

// Restore does not wait for room, so a program calls it now and then; a call that finds no room
// reads one letter. A sink of your own decides about each letter: this one drops expired ones.
func ExampleDir_Restore() {
	ctx := context.Background()
	path, _ := os.MkdirTemp("", "letters")
	defer os.RemoveAll(path)
	letters, err := spill.Open[string](path, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer letters.Close()
	for i, text := range []string{"your code is 1234", "hello", "goodbye"} { // a pool would
		letter := &pool.DeadLetter[string]{Task: task.Info{Key: "alice"}, Payload: text}
		if i == 0 {
			letter.Task.Expires = time.Now()
		}
		_ = letters.Write(ctx, letter)
	}

	queue, _ := task.Open(ctx, new(memory.Store), "emails", &task.Options[string]{Capacity: 2})
	put := spill.Into(queue, 0.5)
	sink := func(ctx context.Context, letter *pool.DeadLetter[string]) error {
		err := put(ctx, letter)
		if errors.Is(err, task.ErrExpired) {
			fmt.Println("too late:", letter.Payload)
			return nil
		}
		return err
	}
	for err := fairq.ErrFull; errors.Is(err, fairq.ErrFull); {
		_, err = letters.Restore(ctx, sink)
		switch {
		case errors.Is(err, spill.ErrDamaged):
			fmt.Println(err) // somebody should look at the file
		case errors.Is(err, spill.ErrRefused): // some letters wait for the next call
		}
		t, _ := queue.Take(ctx)
		fmt.Println(t.Payload)
		_ = t.Ack(ctx)
	}
	// Output:
	// too late: your code is 1234
	// hello
	// goodbye
}
