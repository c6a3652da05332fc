// Package etcd keeps the tasks of package task in etcd, for programs on any number of machines. It
// is a module of its own, and needs servers of version 3.6 or newer.
//
//	client, err := clientv3.New(clientv3.Config{
//		Endpoints:         endpoints,
//		DialKeepAliveTime: 2 * time.Second, DialKeepAliveTimeout: 2 * time.Second,
//	})
//	store, err := etcd.Open(ctx, client, &etcd.Options{MaxOps: 8192})
//	tasks, err := task.Open[Job](ctx, store, "emails", nil)
//
// Start the servers with --max-txn-ops=8192 and set Options.MaxOps to it. With keep-alives the
// client notices a lost machine within seconds.
//
// With the 128 operations that are the default, a transaction writes 10 tasks: a PutBatch holds 10
// of them at most, a TakeBatch returns 5. An error names number and limit. With 8192 operations a
// transaction writes 682 tasks. All other calls use as many transactions as they need.
//
// # What is promised
//
//   - The promises of package task, except for the order between processes: see below.
//   - The changes of a call are in the log of a majority of the servers when it returns. If an
//     answer is lost, the Store finds out whether the call was done. If it cannot, it returns an
//     error that says so.
//   - Processes that put tasks of different keys do not block each other: nothing is locked, and
//     their transactions do not conflict.
//   - A watch wakes waiting calls within milliseconds after a change.
//
// # Not promised
//
//   - One process takes in the exact order. Of several processes that take at the same time, each
//     takes from its own part of the first tasks, so that they do not conflict. For each task that
//     it wants, a process looks at the first 4·n tasks; n is the number of processes that have
//     taken something in the last three seconds. After skipping a task twelve times, a process
//     takes it even from another's part. So if n processes take k tasks at a time, at most 12·n·k
//     others are taken before a task, even if some processes are slow or stop.
//   - Two processes that put tasks of the same key at the same moment may give it a turn each in
//     the same round.
//   - With MaxInFlightPerKey, KeyRate, KeyCapacity or groups, processes that use the same key or
//     group conflict. With a Rate, all processes that take conflict: 16 processes 2.9 times a
//     task. With Capacity, Quantum, or kinds without a limit by key, one process at a time has the
//     queue.
//   - Times come from the clocks of the machines, which may differ by Options.Skew. Delays are
//     off by as much. A lease ends by the clock of its process. For other processes it ends later,
//     by Options.Skew.
//   - etcd keeps everything in memory and is made for some gigabytes: up to about a million tasks.
//     It keeps old revisions until they are compacted, so start the servers with
//     --auto-compaction-retention. When the quota of the servers is used up, calls that write
//     change nothing and return an error that says so. That ends when you compact and defragment
//     the servers and disarm the alarm.
//
// # What it costs
//
// A Put, a Take and an Ack wait for two exchanges with the servers: one for all reads, and the
// commit. The first Take of a process, and of a new Consumer, waits for a few more. To find the
// end of a key's tasks, a Put reads the tasks of the key that were put since the last Put of its
// process. The first Put reads all queued tasks of the key. A waiting call costs only its watch,
// and a transaction every ten seconds. A process without waiting calls makes no call when others
// put tasks.
package etcd
