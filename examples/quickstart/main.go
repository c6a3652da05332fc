// Quickstart: alice floods the queue, bob and carol bring a job each, and do not wait for alice.
//
//	go run ./examples/quickstart
package main

import (
	"fmt"

	"github.com/fairq/fairq"
)

type job struct {
	user   string
	number int
}

func main() {
	// The function returns the key of a job. nil options: capacity 128, and a full queue refuses.
	serve(fairq.New(func(j job) string { return j.user }, nil))

	fmt.Println("\nThe same with a queue that is soon full, and keeps room for others:")
	serve(fairq.New(func(j job) string { return j.user }, &fairq.Options[string, job]{
		Capacity: 6,
		WhenFull: fairq.RejectOverShare, // a user may hold about as many jobs as there are free places
	}))
}

func serve(queue *fairq.FairQueue[string, job]) {
	for number := range 5 {
		push(queue, job{"alice", number + 1})
	}
	push(queue, job{"bob", 1})
	push(queue, job{"carol", 1})

	for j, ok := queue.Pop(); ok; j, ok = queue.Pop() {
		fmt.Println("pop: ", j.user, j.number)
	}
}

func push(queue *fairq.FairQueue[string, job], j job) {
	if err := queue.Push(j); err != nil {
		fmt.Printf("push: %s %d is refused:\n  %v\n", j.user, j.number, err)
		return
	}
	fmt.Println("push:", j.user, j.number)
}
