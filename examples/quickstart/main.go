// Quickstart: alice floods the queue, bob brings one job, and bob does not wait for alice.
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
	// The function says whose a job is. The capacity is small here to show what happens when the queue is full.
	queue := fairq.New(func(j job) string { return j.user }, &fairq.Options[string, job]{Capacity: 6})

	for number := range 5 {
		push(queue, job{"alice", number + 1})
	}
	push(queue, job{"bob", 1})
	push(queue, job{"alice", 6})

	for j, ok := queue.Pop(); ok; j, ok = queue.Pop() {
		fmt.Println("pop: ", j.user, j.number)
	}
}

func push(queue *fairq.FairQueue[string, job], j job) {
	if err := queue.Push(j); err != nil {
		fmt.Println("push:", j.user, j.number, "is refused:", err)
		return
	}
	fmt.Println("push:", j.user, j.number)
}
