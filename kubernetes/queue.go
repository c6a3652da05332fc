// Package kubernetes has a workqueue for Kubernetes controllers whose namespaces take turns.
//
// client-go's workqueue hands out objects first in, first out. So a namespace with 10,000 objects
// makes the objects of all others wait until its own are reconciled. With [NewQueue] the first
// object of a namespace waits for at most two objects of each other namespace.
//
//	controller.Options{NewQueue: kubernetes.NewQueue(
//		func(r reconcile.Request) string { return r.Namespace })}
package kubernetes

import (
	"k8s.io/client-go/util/workqueue"

	"github.com/fairq/fairq"
)

// NewQueue returns a function for the field NewQueue of controller-runtime's controller.Options.
// Without controller-runtime, call that function with a name for metrics and a rate limiter.
//
// The function makes a queue of client-go, which drops duplicates, gives no item to two workers,
// delays items and limits rates. Only the order differs: keys take turns, and the items of a key
// leave in the order in which they were added. Adding and getting an item takes O(1).
//
// controller-runtime's own queue serves changes before objects that a controller lists when it
// starts. A queue of NewQueue has no such priorities.
//
// key is called while the queue is locked, so it must not call the queue.
func NewQueue[T comparable](
	key func(T) string,
) func(
	name string, limiter workqueue.TypedRateLimiter[T],
) workqueue.TypedRateLimitingInterface[T] {
	return func(
		name string, limiter workqueue.TypedRateLimiter[T],
	) workqueue.TypedRateLimitingInterface[T] {
		queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[T]{
			Name: name, Queue: &fair[T]{key: key},
		})
		delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[T]{
			Name: name, Queue: queue,
		})
		return workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
			workqueue.TypedRateLimitingQueueConfig[T]{Name: name, DelayingQueue: delaying})
	}
}

// fair holds the items of client-go's workqueue, which locks it.
type fair[T comparable] struct {
	items fairq.Queue[string, T]
	key   func(T) string
}

// Touch is called for an item that was added again while it waits. The item keeps its place.
func (q *fair[T]) Touch(T) {}

func (q *fair[T]) Push(item T) { q.items.Push(q.key(item), item) }

func (q *fair[T]) Len() int { return q.items.Len() }

// Pop is called only if Len is above 0.
func (q *fair[T]) Pop() T {
	_, item, _ := q.items.Pop()
	return item
}
