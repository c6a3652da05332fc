package main

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
)

func TestFlood(t *testing.T) {
	const round = light / workers * work
	synctest.Test(t, func(t *testing.T) {
		require.Equal(t, objects/workers*work+round, flood(around(nil, "", limiter())))
		require.Equal(t, 2*round, flood(newQueue(namespace)("", limiter())))
	})
}

func limiter() workqueue.TypedRateLimiter[types.NamespacedName] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](time.Second,
		time.Minute)
}

// TestWorkqueue shows that client-go's queue keeps its behaviour.
func TestWorkqueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(namespace)("", limiter())
		object := func(namespace, name string) types.NamespacedName {
			return types.NamespacedName{Namespace: namespace, Name: name}
		}
		get := func(namespace, name string) types.NamespacedName {
			t.Helper()
			next, shutdown := q.Get()
			require.False(t, shutdown)
			require.Equal(t, object(namespace, name), next)
			return next
		}
		for _, name := range []string{"1", "2", "1", "3"} { // the second 1 is one too many
			q.Add(object("a", name))
		}
		q.Add(object("b", "1"))
		require.Equal(t, 4, q.Len())

		// An object added while a worker has it comes after that, behind its own namespace.
		first := get("a", "1")
		q.Add(first)
		require.Equal(t, 3, q.Len())
		q.Done(first)
		for _, name := range []string{"b 1", "a 2", "a 3", "a 1"} {
			q.Done(get(name[:1], name[2:]))
		}

		begun := time.Now()
		q.AddAfter(object("a", "later"), time.Minute)
		q.AddRateLimited(object("b", "again"))
		q.Done(get("b", "again"))
		require.Equal(t, time.Second, time.Since(begun))
		q.Done(get("a", "later"))
		require.Equal(t, time.Minute, time.Since(begun))
		q.ShutDown()
	})
}
