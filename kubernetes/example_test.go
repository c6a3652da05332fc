package kubernetes_test

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fairq/fairq/kubernetes"
)

// A controller of controller-runtime whose namespaces take turns. One namespace has 10,000
// objects, and two others have one each.
func ExampleNewQueue() {
	ctx, cancel := context.WithCancel(context.Background())
	done := 0
	reports, err := controller.NewUnmanaged("reports", controller.Options{
		NewQueue: kubernetes.NewQueue(func(r reconcile.Request) string { return r.Namespace }),
		Reconciler: reconcile.Func(func(
			_ context.Context, r reconcile.Request,
		) (reconcile.Result, error) {
			if done++; done <= 4 {
				fmt.Println(r)
			} else {
				cancel()
			}
			return reconcile.Result{}, nil
		}),
	})
	if err != nil {
		panic(err)
	}
	// Yours: a manager, and a source.Kind that watches its cache.
	err = reports.Watch(source.Func(
		func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			add := func(namespace, name string) {
				object := types.NamespacedName{Namespace: namespace, Name: name}
				q.Add(reconcile.Request{NamespacedName: object})
			}
			for i := range 10_000 {
				add("large", fmt.Sprint(i))
			}
			add("alice", "report")
			add("bob", "report")
			return nil
		}))
	if err != nil {
		panic(err)
	}
	fmt.Println(reports.Start(ctx))
	// Output:
	// large/0
	// alice/report
	// bob/report
	// large/1
	// <nil>
}
