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
// This package is compiled and tested against a fake, and was never run on a cluster. The fake is
// the calls of Apple's Go binding over a model of FoundationDB's concurrency control, with the error
// codes that they return. Run the tests on a cluster before you rely on it:
//
//	FDB_CLUSTER_FILE=/etc/foundationdb/fdb.cluster go test -tags foundationdb .
//
// # What is promised
//
// What is promised and what is not is told in the documentation of store/etcd, whose driver this
// shares, but for what follows.
//
//   - A transaction may take five seconds and write ten million bytes. Payloads have up to 90,000
//     bytes.
//   - A transaction is tried again if the client library's OnError says that this helps.
//   - Whoever waits for tasks is told by a watch, one for each queue and process.
//   - With WithTx a call is a part of the caller's own transaction.
//   - There is no limit but the size of the cluster for how many tasks there are.
package foundationdb
