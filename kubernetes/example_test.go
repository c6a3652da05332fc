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

// A controller of controller-runtime whose namespaces take turns. One namespace has three objects,
// and two others have one each.
func ExampleNewQueue() {
	ctx, cancel := context.WithCancel(context.Background())
	reports, err := controller.NewUnmanaged("reports", controller.Options{
		NewQueue: kubernetes.NewQueue(func(r reconcile.Request) string { return r.Namespace }),
		Reconciler: reconcile.Func(func(
			_ context.Context, r reconcile.Request,
		) (reconcile.Result, error) {
			if fmt.Println(r); r.Name == "2" {
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
			for i, namespace := range []string{"large", "large", "large", "alice", "bob"} {
				object := types.NamespacedName{Namespace: namespace, Name: fmt.Sprint(i)}
				q.Add(reconcile.Request{NamespacedName: object})
			}
			return nil
		}))
	if err != nil {
		panic(err)
	}
	fmt.Println(reports.Start(ctx))
	// Output:
	// large/0
	// alice/3
	// bob/4
	// large/1
	// large/2
	// <nil>
}
