package bolt_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"

	"github.com/fairq/fairq/store/bolt"
	"github.com/fairq/fairq/task"
)

type Mail struct{ To string }

// A process puts tasks and ends; the next one does them. Alice has put three before Bob came, and
// they take turns.
func ExampleOpen() {
	ctx := context.Background()
	path, remove := temporary()
	defer remove()

	store, mails := openMails(ctx, path)
	for _, to := range []string{"alice-0", "alice-1", "alice-2", "bob-0"} {
		_, err := mails.Put(ctx, to[:len(to)-2], Mail{to}, task.PutOptions{})
		check(err)
	}
	check(mails.Close(ctx))
	check(store.Close())

	store, mails = openMails(ctx, path)
	for range 4 {
		t, err := mails.Take(ctx)
		check(err)
		fmt.Println(t.Payload.To)
		check(t.Ack(ctx))
	}
	check(mails.Close(ctx))
	check(store.Close())
	// Output:
	// alice-0
	// bob-0
	// alice-1
	// alice-2
}

// An order is stored if, and only if, there is a task for it: both are in one transaction.
func ExampleStore_InTx() {
	ctx := context.Background()
	path, remove := temporary()
	defer remove()
	store, mails := openMails(ctx, path)

	order := func(id, customer string) error {
		return store.InTx(ctx, func(ctx context.Context, tx *bbolt.Tx) error {
			if _, err := mails.Put(ctx, customer, Mail{customer}, task.PutOptions{}); err != nil {
				return err
			}
			orders, err := tx.CreateBucketIfNotExists([]byte("orders"))
			if err != nil {
				return err
			}
			if orders.Get([]byte(id)) != nil {
				return fmt.Errorf("order %s is there already", id) // then there is no task either
			}
			return orders.Put([]byte(id), []byte(customer))
		})
	}
	fmt.Println(order("1", "alice"))
	fmt.Println(order("1", "alice"))

	stats, err := mails.Stats(ctx)
	check(err)
	fmt.Println("tasks:", stats.Ready)
	check(mails.Close(ctx))
	check(store.Close())
	// Output:
	// <nil>
	// order 1 is there already
	// tasks: 1
}

func openMails(ctx context.Context, path string) (*bolt.Store, *task.Queue[Mail]) {
	store, err := bolt.Open(ctx, path, nil)
	check(err)
	mails, err := task.Open[Mail](ctx, store, "mails", nil)
	check(err)
	return store, mails
}

func temporary() (path string, remove func()) {
	dir, err := os.MkdirTemp("", "fairq")
	check(err)
	return filepath.Join(dir, "tasks.db"), func() { os.RemoveAll(dir) }
}

func check(err error) {
	if err != nil {
		log.Panic(err)
	}
}
