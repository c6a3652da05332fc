// Package bolt keeps the tasks of package task in a file, without SQL and without a server: for a
// program that is alone with its tasks. It is a module of its own, over the key-value store bbolt,
// which is pure Go and small.
//
//	store, err := bolt.Open(ctx, "tasks.db", nil)
//	tasks, err := task.Open[Job](ctx, store, "emails", nil)
//
// # What is promised
//
//   - All that package task promises. The rounds are exact, since there is one writer at a time.
//   - What a call has done is on the disk as soon as it returns: it survives the process, and a
//     power cut. A call that returns an error has done nothing, unless the disk failed in the
//     very last write of a commit.
//   - With [Store.InTx] a call is part of a transaction in which the program writes into buckets
//     of its own: both happen, or neither does.
//   - Who waits is told at once.
//
// # What is not
//
//   - No other process can open the file meanwhile: it gets an error at once. So it cannot help
//     with the tasks either. What a process had taken when it died is handed back when the next
//     one has had the file open for Options.Grace of the queue, 30 seconds unless set.
//   - The file must not be on a network file system.
//   - The clock is that of the machine: if it is set back, delays and leases last longer by as
//     much.
//   - bbolt has checksums for the root of its tree alone. Open finds it if the tree is damaged,
//     but not each changed byte of a payload. The file does not shrink; what is free in it is
//     used again.
//
// # What it costs
//
// Calls that are made at the same time share a transaction, which waits for the disk twice. No
// call depends on how many tasks there are, but for KeyStats, List with a filter, Truncate and
// Drop, and Open, which reads the file. Stats counts the keys, now and then if there are many.
// All calls wait for their turn, also those that only read. Package store/sqlite makes up to two
// or three times as many calls a second, and lets processes share the file.
package bolt
