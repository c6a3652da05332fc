// Kubernetes makes the workqueue of client-go, and so the controllers of controller-runtime, serve
// namespaces in turns. One namespace has 10,000 objects to reconcile and ten have one each. It
// prints how long these ten wait, in order of arrival and in turns.
//
//	go run .
package main

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
)

const (
	objects = 10_000 // of the large namespace
	light   = 10     // namespaces of one object each
	workers = 10
	work    = time.Millisecond // for each object
)

func main() {
	limiter := workqueue.DefaultTypedControllerRateLimiter[types.NamespacedName]()
	fmt.Printf("in order:  the ten small namespaces have waited %v\n",
		flood(around(nil, "", limiter)))
	fmt.Printf("in turns:  the ten small namespaces have waited %v\n",
		flood(newQueue(namespace)("", limiter)))
}

func namespace(object types.NamespacedName) string { return object.Namespace }

// flood returns how long it takes until all small namespaces are done.
func flood(q workqueue.TypedRateLimitingInterface[types.NamespacedName]) (longest time.Duration) {
	begun := time.Now()
	for i := range objects {
		q.Add(types.NamespacedName{Namespace: "large", Name: fmt.Sprint(i)})
	}
	for i := range light {
		q.Add(types.NamespacedName{Namespace: fmt.Sprint("small ", i), Name: "object"})
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for {
				object, shutdown := q.Get()
				if shutdown {
					return
				}
				time.Sleep(work)
				q.Done(object)
				if object.Namespace != "large" {
					mu.Lock()
					longest = max(longest, time.Since(begun))
					mu.Unlock()
				}
			}
		})
	}
	q.ShutDownWithDrain()
	q.ShutDown() // otherwise the delaying goroutine goes on
	all.Wait()
	return longest.Round(time.Millisecond)
}
