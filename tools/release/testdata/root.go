// What a user of the root module writes first.
package main

import (
	"context"
	"fmt"

	"github.com/fairq/fairq"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

func main() {
	ctx := context.Background()
	queue := fairq.New(func(name string) string { return name }, nil)
	must(queue.Push("alice"))
	must(queue.PushWait(ctx, "bob"))
	queue.Close()
	for name := range queue.All(ctx) {
		fmt.Println(name)
	}

	p := pool.Func(func(_ context.Context, t *task.Task[string]) error {
		fmt.Println(t.Payload)
		return nil
	}, nil)
	must(p.Submit(ctx, "alice", "work"))
	must(p.StopAndWait(ctx))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
