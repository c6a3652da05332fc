// Package redis keeps the tasks of package task in Redis or Valkey, for programs on any number of
// machines. It is a module of its own.
//
//	store, err := redis.Open(ctx, "redis://localhost:6379/0", nil)
//	tasks, err := task.Open[Job](ctx, store, "emails", nil)
//
// OpenClient takes the program's own client of go-redis: for one server, Sentinel, or Redis
// Cluster, where a Store uses one hash slot. The client's read timeout must be longer than most
// scripts take. After a timeout the Store asks the server whether the commit was done.
//
// The server must be Redis 6 or newer, or Valkey; the tests run on Redis 7.0. Its maxmemory-policy
// must be noeviction, or one for keys that expire. The user needs the commands INFO, EVAL,
// EVALSHA, DEL, TIME, PUBLISH, SUBSCRIBE and those of hashes and sorted sets, on keys and channels
// that begin with Options.Prefix.
//
// # What is promised
//
//   - The promises of package task, except for the order between processes, as in store/etcd.
//   - A commit is one script. It happens as a whole or not at all. A transaction that is in
//     conflict with others is repeated. If an answer is lost, the Store finds out whether the call
//     was done. If it cannot, the call returns an error that says so.
//   - After a failover or a restart no transaction commits that has read lost changes.
//   - A message wakes waiting calls within milliseconds after a change.
//   - A server that is full (OOM) or read only returns an error that says so, and changes nothing.
//     Tasks can be taken and acked when it is full.
//
// # Not promised
//
//   - How long changes last depends on the server: docs/stores.md says what the server may lose,
//     and what to set. A task whose Put was lost is gone. A lost Ack hands the task out again.
//   - Several processes that take at the same time do so in the order that store/etcd describes,
//     and the same options make them conflict.
//   - Times come from the clocks of the machines, which may differ by Options.Skew.
//   - There is no transaction of the caller's own: no InTx, and no WithTx.
//
// # What it costs
//
// A Put, a Take and an Ack wait for two exchanges with the server: a script reads, and another
// one commits. Calls that are made at the same time share both. A task takes some 870 bytes of
// memory besides its payload. A commit takes some 230 for ten seconds if it has one call, and
// fewer for each call if it has more. Each open queue of a process has a connection for
// messages. While a script runs the server does nothing else. The longest script takes some 25 ms,
// for a PutBatch of 666 tasks.
package redis
