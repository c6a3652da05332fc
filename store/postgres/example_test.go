package postgres_test

import (
	"context"
	"log"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fairq/fairq/store/postgres"
	"github.com/fairq/fairq/task"
)

type Mail struct{ To string }

// Any number of processes do this. All can take the tasks of each.
func Example() {
	ctx := context.Background()
	store, err := postgres.Open(ctx, "postgres://localhost/shop", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	mails, err := task.Open[Mail](ctx, store, "mails", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer mails.Close(ctx)

	if _, err := mails.Put(ctx, "alice", Mail{"alice@here.example"},
		task.PutOptions{TTR: time.Minute}); err != nil {
		log.Fatal(err)
	}
	t, err := mails.Take(ctx)
	if err != nil {
		log.Fatal(err)
	}
	log.Print("to ", t.Payload.To)
	if err := t.Ack(ctx); err != nil {
		log.Fatal(err)
	}
}

// An order is stored if, and only if, there is a task for it, and the outcome of a task is stored
// if, and only if, it is done.
func ExampleStore_InTx() {
	ctx := context.Background()
	db, err := pgxpool.New(ctx, "postgres://localhost/shop")
	if err != nil {
		log.Fatal(err)
	}
	store, err := postgres.Open(ctx, "postgres://localhost/shop", nil)
	if err != nil {
		log.Fatal(err)
	}
	mails, err := task.Open[Mail](ctx, store, "mails", nil)
	if err != nil {
		log.Fatal(err)
	}

	err = store.InTx(ctx, db, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO orders (id, customer) VALUES (1, 'alice')"); err != nil {
			return err
		}
		_, err := mails.Put(ctx, "alice", Mail{"alice@here.example"}, task.PutOptions{})
		return err
	})
	if err != nil {
		log.Fatal(err)
	}

	t, err := mails.Take(ctx)
	if err != nil {
		log.Fatal(err)
	}
	err = store.InTx(ctx, db, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "UPDATE orders SET mailed = now() WHERE id = 1"); err != nil {
			return err
		}
		return t.Ack(ctx) // an error, and no update, if the lease was lost
	})
	if err != nil {
		log.Fatal(err)
	}
}
