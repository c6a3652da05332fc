// What a user of store/etcd writes first. Nobody listens at this address: it is enough that the
// store tells so.
package main

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fairq/fairq/store/etcd"
)

func main() {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:1"}})
	if err != nil {
		panic(err)
	}
	if _, err = etcd.Open(context.Background(), client, nil); err == nil {
		panic("etcd.Open: want an error")
	}
	fmt.Println(err)
}
