// What a user of store/postgres writes first. Nobody listens at this address: it is enough that
// the driver tells so.
package main

import (
	"context"
	"fmt"

	"github.com/fairq/fairq/store/postgres"
)

func main() {
	_, err := postgres.Open(context.Background(), "postgres://127.0.0.1:1/tasks", nil)
	if err == nil {
		panic("postgres.Open: want an error")
	}
	fmt.Println(err)
}
