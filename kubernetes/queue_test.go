package kubernetes_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/util/workqueue"

	"github.com/fairq/fairq/kubernetes"
)

// TestWorkqueue shows that client-go's queue keeps its behaviour.
func TestWorkqueue(t *testing.T) {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Minute)
	synctest.Test(t, func(t *testing.T) {
		q := kubernetes.NewQueue(func(object string) string { return object[:1] })("", limiter)
		get := func(object string) {
			t.Helper()
			next, _ := q.Get()
			require.Equal(t, object, next)
		}
		for _, object := range []string{"a 1", "a 2", "a 1", "a 3", "b 1"} { // a 1 twice
			q.Add(object)
		}
		require.Equal(t, 4, q.Len())

		// An object added while a worker has it comes after that, behind its own namespace.
		get("a 1")
		q.Add("a 1")
		require.Equal(t, 3, q.Len())
		q.Done("a 1")
		for _, object := range []string{"b 1", "a 2", "a 3", "a 1"} {
			get(object)
			q.Done(object)
		}

		begun := time.Now()
		q.AddAfter("a later", time.Minute)
		q.AddRateLimited("b again")
		get("b again")
		require.Equal(t, time.Second, time.Since(begun))
		get("a later")
		require.Equal(t, time.Minute, time.Since(begun))
		q.ShutDown()
	})
}
