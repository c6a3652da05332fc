package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/fairq/fairq/store/sqlite"
	"github.com/fairq/fairq/task"
)

type Mail struct{ To string }

// A process puts tasks and ends; another one does them. Alice has put three before Bob comes, and
// they take turns.
func Example() {
	ctx := context.Background()
	path, remove := temporary()
	defer remove()

	store, mails := open(ctx, path)
	for i := range 3 {
		_, err := mails.Put(ctx, "alice", Mail{fmt.Sprint("alice-", i)}, task.PutOptions{})
		check(err)
	}
	_, err := mails.Put(ctx, "bob", Mail{"bob-0"}, task.PutOptions{})
	check(err)
	check(mails.Close(ctx))
	check(store.Close())

	store, mails = open(ctx, path)
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
	store, mails := open(ctx, path)

	// The driver is registered by package sqlite.
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)")
	check(err)
	_, err = db.ExecContext(ctx, "CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT)")
	check(err)

	order := func(id int, customer string) error {
		return store.InTx(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := mails.Put(ctx, customer, Mail{customer}, task.PutOptions{}); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES (?, ?)", id, customer)
			return err // then there is no task either
		})
	}
	check(order(1, "alice"))
	fmt.Println("twice:", order(1, "alice") != nil)

	stats, err := mails.Stats(ctx)
	check(err)
	fmt.Println("tasks:", stats.Ready)
	check(db.Close())
	check(mails.Close(ctx))
	check(store.Close())
	// Output:
	// twice: true
	// tasks: 1
}

func open(ctx context.Context, path string) (*sqlite.Store, *task.Queue[Mail]) {
	store, err := sqlite.Open(ctx, path, nil)
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
