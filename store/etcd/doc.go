// Package etcd keeps the tasks of package task in etcd, for programs on any number of machines. It
// is a module of its own, and needs servers of version 3.6 or newer.
//
//	client, err := clientv3.New(clientv3.Config{
//		Endpoints: endpoints, DialKeepAliveTime: 2 * time.Second, DialKeepAliveTimeout: 2 * time.Second,
//	})
//	store, err := etcd.Open(ctx, client, &etcd.Options{MaxOps: 8192})
//	tasks, err := task.Open[Job](ctx, store, "emails", nil)
//
// Start the servers with --max-txn-ops=8192 and tell it with Options.MaxOps. With keep-alives a
// machine that is gone is noticed within seconds.
//
// With the 128 operations that are the default, a transaction writes 10 tasks: a PutBatch holds 10
// of them at most, a TakeBatch returns 5, the weight of a key is 10. More is refused, with an error
// that names number and limit. With 8192 operations a transaction writes 682 tasks. All else is
// done in as many transactions as it takes.
//
// # What is promised
//
//   - All that package task promises, but for the order between processes: see below.
//   - What a call has done is in the log of a majority of the servers when it returns. If an answer
//     is lost, the Store finds out whether the call was done, and if it cannot, returns an error
//     that says so.
//   - Processes that put tasks of different keys do not hold up each other: nothing is locked, and
//     their transactions do not conflict.
//   - Who waits is told of changes by a watch, within milliseconds.
//
// # What is not
//
//   - One process takes in the exact order. Of several that take at the same time, each takes from
//     a part of the first tasks, so that they do not conflict. It looks at the first 4·n tasks for
//     each that it wants, where n is how many processes have taken something in the last three
//     seconds, and takes what it has passed over twelve times whoever's it is. So n processes that
//     take k tasks at a time pass a task over by 12·n·k others at most, also if some are slow or
//     stop. For other orders see Options.Taking.
//   - Two processes that put tasks of the same key at the same moment may give it a turn each in
//     the same round.
//   - With MaxInFlightPerKey, KeyCapacity or groups, those who use the same key or group conflict.
//     With Capacity, Quantum, fairq.ThisRound, or kinds without a limit by key, one process at a
//     time has the queue.
//   - Times are those of the machines, which may differ by Options.Skew. Delays and leases are off
//     by as much.
//   - etcd keeps all in memory and is made for some gigabytes, so for up to about a million tasks.
//     It keeps old revisions until they are compacted: start the servers with
//     --auto-compaction-retention. When their quota is used up, calls that write return an error
//     that says so, and nothing of them has happened, until they were compacted and defragmented and
//     the alarm is disarmed.
//
// # What it costs
//
// A Put, a Take and an Ack wait for two exchanges with the servers: one in which all is read, and
// the commit. The first Take of a process, and one of a new Consumer, wait for a few more. To find
// where a key's tasks end, a Put reads what was put since the last one of its process; the first one
// reads all the queued tasks of the key. Whoever waits for tasks costs nothing but its watch, and a
// transaction every ten seconds. A process in which nobody waits makes no call when others put tasks.
package etcd
