// Package foundationdb keeps the tasks of package task in FoundationDB, for programs on any number
// of machines. It is a module of its own.
//
//	fdb.MustAPIVersion(730)
//	db, err := fdb.OpenDefault()
//	store, err := foundationdb.Open(ctx, db, nil)
//	tasks, err := task.Open[Job](ctx, store, "emails", nil)
//
// It needs cgo, FoundationDB's client library of version 7.3 and its header, and to be built so:
//
//	go build -tags foundationdb
//
// Without the tag it has nothing.
//
// # Experimental
//
// This package is compiled and tested against a fake, and was never run on a cluster. The fake
// implements the calls of Apple's Go binding, with their error codes, over a model of
// FoundationDB's concurrency control. Run the tests on a cluster before you rely on it:
//
//	FDB_CLUSTER_FILE=/etc/foundationdb/fdb.cluster go test -tags foundationdb .
//
// # What is promised
//
// The promises are those of store/etcd, whose driver this package shares, with these differences:
//
//   - A transaction may take five seconds and write ten million bytes. Payloads have up to 90,000
//     bytes.
//   - The client library's OnError decides whether a transaction is retried.
//   - A watch, one for each queue and process, wakes calls that wait for tasks.
//   - With WithTx a call is a part of the caller's own transaction.
//   - Only the size of the cluster limits the number of tasks.
package foundationdb
