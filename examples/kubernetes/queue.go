package main

import (
	"github.com/fairq/fairq"
	"k8s.io/client-go/util/workqueue"
)

// fair holds the items of client-go's workqueue, if TypedQueueConfig.Queue is set to it. Items of
// a key come out in the order in which they were added, and the keys take turns.
type fair[T comparable] struct {
	items fairq.Queue[string, T]
	key   func(T) string
}

var _ workqueue.Queue[int] = (*fair[int])(nil)

// Touch says that an item was added that is in the queue. It stays where it is.
func (q *fair[T]) Touch(T) {}

func (q *fair[T]) Push(item T) { q.items.Push(q.key(item), item) }

func (q *fair[T]) Len() int { return q.items.Len() }

// Pop is called only if Len is above 0.
func (q *fair[T]) Pop() T {
	_, item, _ := q.items.Pop()
	return item
}

// newQueue returns a function that makes client-go's queue, which still drops duplicates, gives no
// item to two workers, delays and limits rates. The keys take turns in it. controller-runtime
// takes that function as controller.Options.NewQueue:
//
//	newQueue(func(r reconcile.Request) string { return r.Namespace })
func newQueue[T comparable](
	key func(T) string,
) func(string, workqueue.TypedRateLimiter[T]) workqueue.TypedRateLimitingInterface[T] {
	return func(name string,
		limiter workqueue.TypedRateLimiter[T],
	) workqueue.TypedRateLimitingInterface[T] {
		return around(&fair[T]{key: key}, name, limiter)
	}
}

// around returns client-go's queue around another. If that is nil, items are served in order.
func around[T comparable](queue workqueue.Queue[T], name string,
	limiter workqueue.TypedRateLimiter[T],
) workqueue.TypedRateLimitingInterface[T] {
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
		workqueue.TypedRateLimitingQueueConfig[T]{
			Name: name,
			DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[T]{
				Name:  name,
				Queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[T]{Name: name, Queue: queue}),
			}),
		})
}
