// What a user of store/bolt writes first.
package main

import (
	"context"

	"github.com/fairq/fairq/store/bolt"
	"github.com/fairq/fairq/task"
)

func main() {
	ctx := context.Background()
	store, err := bolt.Open(ctx, "tasks.db", nil)
	must(err)
	tasks, err := task.Open[string](ctx, store, "emails", nil)
	must(err)
	_, err = tasks.Put(ctx, "alice", "hello", task.PutOptions{})
	must(err)
	t, err := tasks.Take(ctx)
	must(err)
	must(t.Ack(ctx))
	must(tasks.Close(ctx))
	must(store.Close())
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
