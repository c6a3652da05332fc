// Package foundationdb keeps the tasks of package task in FoundationDB, for programs on any number
// of machines. It is a module of its own.
//
//	store, err := foundationdb.Open(ctx, "/etc/foundationdb/fdb.cluster", nil)
//	tasks, err := task.Open[Job](ctx, store, "emails", nil)
//
// It needs cgo, FoundationDB's client library of version 7.3 and its header, and to be built so:
//
//	go build -tags foundationdb
//
// Without the tag it compiles everywhere, and Open returns an error.
//
// # What has been run
//
// This package has never been run against a FoundationDB. It is an adapter of some 150 lines; the
// driver above it has been tested over a model of FoundationDB's concurrency control in memory, and
// over etcd. The adapter is compiled in CI with Apple's Go binding, against a header and a library
// that have only the declarations which that uses, and do nothing. Its tests run where there are a
// client library and a cluster file: run them before you rely on it.
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
//   - Whoever waits for tasks looks for them every Options.Poll.
//   - There is no limit but the size of the cluster for how many tasks there are.
package foundationdb
